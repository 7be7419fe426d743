/** Files that go with the weights of a model: tokenizer, generation settings, chat template. */

/** Copied unchanged when the source has them. */
export const COMPANION_FILES: readonly string[] = [
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "vocab.json",
  "merges.txt",
  "special_tokens_map.json",
  "added_tokens.json",
  "chat_template.jinja",
];

/** Returns whether a path names a GGUF file, which holds weights and companions. */
export function isGgufName(path: string): boolean {
  return /\.gguf$/i.test(path);
}
