/** Bytes of weights in the forms that lowered programs want, for a file or a GPU. */
import { fromF32 } from "../../../base/dtype.ts";
import type { QuantizedTensor, Weight, Weights } from "../../device.ts";
import {
  fullPrecision,
  matrixFormatOf,
  quantizeWeight,
  readRange,
  storedBytes,
  tableFormatOf,
  weightValues,
} from "../../weights.ts";
import type { WeightUse } from "../lowering/lower.ts";
import type { MatrixFormat, QuantizedFormat } from "../../../quant/codes.ts";
import { type Quantized, quantizedFormat, roomFor } from "../../../quant/codes.ts";

/** Forms of codes, by the part they are of. */
export const PARTS: Partial<Record<WeightUse["form"], keyof Quantized>> = {
  blocks: "codes",
  table: "codes",
  scales: "scales",
  offsets: "offsets",
  "table scales": "scales",
};

/** Returns whether rows are read of the codes, which are then not those of a product. */
export function isTable({ form }: WeightUse): boolean {
  return form === "table" || form === "table scales";
}

/** Format of the codes of a weight, in a session with this choice for matrices. */
export function codesFormat(use: WeightUse, weight: Weight, choice: MatrixFormat): QuantizedFormat {
  return isTable(use) ? tableFormatOf(weight)! : quantizedFormat(matrixFormatOf(weight, choice));
}

export class WeightContents {
  readonly #weights: Weights;
  readonly #matrices: MatrixFormat;
  /** The matrix quantised last: its codes and its scales are asked for one after the other. */
  #last: { readonly place: string; readonly quantized: Quantized } | undefined;

  constructor(weights: Weights, matrices: MatrixFormat) {
    this.#weights = weights;
    this.#matrices = matrices;
  }

  /** Name of the bytes of a use: equal ones are one place. */
  place(use: WeightUse): string {
    const { form, parameter } = use, part = PARTS[form];
    if (!part) return `${parameter} ${form}`;
    const format = codesFormat(use, this.#weights.get(parameter)!, this.#matrices);
    return `${parameter} ${part} ${JSON.stringify(format)}`;
  }

  /** Everything of one weight, little-endian. Throws what the file system throws. */
  bytes(use: WeightUse): Uint8Array<ArrayBufferLike> {
    const weight = this.#weights.get(use.parameter)!;
    const { form, type } = use, part = PARTS[form];
    if (part && "codes" in weight && !isTable(use)) return storedPart(weight, use);
    if (part === "codes") return this.#quantized(use).codes;
    if (part) return stored(this.#quantized(use)[part]!, type);
    if (fullPrecision(weight).dtype === use.type) return storedBytes(weight);
    return stored(weightValues(weight), use.type);
  }

  #quantized(use: WeightUse): Quantized {
    const weight = this.#weights.get(use.parameter)!;
    const format = codesFormat(use, weight, this.#matrices);
    const place = `${use.parameter} ${JSON.stringify(format)}`;
    if (this.#last?.place === place) return this.#last.quantized;
    const quantized = roomFor(weight.shape, format);
    quantizeWeight(fullPrecision(weight), format, quantized, undefined);
    this.#last = { place, quantized };
    return quantized;
  }
}

/** Codes as they are in the file, scales in the type asked for. */
function storedPart(weight: QuantizedTensor, { form, type }: WeightUse): Uint8Array {
  if (form === "blocks") return readRange(weight.codes);
  return stored(new Float32Array(readRange(weight.scales).buffer), type);
}

function stored(values: Float32Array, type: WeightUse["type"]): Uint8Array {
  if (type !== "f32" && type !== "f16") throw new TypeError(`cannot store weights as ${type}`);
  return fromF32(values as Float32Array<ArrayBuffer>, type);
}
