/** The files of a model: weights, and what goes with them. */
import type { JsonObject } from "./files.ts";

/** Names that the format of Hugging Face fixes, and ours for ParScale parameters alone. */
export const CONFIG_FILE = "config.json";
export const WEIGHTS_FILE = "model.safetensors";
export const INDEX_FILE = "model.safetensors.index.json";
export const ADAPTER_FILE = "introduced.safetensors";

/** Name of the config of an adapter of PEFT. */
export const PEFT_CONFIG = "adapter_config.json";

/** Tokenizer, generation settings, chat template and licence, copied unchanged when the source has them. */
export const COMPANION_FILES: readonly string[] = [
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "vocab.json",
  "merges.txt",
  "special_tokens_map.json",
  "added_tokens.json",
  "chat_template.jinja",
  "LICENSE",
];

/** Folder of further chat templates, a file each by its name: `tool_use.jinja` is that for tools. */
export const TEMPLATES_FOLDER = "additional_chat_templates";
export const TOOL_TEMPLATE_FILE = `${TEMPLATES_FOLDER}/tool_use.jinja`;

/** Returns whether a path names a GGUF file, which holds weights and companions. */
export function isGgufName(path: string): boolean {
  return /\.gguf$/i.test(path);
}

/** Texts in UTF-8, one after another in one array: 250,000 arrays would take more memory than the file. */
export interface TextList {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly length: number;
  /** Position in `bytes` of the first byte of a text. */
  start(index: number): number;
  /** Position after its last byte. */
  end(index: number): number;
}

/** A `tokenizer.json` whose vocabulary and merges are lists. */
export interface TokenizerLists {
  /** All but the two. */
  readonly settings: JsonObject;
  /** Token of each id. */
  readonly tokens: TextList;
  /** Those of them in the vocabulary; the others are added tokens, or unused. */
  readonly ids: Int32Array;
  /** Two tokens with a space between, by rank. */
  readonly merges: TextList;
}

/** Files beside the weights of one model. */
export interface ModelFiles {
  /** The folder, or the path of the GGUF file. */
  readonly model: string;
  readonly isGguf: boolean;
  /** Name of the format of most weights in a GGUF file, such as Q4_K_M, where it tells. */
  readonly weightFormat?: string | undefined;
  has(name: string): Promise<boolean>;
  /** Bytes of a file that there is. */
  read(name: string, maxBytes?: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Fields of a JSON file; none where there is no such file. */
  json(name: string): Promise<JsonObject>;
  /** Parts of a `tokenizer.json`; undefined where there is such a text itself. */
  readonly lists?: () => TokenizerLists | undefined;
}
