/** Opens a model in one GGUF file or its shards, as if it were a Hugging Face folder. */
import { existsSync } from "node:fs";
import { basename } from "node:path";
import type { ModelFiles } from "../../base/companions.ts";
import { DataError } from "../../base/errors.ts";
import type { JsonObject } from "../../base/files.ts";
import { type FoundTensor, listSome } from "../weight_files.ts";
import { type GgufHead, readGgufHead } from "./head.ts";
import { configOf, tensorsOf } from "./model.ts";
import {
  generationConfig,
  hasTokenizer,
  tokenizerConfig,
  tokenizerJson,
  tokenizerLists,
  tokenOf,
} from "./tokenizer.ts";

/** Identifier of the licence, as the front matter of a model card has it. */
const LICENCE = "general.license";

/** Names of `general.file_type`, as llama.cpp numbers them. */
const FILE_TYPES: readonly (string | undefined)[] =
  "F32,F16,Q4_0,Q4_1,,,,Q8_0,Q5_0,Q5_1,Q2_K,Q3_K_S,Q3_K_M,Q3_K_L,Q4_K_S,Q4_K_M,Q5_K_S,Q5_K_M,Q6_K"
    .split(",");

/** A model as its folder would have it. */
export interface GgufModel {
  /** Fields of `config.json`. */
  readonly configJson: JsonObject;
  readonly found: ReadonlyMap<string, FoundTensor>;
  readonly files: Omit<ModelFiles, "json">;
}

/** Opens a model; reads no weights. */
export function openGguf(path: string, first: GgufHead = readGgufHead(path)): GgufModel {
  const head = withShards(path, first);
  const config = configOf(head), found = tensorsOf(head, config);
  const { metadata } = head;
  const bos_token_id = hasTokenizer(metadata) ? tokenOf(metadata, "bos") : undefined;
  const configJson = { ...config, bos_token_id, eos_token_id: tokenOf(metadata, "eos") };
  return { configJson, found, files: ggufFiles(path, first, () => configJson) };
}

/** The files that a folder would have beside its weights. */
export function ggufFiles(
  path: string,
  head: GgufHead = readGgufHead(path),
  configJson = () => openGguf(path, head).configJson,
): Omit<ModelFiles, "json"> {
  const { metadata } = head;
  const text = (text: string) => new TextEncoder().encode(text);
  const json = (value: JsonObject) => text(JSON.stringify(value, null, 2) + "\n");
  const files: Readonly<Record<string, () => Uint8Array<ArrayBuffer>>> = {
    "config.json": () => json(configJson()),
    ...(hasTokenizer(metadata)
      ? {
        "tokenizer.json": () => tokenizerJson(metadata),
        "tokenizer_config.json": () => json(tokenizerConfig(metadata)),
        "generation_config.json": () => json(generationConfig(metadata)),
      }
      : {}),
    ...(metadata.has(LICENCE)
      ? { "README.md": () => text(`---\nlicense: ${metadata.text(LICENCE)}\n---\n`) }
      : {}),
  };
  return {
    model: path,
    isGguf: true,
    weightFormat: FILE_TYPES[metadata.optionalInteger("general.file_type") ?? -1] || undefined,
    has: (name: string) => Promise.resolve(Object.hasOwn(files, name)),
    read: async (name: string) => await files[name]!(),
    lists: () => tokenizerLists(metadata),
  };
}

/** The head of the first file, with the tensors of all shards that belong to it. */
function withShards(path: string, head: GgufHead): GgufHead {
  const { metadata } = head;
  const count = metadata.integer("split.count", 1);
  if (count <= 1) return head;
  const [, stem, part, ending] = /^(.*)-(\d{5})-of-\d{5}(\.gguf)$/is.exec(path) ?? [];
  const digits = (value: number) => String(value).padStart(5, "0");
  const nameOf = (no: number) => `${stem}-${digits(no + 1)}-of-${digits(count)}${ending}`;
  if (stem === undefined) {
    throw new DataError(`"${path}" is one of ${count} files, and its name does not say which`, {
      hints: [`rename them NAME-00001-of-${digits(count)}.gguf and so on, and pass the first`],
    });
  }
  if (part !== digits(1) || metadata.integer("split.no", 0) !== 0) {
    throw new DataError(`"${path}" is not the first of its ${count} files`, {
      hints: [`pass "${nameOf(0)}"`],
    });
  }
  if (count > 99_999) throw metadata.error("split.count", "at most 99999");
  const others = Array.from({ length: count - 1 }, (_, i) => nameOf(i + 1));
  const missing = others.filter((name) => !existsSync(name));
  if (missing.length > 0) {
    const verb = missing.length === 1 ? "is" : "are";
    throw new DataError(
      `"${path}" is incomplete: ${missing.length} of its ${count} files ${verb} missing`,
      { hints: [`copy ${listSome(missing.map((name) => basename(name)))} into the same folder`] },
    );
  }
  const tensors = new Map(head.tensors);
  for (const [i, name] of others.entries()) {
    const shard = readGgufHead(name);
    if (shard.metadata.integer("split.no", -1) !== i + 1) {
      throw shard.metadata.error("split.no", `${i + 1}`);
    }
    for (const [tensor, info] of shard.tensors) {
      if (tensors.has(tensor)) throw new DataError(`"${name}" has tensor "${tensor}" again`);
      tensors.set(tensor, info);
    }
  }
  const expected = metadata.integer("split.tensors.count", tensors.size);
  if (tensors.size === expected) return { metadata, tensors };
  throw new DataError(
    `the ${count} files of "${path}" have ${tensors.size} tensors, expected ${expected}`,
    { hints: ["download all of them again"] },
  );
}
