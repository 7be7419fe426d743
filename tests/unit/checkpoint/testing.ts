/** Shared by the checkpoint tests: scratch folders, altered configs, hand-made weight files. */
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { encodeHeader } from "../../../core/checkpoint/safetensors.ts";
import { ParscaleError } from "../../../core/base/errors.ts";
import { elementCount, parameterSpecs } from "../../../core/model/parameters.ts";
import { FIXTURES } from "../../fixtures.ts";

export { withScratch } from "../../scratch.ts";

/** Folder of the small models. */
export const MODELS = `${FIXTURES}models`;

/** The seven small Qwen models without rotary scaling. */
export const MODEL_NAMES = [...Deno.readDirSync(MODELS)].map((entry) => entry.name)
  .filter((name) => name.startsWith("qwen") && !name.includes("yarn")).sort();

/** Copies a small model, changing fields of its config; undefined removes a field. */
export function copyModel(name: string, to: string, changes: Record<string, unknown> = {}): void {
  Deno.mkdirSync(to, { recursive: true });
  for (const { name: file } of Deno.readDirSync(`${MODELS}/${name}`)) {
    Deno.copyFileSync(`${MODELS}/${name}/${file}`, `${to}/${file}`);
  }
  const config = JSON.parse(Deno.readTextFileSync(`${to}/config.json`));
  Deno.writeTextFileSync(`${to}/config.json`, JSON.stringify({ ...config, ...changes }));
}

/** The error of the user's making that `work` throws; any other outcome fails the test. */
export async function userError(work: () => unknown): Promise<ParscaleError> {
  try {
    await work();
  } catch (error) {
    if (error instanceof ParscaleError) return error;
    throw error;
  }
  throw new Error("expected an error, but there was none");
}

/** Writes a safetensors file from a header and data bytes. */
export function writeRaw(path: string, header: unknown, data: Uint8Array): void {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + text.length + data.length);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  file.set(data, 8 + text.length);
  Deno.writeFileSync(path, file);
}

/** Header and data of a safetensors file, taken apart. */
export function readRaw(path: string) {
  const bytes = Deno.readFileSync(path);
  const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
  const text = new TextDecoder().decode(bytes.subarray(8, 8 + length));
  // deno-lint-ignore no-explicit-any -- tests put all sorts of nonsense into headers
  return { header: JSON.parse(text) as Record<string, any>, data: bytes.subarray(8 + length) };
}

/** Makes a plain float32 model of at least `bytes`, all zeros, whose weights take no space on disk. */
export function makeLargeModel(folder: string, bytes: number): void {
  const source = `${MODELS}/qwen2-p1-tied-f32/config.json`;
  const json = JSON.parse(Deno.readTextFileSync(source));
  json.vocab_size = Math.ceil(bytes / 4 / json.hidden_size);
  const tensors = parameterSpecs(parseConfig(json, source))
    .map((spec) => ({ ...spec, dtype: "F32", byteLength: 4 * elementCount(spec.shape) }));
  const header = encodeHeader(tensors);
  const data = tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0);
  Deno.mkdirSync(folder, { recursive: true });
  Deno.writeTextFileSync(`${folder}/config.json`, JSON.stringify(json));
  Deno.writeFileSync(`${folder}/model.safetensors`, header);
  Deno.truncateSync(`${folder}/model.safetensors`, header.length + data);
}
