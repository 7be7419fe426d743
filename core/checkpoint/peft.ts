/**
 * LoRA adapters of PEFT: `adapter_config.json` beside `adapter_model.safetensors`.
 *
 *   y = W x + s B A x     A [r, in], B [out, r], s = α / r, or α / √r with `use_rslora`
 *
 * Matrices of attention and MLP may have one. All else that PEFT can add is refused by name.
 */
import { PEFT_CONFIG, WEIGHTS_FILE } from "../base/companions.ts";
import { DataError } from "../base/errors.ts";
import { type JsonObject, readJsonObject, statIfExists } from "../base/files.ts";
import { isParScale, type ModelConfig } from "../model/config.ts";
import { Fields } from "./fields.ts";
import { type FoundTensor, readTensorFile } from "./weight_files.ts";

/** Name that PEFT gives to weights. */
const PEFT_WEIGHTS = "adapter_model.safetensors";

/** An update of a matrix, as PEFT names its parts. */
const UPDATE =
  /^base_model\.model\.(model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(?:gate|up|down)_proj))\.lora_([AB])\.weight$/;

/** Fields that are read, and those that change nothing; any other is refused unless it is empty. */
const KNOWN = new Set([
  ...["peft_type", "r", "lora_alpha", "use_rslora", "bias", "init_lora_weights", "target_modules"],
  ...["base_model_name_or_path", "auto_mapping", "task_type", "revision", "inference_mode"],
  ...["lora_dropout", "peft_version", "megatron_core", "megatron_config", "qalora_group_size"],
  ...["exclude_modules", "layers_pattern", "eva_config", "ensure_weight_tying"],
]);

/** Starts that leave the weights of the base model as they are. */
const INITS: readonly unknown[] = [undefined, null, true, false, "gaussian", "eva", "orthogonal"];

/** Returns whether a folder holds an adapter of PEFT, and not also what it was merged into. */
export async function isPeft(folder: string): Promise<boolean> {
  return await statIfExists(`${folder}/${PEFT_CONFIG}`) !== undefined &&
    await statIfExists(`${folder}/${WEIGHTS_FILE}`) === undefined;
}

/**
 * Reads an adapter of PEFT over a plain model; tensors get the names that LoRA has in a folder of our own.
 * @throws {DataError} for anything but plain LoRA
 */
export async function readPeft(folder: string, base: ModelConfig) {
  const path = `${folder}/${PEFT_CONFIG}`, json = await readJsonObject(path);
  if (isParScale(base)) throw new DataError(`adapter "${folder}" of PEFT needs a plain model`);
  const fields = new Fields(json, path);
  refuseOthers(json, fields);
  const rank = fields.integer("r", 8),
    alpha = fields.within("lora_alpha", { low: 0, high: 1e6 }, 8);
  const root = fields.boolean("use_rslora", false) ? Math.sqrt(rank) : rank;
  const targets = new Set<string>(), found = new Map<string, FoundTensor>();
  const stored = await readTensorFile(`${folder}/${PEFT_WEIGHTS}`);
  for (const tensor of stored.values()) {
    const [, matrix, target, which] = UPDATE.exec(tensor.name) ?? [];
    if (matrix === undefined) {
      throw new DataError(
        `"${folder}" has ${tensor.name}: LoRA of other modules than projections of attention and ` +
          "MLP is not supported",
      );
    }
    targets.add(target!);
    const name = `${matrix}.lora_${which!.toLowerCase()}`;
    found.set(name, { ...tensor, name, shape: [1, ...tensor.shape] });
  }
  const lora = { scale: alpha / root, targets: [...targets].sort() };
  return { own: { loraRank: rank, lora }, found, backboneSha256: undefined };
}

function refuseOthers(json: JsonObject, fields: Fields): void {
  if (json.peft_type !== "LORA") throw fields.error("peft_type", '"LORA"');
  const isEmpty = (value: unknown) =>
    !value || typeof value === "object" && Object.keys(value).length === 0;
  const wrong = (json.bias ?? "none") !== "none"
    ? "bias"
    : !INITS.includes(json.init_lora_weights)
    ? "init_lora_weights"
    : Object.keys(json).find((key) => !KNOWN.has(key) && !isEmpty(json[key]));
  if (wrong === undefined) return;
  throw fields.refusal("of PEFT only plain LoRA is supported", wrong, [
    "merge the adapter with PEFT (`merge_and_unload`), and open the merged model",
  ]);
}
