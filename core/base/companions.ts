/** Names of the files of a model: weights, and what goes with them. */

/** Names that the format of Hugging Face fixes, and ours for ParScale parameters alone. */
export const CONFIG_FILE = "config.json";
export const WEIGHTS_FILE = "model.safetensors";
export const INDEX_FILE = "model.safetensors.index.json";
export const ADAPTER_FILE = "introduced.safetensors";

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

/** Returns whether a path names a GGUF file, which holds weights and companions. */
export function isGgufName(path: string): boolean {
  return /\.gguf$/i.test(path);
}
