/** Forms of a weight that are parts of its codes. */
import { type MatrixFormat, type QuantizedFormat, quantizedFormat } from "../../../quant/codes.ts";
import type { FileRange, Weight } from "../../device.ts";
import { matrixFormatOf, tableFormatOf } from "../../weights.ts";
import type { WeightUse } from "./lower.ts";

type Form = Pick<WeightUse, "form">;

/** Part of a quantized matrix that a form holds. */
export const PARTS: Partial<Record<WeightUse["form"], "codes" | "scales" | "offsets">> = {
  blocks: "codes",
  table: "codes",
  scales: "scales",
  offsets: "offsets",
  "table scales": "scales",
};

/** Returns whether rows are read, in the format of the table. */
export function isTable({ form }: Form): boolean {
  return form === "table" || form === "table scales";
}

/** Format of the codes of a weight, in a session with this choice for matrices. */
export function codesFormat(use: Form, weight: Weight, choice: MatrixFormat): QuantizedFormat {
  return isTable(use) ? tableFormatOf(weight)! : quantizedFormat(matrixFormatOf(weight, choice));
}

/** Returns the part of a matrix in codes that has this form; undefined where it must be made. */
export function codesInFile(weight: Weight, use: Form): FileRange | undefined {
  const part = PARTS[use.form];
  if (!part || !("codes" in weight)) return undefined;
  const { kind, block, offsets } = weight.format;
  const table = isTable(use) ? tableFormatOf(weight) : weight.format;
  const isSame = table?.kind === kind && table.block === block && table.offsets === offsets;
  return isSame ? weight[part] : undefined;
}
