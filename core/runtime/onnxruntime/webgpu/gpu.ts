/**
 * The GPU as ONNX Runtime's WebGPU provider sees it: its memory, and sessions that run on it alone.
 *
 * Takes only a driver and returns memory, copies, and the options every session needs. The library
 * can run what the provider does not know on the processor, with copies to and fro, and does so in
 * silence. Sessions here refuse to, so an op without a kernel is an error.
 */
import { EnvironmentError, OutOfMemoryError } from "../../../base/errors.ts";
import type { DType } from "../../../graph/types.ts";
import { afterNativeCalls } from "../../../base/native_calls.ts";
import { cString } from "../../../base/c_string.ts";
import { type OnnxApi, onnxApi } from "../capi/capi.ts";
import type { Handle } from "../capi/table.ts";
import type { OnnxType } from "../element_types.ts";
import { OnnxModel } from "../lowering/model.ts";
import { Session } from "../session/session.ts";
import { quietly } from "../capi/quiet.ts";

/** Names of the provider and of its memory. */
const [PROVIDER, MEMORY] = ["WebGPU", "WebGPU_Buf"];

const HINTS = [
  "install a Vulkan driver for the GPU, on Debian `apt install libvulkan1 mesa-vulkan-drivers`",
  "VK_ICD_FILENAMES names a driver that is not found by itself",
];

/** Name of the one result of models that `run` takes. */
export const RESULT = "result";

/** Type of a tensor of the library: an element type of ours, or packed codes. */
export interface LibraryType {
  readonly dtype: OnnxType | DType;
  readonly shape: readonly number[];
}

export class Gpu {
  readonly api: OnnxApi;
  /** Has a GPU's memory allocated; sessions share the device. */
  readonly #session: Session;
  readonly #memory: Handle;
  readonly #allocator: Handle;
  /** Host memory whose address the library has. */
  readonly #alive: ArrayBufferView[] = [];

  /**
   * Opens the default GPU.
   * @throws {EnvironmentError} when there is none that the provider can use
   */
  constructor() {
    this.api = onnxApi();
    try {
      this.#session = quietly(() => this.session(identity()));
    } catch (cause) {
      if (!(cause instanceof Error) || cause instanceof EnvironmentError) throw cause;
      const reason = cause.message.replaceAll("\n", " ").replace(/^.*was false\. /, "").trim();
      throw new EnvironmentError(`the webgpu device has no usable GPU: ${reason}`, {
        hints: HINTS,
      });
    }
    this.#memory = this.api.deviceMemory(MEMORY);
    this.#allocator = this.api.allocator(this.#session.handle, this.#memory);
  }

  /** A session without weights. */
  session(model: OnnxModel): Session {
    const none = () => null!;
    const weights = { tensor: none, hostTensor: none, loaded: () => {}, close: () => {} };
    const lowered = { bytes: model.finish(), weights: new Map() };
    const configure = (options: Handle) => this.configure(options);
    return Session.open(this.api, { lowered, weights, configure });
  }

  /** Lets a session run on the GPU, and there alone. */
  configure(options: Handle): void {
    this.api.appendProvider(options, PROVIDER, { enableInt64: "1" });
    this.api.configure(options, "session.disable_cpu_ep_fallback", "1");
  }

  /** Memory for one tensor; what is in it is undefined. */
  allocate(bytes: number): Handle {
    return this.api.allocate(this.#allocator, bytes);
  }

  /** Returns memory of a tensor, not beside a run: the provider's list of free buffers has no lock. */
  free(buffer: Handle): void {
    afterNativeCalls(() => this.api.free(this.#allocator, buffer));
  }

  /** A tensor over memory of the GPU. */
  tensor(buffer: Handle, bytes: number, shape: readonly number[], type: OnnxType): Handle {
    return this.api.tensor(buffer, bytes, shape, type, this.#memory);
  }

  /** Copies host memory into a tensor on the GPU. */
  upload(data: ArrayBufferView, type: LibraryType, target: Handle): void {
    const source = this.hostTensor(data, type);
    this.#finish([source], () => this.api.copy(source, target));
  }

  /** Copies a tensor on the GPU into host memory. */
  download(source: Handle, type: LibraryType, data: ArrayBufferView): void {
    const target = this.hostTensor(data, type);
    this.#finish([target], () => this.api.copy(source, target));
  }

  /** Runs a model of one result; the tensors are released, not their memory. */
  run(session: Session, inputs: Readonly<Record<string, Handle>>, result: Handle): void {
    const binding = this.api.binding(session.handle);
    this.#finish([...Object.values(inputs), result], () => {
      try {
        for (const [name, value] of Object.entries(inputs)) {
          this.api.bindInput(binding, cString(name), value);
        }
        this.api.bindOutput(binding, cString(RESULT), result);
        this.api.runNow(session.handle, binding);
      } finally {
        this.api.release("IoBinding", binding);
      }
    });
  }

  /** A tensor over host memory, which is kept alive until it has been used once. */
  hostTensor(data: ArrayBufferView, { dtype, shape }: LibraryType): Handle {
    this.#alive.push(data);
    const address = Deno.UnsafePointer.of(data as ArrayBufferView<ArrayBuffer>);
    return this.api.tensor(address, data.byteLength, shape, dtype as OnnxType);
  }

  /** Closes what was opened here; memory that was allocated must have been returned. */
  close(): void {
    // After memory that still waits for the end of a run.
    afterNativeCalls(() => {
      this.api.release("Allocator", this.#allocator);
      this.api.release("MemoryInfo", this.#memory);
      this.#session.close();
    });
  }

  #finish(values: readonly Handle[], use: () => void): void {
    try {
      use();
    } finally {
      for (const value of values) this.api.release("Value", value);
      this.#alive.length = 0;
    }
  }
}

/** Messages of the library for a tensor larger than the GPU takes, or for lack of memory. */
const NO_ROOM = /maxStorageBuffer|narrowing_error|out of memory|allocat|device (was |is )?lost/i;

/** An error of the library as one that says what to do, where it is about memory; else as it is. */
export function roomError(error: unknown, action: string): unknown {
  if (!(error instanceof Error) || !NO_ROOM.test(error.message)) return error;
  const reason = error.message.trim().split("Status Message: ").at(-1)!.replace(
    /^.* was false\. /,
    "",
  );
  return new OutOfMemoryError(`cannot ${action} on webgpu: not enough GPU memory (${reason})`, {
    hints: ["use `--dtype f16`, `--quantize q8` or `q4`, a smaller `--batch`, or shorter texts"],
  });
}

/** The smallest program there is, to find out whether there is a GPU. */
function identity(): OnnxModel {
  const model = new OnnxModel();
  model.input("x", "f32", [undefined]);
  model.node("Identity", ["x"], {}, { output: RESULT });
  model.output(RESULT, "f32", [undefined]);
  return model;
}
