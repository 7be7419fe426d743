/** Bits per weight of files that hold quantized ones. */
import { countShape } from "../../../core/analysis/cost.ts";
import type { ModelFiles } from "../../../core/base/companions.ts";
import { isObject, type JsonObject } from "../../../core/base/files.ts";
import { QUANTIZATION_KEY } from "../../../core/checkpoint/quantization.ts";
import type { ModelConfig } from "../../../core/model/config.ts";

/** Bits of a GGUF file, or of a folder's matrices; undefined for full precision, and for a file of several. */
export async function weightBitsOf(
  { [QUANTIZATION_KEY]: entry }: JsonObject,
  config: ModelConfig,
  files: ModelFiles | undefined,
): Promise<number | undefined> {
  if (!files?.isGguf) return isObject(entry) ? Number(entry.bits) || undefined : undefined;
  if (/-of-\d+\.gguf$/i.test(files.model)) return undefined;
  return 8 * (await Deno.stat(files.model)).size / countShape(config, 1, 0).total;
}
