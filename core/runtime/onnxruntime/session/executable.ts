/**
 * One program on a session, with the tensors bound last.
 *
 * Binding costs more than running a small program, so a name is bound anew only when its tensor is
 * another one.
 */
import type { Program } from "../../../graph/program.ts";
import {
  type Bindings,
  checkBindings,
  type DeviceTensor,
  type Executable,
  type Weights,
} from "../../device.ts";
import { cString } from "../../../base/c_string.ts";
import type { OnnxApi } from "../capi/capi.ts";
import type { Handle } from "../capi/table.ts";
import { type Lowered, SIZE_ARRAYS, updateName } from "../lowering/lower.ts";
import type { Session } from "./session.ts";

/** A tensor of a device that computes by ONNX Runtime. */
export interface OnnxValue extends DeviceTensor {
  readonly value: Handle;
}

/** Frees bindings of collected programs. */
export function bindingRegistry(api: OnnxApi): FinalizationRegistry<Handle> {
  return new FinalizationRegistry((handle) => api.release("IoBinding", handle));
}

export class OnnxExecutable implements Executable {
  readonly #program: Program;
  readonly #weights: Weights;
  readonly #binding: Handle;
  /** Tensors bound last. A program that is kept ready must not keep the caches of earlier runs. */
  readonly #bound = new Map<string, WeakRef<OnnxValue>>();
  /** Tensors of the run under way, whose memory must stay. */
  #running: Bindings | undefined;
  /** Contents of what depends on the sizes alone. */
  readonly #constants: unknown[] = [];
  readonly #names = new Map<string, Uint8Array<ArrayBuffer>>();

  /** Binds what depends on the program's sizes alone. */
  constructor(
    private readonly api: OnnxApi,
    { program, lowered, weights }: { program: Program; lowered: Lowered; weights: Weights },
    private readonly session: Session,
    registry: FinalizationRegistry<Handle>,
  ) {
    this.#program = program;
    this.#weights = weights;
    this.#binding = api.binding(session.handle);
    registry.register(this, this.#binding);
    for (const [name, { type, data }] of lowered.sizes) {
      this.#bindConstant(name, SIZE_ARRAYS[type](data), type);
    }
  }

  async run(bindings: Bindings): Promise<void> {
    checkBindings(this.#program, this.#weights, bindings);
    const { handle } = this.session;
    for (const [name, tensor] of bindings as ReadonlyMap<string, OnnxValue>) {
      if (this.#bound.get(name)?.deref() === tensor) continue;
      if (this.#program.outputs.has(name)) {
        this.api.bindOutput(this.#binding, this.#name(name), tensor.value);
      } else {
        this.api.bindInput(this.#binding, this.#name(name), tensor.value);
        if (this.#program.updates.has(name)) {
          this.api.bindOutput(this.#binding, this.#name(updateName(name)), tensor.value);
        }
      }
      this.#bound.set(name, new WeakRef(tensor));
    }
    this.#running = bindings;
    try {
      await this.session.during(() => this.api.run(handle, this.#binding));
    } finally {
      this.#running = undefined;
    }
  }

  #bindConstant(
    name: string,
    data: BigInt64Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Float32Array<ArrayBuffer>,
    type: "i64" | "i32" | "f32",
  ): void {
    const address = Deno.UnsafePointer.of(data);
    const value = this.api.tensor(address, data.byteLength, [data.length], type);
    this.api.bindInput(this.#binding, cString(name), value);
    this.api.release("Value", value); // the binding holds its own reference
    this.#constants.push(data);
  }

  #name(name: string): Uint8Array<ArrayBuffer> {
    return this.#names.getOrInsertComputed(name, cString);
  }
}
