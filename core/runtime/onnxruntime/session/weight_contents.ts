/** Bytes of weights in the forms that lowered programs want, for a file or a GPU. */
import { fromF32 } from "../../../base/dtype.ts";
import type { Weights } from "../../device.ts";
import {
  fullPrecision,
  quantizeWeight,
  readRange,
  storedBytes,
  weightValues,
} from "../../weights.ts";
import type { WeightUse } from "../lowering/lower.ts";
import { codesFormat, isTable, PARTS } from "../lowering/weight_parts.ts";
import { type MatrixFormat, type Quantized, roomFor } from "../../../quant/codes.ts";

export class WeightContents {
  /** The matrix quantised last: its codes and its scales are asked for one after the other. */
  #last: { readonly place: string; readonly quantized: Quantized } | undefined;

  constructor(private readonly weights: Weights, private readonly matrices: MatrixFormat) {
  }

  /** Name of the bytes of a use: equal ones are one place. */
  place(use: WeightUse): string {
    const { form, parameter } = use, part = PARTS[form];
    if (!part) return `${parameter} ${form}`;
    const format = codesFormat(use, this.weights.get(parameter)!, this.matrices);
    return `${parameter} ${part} ${JSON.stringify(format)}`;
  }

  /** Everything of one weight, little-endian. Throws what the file system throws. */
  bytes(use: WeightUse): Uint8Array<ArrayBufferLike> {
    const weight = this.weights.get(use.parameter)!;
    const { form, type } = use, part = PARTS[form];
    if (part && "codes" in weight && !isTable(use)) {
      const bytes = readRange(weight[part]!);
      return part === "codes" ? bytes : stored(new Float32Array(bytes.buffer), type);
    }
    if (part === "codes") return this.#quantized(use).codes;
    if (part) return stored(this.#quantized(use)[part]!, type);
    if (fullPrecision(weight).dtype === use.type) return storedBytes(weight);
    return stored(weightValues(weight), use.type);
  }

  #quantized(use: WeightUse): Quantized {
    const weight = this.weights.get(use.parameter)!;
    const format = codesFormat(use, weight, this.matrices);
    const place = `${use.parameter} ${JSON.stringify(format)}`;
    if (this.#last?.place === place) return this.#last.quantized;
    const quantized = roomFor(weight.shape, format);
    quantizeWeight(fullPrecision(weight), format, quantized, undefined);
    this.#last = { place, quantized };
    return quantized;
  }
}

function stored(values: Float32Array, type: WeightUse["type"]): Uint8Array {
  if (type !== "f32" && type !== "f16") throw new TypeError(`cannot store weights as ${type}`);
  return fromF32(values as Float32Array<ArrayBuffer>, type);
}
