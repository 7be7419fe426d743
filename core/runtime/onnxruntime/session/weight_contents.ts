/**
 * The bytes of weights in the forms that lowered programs want, to be written into a
 * file, or onto a GPU.
 */
import { narrow } from "../../../base/dtype.ts";
import type { Weights } from "../../device.ts";
import { storedBytes, storedType, weightValues } from "../../weights.ts";
import type { WeightUse } from "../lowering/lower.ts";
import type { MatrixFormat } from "../quantized/quantize.ts";
import { packing, type Quantized, quantizedFormat, quantizeStored } from "../quantized/quantize.ts";

export class WeightContents {
  readonly #weights: Weights;
  readonly #matrices: MatrixFormat;
  /** The matrix quantised last: its codes and its scales are asked for one after the other. */
  #last: { readonly parameter: string; readonly quantized: Quantized } | undefined;

  constructor(weights: Weights, matrices: MatrixFormat) {
    this.#weights = weights;
    this.#matrices = matrices;
  }

  /** Everything of one weight, little-endian. Throws what the file system throws. */
  bytes(use: WeightUse): Uint8Array<ArrayBufferLike> {
    const weight = this.#weights.get(use.parameter)!;
    if (use.form === "blocks") return this.#quantized(use.parameter).codes;
    if (use.form === "scales") return stored(this.#quantized(use.parameter).scales, use.type);
    if (weight.dtype === use.type) return storedBytes(weight);
    return stored(weightValues(weight), use.type);
  }

  #quantized(parameter: string): Quantized {
    if (this.#last?.parameter === parameter) return this.#last.quantized;
    const format = quantizedFormat(this.#matrices);
    const weight = this.#weights.get(parameter)!;
    const { rows, blocks, rowBytes } = packing(weight.shape, format);
    const quantized = {
      codes: new Uint8Array(rows * rowBytes),
      scales: new Float32Array(rows * blocks),
    };
    quantizeStored(storedBytes(weight), storedType(weight), weight.shape, format, quantized);
    this.#last = { parameter, quantized };
    return quantized;
  }
}

function stored(values: Float32Array, type: WeightUse["type"]): Uint8Array {
  if (type !== "f32" && type !== "f16") throw new TypeError(`cannot store weights as ${type}`);
  return narrow(values as Float32Array<ArrayBuffer>, type);
}
