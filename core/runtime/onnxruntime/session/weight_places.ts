/**
 * Weights that ONNX Runtime reads from files itself.
 *
 * It maps each tensor and unmaps it as soon as it is packed, so that neither the file nor a copy of it
 * stays in memory beside the packed form. Files must lie in one folder, links resolved; weights in other
 * places are given in memory.
 */
import { basename, dirname } from "node:path";
import { tensorBytes } from "../../../graph/types.ts";
import type { FileRange, Weight, Weights } from "../../device.ts";
import type { OnnxType } from "../element_types.ts";
import type { WeightPlace, WeightUse } from "../lowering/lower.ts";
import { codesInFile, PARTS } from "../lowering/weight_parts.ts";

export class WeightPlaces {
  /** Folder of the files; undefined when no weight lies in a file. */
  readonly folder: string | undefined;
  /** A file in it. */
  readonly placeholder: string | undefined;
  readonly #paths = new Map<string, string>();

  constructor(private readonly weights: Weights) {
    const all = [...weights.values()], codes = all.find((weight) => "codes" in weight);
    const first = codes ? fileOf(codes) : all.map(fileOf).find((path) => path !== undefined);
    if (first === undefined) return;
    this.folder = dirname(this.#realPath(first));
    this.placeholder = basename(this.#realPath(first));
  }

  /** Returns where the library reads a weight in this form; undefined when it must be given. */
  readonly find = (use: WeightUse): WeightPlace | undefined => {
    const weight = this.weights.get(use.parameter);
    const range = weight && rangeOf(weight, use);
    if (!range?.path) return undefined;
    const path = this.#realPath(range.path);
    if (dirname(path) !== this.folder) return undefined;
    const at = { location: basename(path), offset: range.offset, length: range.byteLength };
    return { at, type: range.type };
  };

  #realPath(path: string): string {
    return this.#paths.getOrInsertComputed(path, Deno.realPathSync);
  }
}

/** Path of a weight in a file; a plan may have weights without one, which are types alone. */
function fileOf(weight: Weight): string | undefined {
  if ("codes" in weight) return weight.codes.path;
  return "path" in weight && weight.path !== "" ? weight.path : undefined;
}

/** Bytes that are in this form, or in one that a cast makes of it. */
function rangeOf(
  weight: Weight,
  { form, type }: WeightUse,
): FileRange & { readonly type: OnnxType } | undefined {
  const part = PARTS[form];
  if (part) {
    const range = codesInFile(weight, { form }), stored = part === "codes" ? "u8" : "f32";
    return range && type === stored ? { ...range, type } : undefined;
  }
  const stored = "codes" in weight ? weight.stored : weight;
  if (!stored || !("path" in stored) || stored.encoding) return undefined;
  // Only matrices are cast: the session packs the result and forgets it.
  if (stored.dtype !== type && !(form === "matrix" && type === "f32")) return undefined;
  return { ...stored, byteLength: tensorBytes(stored), type: stored.dtype as OnnxType };
}
