/**
 * End tokens of a model folder: those of `generation_config.json` first, then of `config.json`, then the
 * tokenizer's own. vLLM and llama.cpp end an answer at any of them, too.
 */
import { isObject, jsonValue, openRegularFile } from "../base/files.ts";
import type { ModelFiles } from "../base/companions.ts";
import { parseTokenIds } from "./config.ts";

/** Bytes of `tokenizer.json` in which its added tokens are looked for; they stand before the vocabulary. */
const HEAD_BYTES = 1 << 20;

/** Returns the ids; `ofConfig` are those of `config.json`. */
export async function findEndTokens(
  files: ModelFiles,
  ofConfig: readonly number[],
): Promise<number[]> {
  const name = "generation_config.json";
  const { eos_token_id } = await files.json(name);
  const ofGeneration = parseTokenIds(eos_token_id, "eos_token_id", `${files.model}/${name}`);
  // The metadata of a GGUF file has all of them in one list.
  const ofTokenizer = files.isGguf ? [] : await tokenizerEnd(files);
  return [...new Set([...ofGeneration, ...ofConfig, ...ofTokenizer])];
}

/** Id of the tokenizer's `eos_token`, without reading its vocabulary; empty where the files do not tell. */
async function tokenizerEnd(files: ModelFiles): Promise<number[]> {
  const config = { ...await files.json("special_tokens_map.json") };
  Object.assign(config, await files.json("tokenizer_config.json"));
  const { eos_token: token, added_tokens_decoder: decoder } = config;
  const content = isObject(token) ? token.content : token;
  if (typeof content !== "string") return [];
  const isToken = (entry: unknown) => isObject(entry) && entry.content === content;
  const listed = isObject(decoder) && Object.entries(decoder).find(([, entry]) => isToken(entry));
  if (listed) return validIds(Number(listed[0]));
  const added = (await addedTokens(files)).find(isToken);
  return validIds(added?.id ?? (await files.json("added_tokens.json"))[content]);
}

/** Objects of the list `added_tokens` in `tokenizer.json`. */
async function addedTokens({ model, has }: ModelFiles): Promise<{ readonly id?: unknown }[]> {
  const path = `${model}/tokenizer.json`;
  if (!await has("tokenizer.json")) return [];
  using file = openRegularFile(path);
  const head = new Uint8Array(HEAD_BYTES), length = file.readSync(head) ?? 0;
  const [, list = ""] = new TextDecoder().decode(head.subarray(0, length)).split(
    '"added_tokens"',
    2,
  );
  const objects = list.matchAll(/\{[^{}]*\}/g).map(([text]) => jsonValue(text)).filter(isObject);
  return [...objects];
}

function validIds(id: unknown): number[] {
  return Number.isSafeInteger(id) && (id as number) >= 0 ? [id as number] : [];
}
