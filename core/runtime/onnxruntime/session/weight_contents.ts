/**
 * The bytes of weights in the forms that lowered programs want, to be written into a
 * file, or onto a GPU.
 */
import { fromF32 } from "../../../base/dtype.ts";
import type { QuantizedTensor, Weights } from "../../device.ts";
import {
  fullPrecision,
  matrixFormatOf,
  quantizeWeight,
  readRange,
  storedBytes,
  weightValues,
} from "../../weights.ts";
import type { WeightUse } from "../lowering/lower.ts";
import type { MatrixFormat } from "../../../quant/codes.ts";
import { type Quantized, quantizedFormat, roomFor } from "../../../quant/codes.ts";

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
    const { form, parameter, type } = use;
    const isQuantized = form === "blocks" || form === "scales" || form === "offsets";
    if (isQuantized && "codes" in weight) return storedPart(weight, use);
    if (form === "blocks") return this.#quantized(parameter).codes;
    if (form === "scales" || form === "offsets") {
      return stored(this.#quantized(parameter)[form]!, type);
    }
    if (fullPrecision(weight).dtype === use.type) return storedBytes(weight);
    return stored(weightValues(weight), use.type);
  }

  #quantized(parameter: string): Quantized {
    if (this.#last?.parameter === parameter) return this.#last.quantized;
    const weight = this.#weights.get(parameter)!;
    const format = quantizedFormat(matrixFormatOf(weight, this.#matrices));
    const quantized = roomFor(weight.shape, format);
    quantizeWeight(fullPrecision(weight), format, quantized, undefined);
    this.#last = { parameter, quantized };
    return quantized;
  }
}

/** Codes as they are in the file, scales in the type asked for. */
function storedPart(weight: QuantizedTensor, { form, type }: WeightUse): Uint8Array {
  if (form === "blocks") return readRange(weight.codes);
  const numbers = form === "offsets" ? weight.offsets! : weight.scales;
  return stored(new Float32Array(readRange(numbers).buffer), type);
}

function stored(values: Float32Array, type: WeightUse["type"]): Uint8Array {
  if (type !== "f32" && type !== "f16") throw new TypeError(`cannot store weights as ${type}`);
  return fromF32(values as Float32Array<ArrayBuffer>, type);
}
