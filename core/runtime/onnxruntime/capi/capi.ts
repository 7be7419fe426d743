/**
 * The slice of ONNX Runtime's C API that the cpu and webgpu devices use, as TypeScript functions.
 *
 * Every call that returns a status throws when it is set. The runtime keeps raw addresses,
 * and `Deno.UnsafePointer.of` keeps nothing alive, so the caller that makes a tensor from memory must hold
 * that memory for as long as the tensor is used.
 */
import { cString } from "../../../base/c_string.ts";
import { duringNativeCall } from "../../../base/native_calls.ts";
import { ONNX_TYPE, type OnnxType } from "../element_types.ts";
import { quietly } from "./quiet.ts";
import {
  type Argument,
  type FunctionName,
  type Handle,
  openTable,
  type Releasable,
} from "./table.ts";

/** Log level: every error also comes back as a status, so the runtime itself stays silent. */
const FATAL_ONLY = 4;

/**
 * Microseconds for which a thread without work waits in a busy loop before it sleeps. Work of one run
 * follows within a few; the default, far longer, takes the processor from other programs
 * and from the next session. Beside two busy loops a decode step costs 17 ms of processor time, as it does
 * alone, instead of 27.
 */
const SPIN_US = "30";

/** Addresses of texts, which the caller keeps alive. */
function addressesOf(texts: readonly Uint8Array<ArrayBuffer>[]): BigUint64Array<ArrayBuffer> {
  return BigUint64Array.from(
    texts,
    (text) => Deno.UnsafePointer.value(Deno.UnsafePointer.of(text)),
  );
}

/** The opened API; one per process, see `onnxApi`. */
export class OnnxApi {
  readonly #table = openTable();
  readonly #memoryInfo: Handle;
  readonly #environment: Handle;
  #hasArena = false;

  /** @throws {EnvironmentError} when the library cannot be loaded */
  constructor() {
    this.#environment = quietly(() => this.#create("CreateEnv", FATAL_ONLY, cString("parscale")));
    const [arena, defaultMemory] = [1, 0];
    this.#memoryInfo = this.#create("CreateCpuMemoryInfo", arena, defaultMemory);
  }

  /** Options every session starts from. */
  sessionOptions(): Handle {
    const options = this.#create("CreateSessionOptions");
    const allOptimizations = 99;
    this.#check("SetSessionLogSeverityLevel", options, FATAL_ONLY);
    this.#check("SetSessionGraphOptimizationLevel", options, allOptimizations);
    return options;
  }

  /** Sets how many threads of the processor compute. */
  setThreads(options: Handle, threads: number): void {
    this.#check("SetIntraOpNumThreads", options, threads);
    this.configure(options, "session.intra_op.spin_duration_us", SPIN_US);
  }

  /**
   * Lets results share memory run by run. Else the second run of the same sizes allocates a planned
   * block beside all that the first run took.
   */
  disableMemoryPattern(options: Handle): void {
    this.#check("DisableMemPattern", options);
  }

  /**
   * Lets a session allocate from the one arena of this process. The first to ask decides how it grows:
   * `exactly` by what is asked for, or by powers of two, which fits requests of many sizes.
   */
  shareArena(options: Handle, { exactly }: { readonly exactly: boolean }): void {
    if (!this.#hasArena) {
      const [unlimited, byDefault, splitsAbove] = [0n, -1, 1 << 16];
      const growth = exactly ? 1 : 0;
      const arena = this.#create("CreateArenaCfg", unlimited, growth, byDefault, splitsAbove);
      this.#check("CreateAndRegisterAllocator", this.#environment, this.#memoryInfo, arena);
      this.#table.release.ArenaCfg(arena);
      this.#hasArena = true;
    }
    this.configure(options, "session.use_env_allocators", "1");
  }

  /** Sets a session option that has only a text key. */
  configure(options: Handle, key: string, value: string): void {
    this.#check("AddSessionConfigEntry", options, cString(key), cString(value));
  }

  /**
   * Gives sessions an initializer that lies in memory of ours, once they are optimized. The value must
   * outlive them.
   */
  addInitializer(options: Handle, name: string, value: Handle): void {
    this.#check("AddInitializer", options, cString(name), value);
  }

  /** The same before they are optimized, so that what depends on weights alone is computed once. */
  addFolded(options: Handle, values: ReadonlyMap<string, Handle>): void {
    const names = [...values.keys()].map(cString);
    const pointers = BigUint64Array.from(
      values.values(),
      (value) => Deno.UnsafePointer.value(value),
    );
    const count = BigInt(names.length);
    this.#check("AddExternalInitializers", options, addressesOf(names), pointers, count);
  }

  /** Lets sessions run on an execution provider of the library, such as `WebGPU`. */
  appendProvider(options: Handle, provider: string, settings: Record<string, string>): void {
    const [keys, values] = [
      Object.keys(settings).map(cString),
      Object.values(settings).map(cString),
    ];
    this.#check(
      "SessionOptionsAppendExecutionProvider",
      options,
      cString(provider),
      addressesOf(keys),
      addressesOf(values),
      BigInt(keys.length),
    );
  }

  /** Names the memory of a provider's first device, as `tensor` and `allocator` take it. */
  deviceMemory(name: string): Handle {
    const [device, deviceAllocator, defaultMemory] = [0, 0, 0];
    return this.#create("CreateMemoryInfo", cString(name), deviceAllocator, device, defaultMemory);
  }

  /** Creates the allocator of a provider's memory, by a session that runs on it. */
  allocator(session: Handle, memory: Handle): Handle {
    return this.#create("CreateAllocator", session, memory);
  }

  /** Memory of a device; its address means something only to the device. */
  allocate(allocator: Handle, bytes: number): Handle {
    return this.#create("AllocatorAlloc", allocator, BigInt(bytes));
  }

  /** Returns memory of a device. */
  free(allocator: Handle, address: Handle): void {
    this.#check("AllocatorFree", allocator, address);
  }

  /** Copies a tensor to or from a device, or on it; waits until the elements are there to be read. */
  copy(source: Handle, target: Handle): void {
    const [from, to] = [source, target].map((each) =>
      BigUint64Array.of(Deno.UnsafePointer.value(each))
    );
    this.#check("CopyTensors", this.#environment, from!, to!, null, 1n);
  }

  /** Loads a model from the bytes of an ONNX file. */
  session(model: Uint8Array<ArrayBuffer>, options: Handle): Handle {
    return this.#create(
      "CreateSessionFromArray",
      this.#environment,
      model,
      BigInt(model.length),
      options,
    );
  }

  /** The same on another thread, which packs the weights while the caller continues. */
  async sessionLater(model: Uint8Array<ArrayBuffer>, options: Handle): Promise<Handle> {
    const out = new BigUint64Array(1);
    const [environment, size] = [this.#environment, BigInt(model.length)];
    // The call holds addresses, so both arrays must be reachable until it is over.
    const arrays = [model, out];
    const { CreateSessionFromArray } = this.#table.callAsync;
    const status = CreateSessionFromArray(environment, model, size, options, out);
    await this.#checkLater("CreateSessionFromArray", status);
    return Deno.UnsafePointer.create((arrays[1] as typeof out)[0]!)!;
  }

  /**
   * A tensor over existing memory, which the caller keeps alive and in place; `memory` says of which
   * device it is, when not of the processor.
   */
  tensor(
    address: Deno.PointerValue,
    bytes: number,
    shape: readonly number[],
    type: OnnxType,
    memory: Handle = this.#memoryInfo,
  ): Handle {
    return this.#create(
      "CreateTensorWithDataAsOrtValue",
      memory,
      address,
      BigInt(bytes),
      BigInt64Array.from(shape, BigInt),
      BigInt(shape.length),
      ONNX_TYPE[type],
    );
  }

  /** A set of named inputs and outputs for `run`. */
  binding(session: Handle): Handle {
    return this.#create("CreateIoBinding", session);
  }

  /** Binds an input; a later call for the same name replaces it. */
  bindInput(binding: Handle, name: Uint8Array<ArrayBuffer>, value: Handle): void {
    this.#check("BindInput", binding, name, value);
  }

  /** Binds an output; a later call for the same name replaces it. */
  bindOutput(binding: Handle, name: Uint8Array<ArrayBuffer>, value: Handle): void {
    this.#check("BindOutput", binding, name, value);
  }

  /** Runs on another thread, so timers and signals continue. */
  async run(session: Handle, binding: Handle): Promise<void> {
    const { RunWithBinding } = this.#table.callAsync;
    await this.#checkLater("RunWithBinding", RunWithBinding(session, null, binding));
  }

  /** Runs and waits, for what is short. */
  runNow(session: Handle, binding: Handle): void {
    this.#check("RunWithBinding", session, null, binding);
  }

  /** Frees an object made by this API. */
  release(kind: Releasable, handle: Handle): void {
    this.#table.release[kind](handle);
  }

  #create(name: FunctionName, ...args: Argument[]): Handle {
    const out = new BigUint64Array(1);
    this.#check(name, ...args, out);
    return Deno.UnsafePointer.create(out[0]!)!;
  }

  #check(name: FunctionName, ...args: Argument[]): void {
    this.#throwIfSet(name, this.#table.call[name](...args));
  }

  async #checkLater(name: string, status: Promise<Deno.PointerValue>): Promise<void> {
    await duringNativeCall(status.then((value) => this.#throwIfSet(name, value)));
  }

  #throwIfSet(name: string, status: Deno.PointerValue): void {
    if (!status) return;
    const text = this.#table.errorMessage(status);
    const message = text ? Deno.UnsafePointerView.getCString(text) : "no message";
    this.#table.release.Status(status);
    throw new Error(`ONNX Runtime failed in ${name}: ${message}`);
  }
}

let api: OnnxApi | undefined;

/** The API of this process, loaded at the first call. */
export function onnxApi(): OnnxApi {
  return api ??= new OnnxApi();
}
