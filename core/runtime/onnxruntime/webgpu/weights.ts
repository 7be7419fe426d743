/**
 * Weights in the GPU's memory, each once in every form that programs want, for all sessions.
 *
 * One weight at a time is cast or quantized in host memory and copied over.
 */
import type { Weights } from "../../device.ts";
import type { Handle } from "../capi/table.ts";
import type { WeightUse } from "../lowering/lower.ts";
import type { MatrixFormat } from "../../../quant/codes.ts";
import { type Initializers, weightBytes } from "../session/session.ts";
import { WeightContents } from "../session/weight_contents.ts";
import type { Gpu } from "./gpu.ts";

export class GpuWeights implements Initializers {
  readonly #contents: WeightContents;
  readonly #loaded = new Map<string, { readonly buffer: Handle; readonly value: Handle }>();
  /** Copies in host memory, by the same keys. */
  readonly #host = new Map<string, { readonly bytes: Uint8Array; readonly value: Handle }>();

  constructor(private readonly gpu: Gpu, weights: Weights, matrices: MatrixFormat) {
    this.#contents = new WeightContents(weights, matrices);
  }

  tensor(use: WeightUse): Handle {
    const key = keyOf(use);
    let known = this.#loaded.get(key);
    if (!known) {
      // First, as it may fail, and what is kept here is not read again.
      const contents = this.#contents.bytes(use), bytes = weightBytes(use);
      const buffer = this.gpu.allocate(bytes);
      const value = this.gpu.tensor(buffer, bytes, use.shape, use.type);
      known = { buffer, value };
      this.#loaded.set(key, known);
      this.gpu.upload(contents, { dtype: use.type, shape: use.shape }, value);
    }
    return known.value;
  }

  hostTensor(use: WeightUse): Handle {
    return this.#host.getOrInsertComputed(keyOf(use), () => {
      const bytes = Uint8Array.from(this.#contents.bytes(use));
      const address = Deno.UnsafePointer.of(bytes);
      return { bytes, value: this.gpu.api.tensor(address, bytes.length, use.shape, use.type) };
    }).value;
  }

  loaded(): void {}

  /** A session is closed; others may continue. */
  close(): void {}

  /** Frees the memory, once no session uses it. */
  free(): void {
    for (const { buffer, value } of this.#loaded.values()) {
      this.gpu.api.release("Value", value);
      this.gpu.free(buffer);
    }
    this.#loaded.clear();
    for (const { value } of this.#host.values()) this.gpu.api.release("Value", value);
    this.#host.clear();
  }
}

function keyOf({ parameter, form, type }: WeightUse): string {
  return `${parameter} ${form} ${type}`;
}
