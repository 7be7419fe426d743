/**
 * The cpu device: programs on ONNX Runtime through its C API.
 *
 * Tensors are JavaScript arrays that ONNX Runtime reads and writes in place: nothing is copied on the
 * way in or out, KV caches are updated where they lie, and runs happen on other threads while the
 * event loop goes on. One session serves all sizes of a model (see `lower.ts`).
 */
import { createHash } from "node:crypto";
import { type MemoryPlan, planMemory } from "../../graph/memory_plan.ts";
import { prepare } from "../../graph/rewrite.ts";
import { elementCount, type Program, tensorBytes, type TensorType } from "../../graph/types.ts";
import {
  type Bindings,
  checkBindings,
  type Device,
  type DeviceTensor,
  type Executable,
  type HostArray,
  type Weights,
} from "../device.ts";
import { HOST_ARRAYS, HostDevice } from "../host_device.ts";
import { cString, type Handle, type OnnxApi, onnxApi, type OnnxType } from "./capi.ts";
import {
  lower,
  type Lowered,
  lowers,
  type MatrixFormat,
  SIZE_ARRAYS,
  updateName,
} from "./lower.ts";
import { Session, weightBytes } from "./session.ts";

/** Choices of the cpu device. */
export interface CpuOptions {
  /** Threads for one run; default: the cores this process may use. */
  readonly threads?: number;
  /** How matrices are kept in memory; default f32. */
  readonly matrices?: MatrixFormat;
}

/** A tensor over an array of ours. The array lives as long as the tensor. */
class OnnxTensor implements DeviceTensor {
  readonly dtype: TensorType["dtype"];
  readonly shape: TensorType["shape"];
  readonly data: HostArray;
  readonly value: Handle;

  constructor(
    api: OnnxApi,
    type: TensorType,
    collect: FinalizationRegistry<Handle>,
    data: HostArray = new HOST_ARRAYS[type.dtype](elementCount(type.shape)),
  ) {
    this.dtype = type.dtype;
    this.shape = type.shape;
    this.data = data;
    const address = Deno.UnsafePointer.of(this.data as Uint8Array<ArrayBuffer>);
    this.value = api.tensor(address, this.data.byteLength, type.shape, type.dtype as OnnxType);
    collect.register(this, this.value);
  }
}

/** See the head of this file. */
export class CpuDevice extends HostDevice implements Device {
  readonly name = "cpu";
  readonly threads: number;
  readonly #matrices: MatrixFormat;
  readonly #api: OnnxApi;
  readonly #sessions = new Map<Weights, Map<string, Session>>();
  readonly #values: FinalizationRegistry<Handle>;
  readonly #bindings: FinalizationRegistry<Handle>;

  /** Loads ONNX Runtime. Throws `EnvironmentError` when that is not possible. */
  constructor({ threads = navigator.hardwareConcurrency, matrices }: CpuOptions = {}) {
    super();
    const api = onnxApi();
    this.#api = api;
    this.threads = threads;
    this.#matrices = matrices ?? { kind: "f32" };
    this.#values = new FinalizationRegistry((handle) => api.release("Value", handle));
    this.#bindings = new FinalizationRegistry((handle) => api.release("IoBinding", handle));
  }

  /** Sessions loaded so far; one per model and head is what the lowering aims for. */
  get sessionCount(): number {
    return [...this.#sessions.values()].reduce((count, map) => count + map.size, 0);
  }

  /**
   * Temporaries are planned as if they lay in one arena; ONNX Runtime keeps one of its own, with some
   * loss between them. It does not know the sizes, so results never take the memory of operands.
   */
  plan(program: Program, weights: Weights): MemoryPlan {
    const { prepared, lowered } = this.#lower(program, weights);
    const plan = planMemory(prepared, { reuseInputs: false });
    let parameters = 0;
    for (const use of lowered.weights.values()) parameters += weightBytes(use);
    for (const [name, type] of prepared.parameters) {
      if (!weights.has(name)) parameters += tensorBytes(type);
    }
    const totalBytes = plan.totalBytes - plan.sections.parameters + parameters;
    return { ...plan, sections: { ...plan.sections, parameters }, totalBytes };
  }

  compile(program: Program, weights: Weights): Promise<Executable> {
    const { prepared, lowered } = this.#lower(program, weights);
    const session = this.#session(lowered, weights);
    const binding = this.#api.binding(session.handle);
    const executable = new CpuExecutable(
      this.#api,
      { program: prepared, weights },
      session,
      binding,
    );
    this.#bindings.register(executable, binding);
    for (const [name, { type, data }] of lowered.sizes) {
      const array = SIZE_ARRAYS[type](data);
      executable.bindConstant(name, array, type);
    }
    return Promise.resolve(executable);
  }

  allocate(type: TensorType): DeviceTensor {
    return new OnnxTensor(this.#api, type, this.#values);
  }

  view(tensor: OnnxTensor, start: number, type: TensorType): DeviceTensor {
    const data = tensor.data.subarray(start, start + elementCount(type.shape));
    return new OnnxTensor(this.#api, type, this.#values, data);
  }

  close(): void {
    for (const sessions of this.#sessions.values()) {
      for (const session of sessions.values()) session.close();
    }
    this.#sessions.clear();
  }

  #lower(program: Program, weights: Weights): { prepared: Program; lowered: Lowered } {
    const prepared = prepare(program, lowers);
    const storedType = (name: string) => weights.get(name)?.dtype as OnnxType | undefined;
    return { prepared, lowered: lower(prepared, { storedType, matrices: this.#matrices }) };
  }

  #session(lowered: Lowered, weights: Weights): Session {
    const sessions = this.#sessions.get(weights) ?? new Map<string, Session>();
    this.#sessions.set(weights, sessions);
    const key = createHash("sha256").update(lowered.bytes).digest("hex");
    const options = { threads: this.threads, matrices: this.#matrices };
    const session = sessions.get(key) ?? new Session(this.#api, lowered, weights, options);
    sessions.set(key, session);
    return session;
  }
}

/** One program on a session, with the tensors bound last. */
class CpuExecutable implements Executable {
  readonly #api: OnnxApi;
  readonly #program: Program;
  readonly #weights: Weights;
  readonly #session: Session;
  readonly #binding: Handle;
  /** What is bound now; also keeps the memory alive. */
  readonly #bound = new Map<string, unknown>();
  readonly #names = new Map<string, Uint8Array<ArrayBuffer>>();

  constructor(
    api: OnnxApi,
    { program, weights }: { program: Program; weights: Weights },
    session: Session,
    binding: Handle,
  ) {
    this.#api = api;
    this.#program = program;
    this.#weights = weights;
    this.#session = session;
    this.#binding = binding;
  }

  /** Binds a tensor that stays the same for all runs. */
  bindConstant(
    name: string,
    data: BigInt64Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Float32Array<ArrayBuffer>,
    type: "i64" | "i32" | "f32",
  ): void {
    const address = Deno.UnsafePointer.of(data);
    const value = this.#api.tensor(address, data.byteLength, [data.length], type);
    this.#api.bindInput(this.#binding, cString(name), value);
    this.#api.release("Value", value); // the binding holds its own reference
    this.#bound.set(name, data);
  }

  async run(bindings: Bindings): Promise<void> {
    checkBindings(this.#program, this.#weights, bindings);
    for (const [name, tensor] of bindings as ReadonlyMap<string, OnnxTensor>) {
      if (this.#bound.get(name) === tensor) continue;
      if (this.#program.outputs.has(name)) {
        this.#api.bindOutput(this.#binding, this.#name(name), tensor.value);
      } else {
        this.#api.bindInput(this.#binding, this.#name(name), tensor.value);
        if (this.#program.updates.has(name)) {
          this.#api.bindOutput(this.#binding, this.#name(updateName(name)), tensor.value);
        }
      }
      this.#bound.set(name, tensor);
    }
    await this.#api.run(this.#session.handle, this.#binding);
  }

  #name(name: string): Uint8Array<ArrayBuffer> {
    const bytes = this.#names.get(name) ?? cString(name);
    this.#names.set(name, bytes);
    return bytes;
  }
}
