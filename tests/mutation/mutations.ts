/** Small changes of the product, each with the tests that must fail under it. */

/** One change: `from` occurs once in the file. */
export interface Mutation {
  readonly name: string;
  readonly file: string;
  readonly from: string;
  readonly to: string;
  readonly tests: readonly string[];
}

type Change = readonly [name: string, from: string, to: string];

/** Changes of one file that the same tests see; paths of tests are below `tests`. */
function changesOf(file: string, tests: string, ...changes: Change[]): Mutation[] {
  const paths = tests.split(" ").map((path) => `tests/${path}`);
  return changes.map(([name, from, to]) => ({ name, file, from, to, tests: paths }));
}

/** All of them, by file. */
export const MUTATIONS: readonly Mutation[] = [
  ...changesOf(
    "core/generate/scheduler.ts",
    "device/generate/free_test.ts",
    [
      "the cache of a prefill group that failed is never freed",
      `error };\n      group[Symbol.dispose]();`,
      `error };`,
    ],
  ),
  ...changesOf(
    "core/generate/prefix_cache.ts",
    "unit/generate/prefix_cache_test.ts",
    ["first in, first out", "    this.#entries.add(entry);\n    target", "    target"],
    ["a whole prompt counts as shared", "tokens.length - 1;", "tokens.length;"],
  ),
  ...changesOf(
    "core/serve/service.ts",
    "device/serve/service_test.ts",
    [
      "a scheduler goes on after a failure of the engine",
      "hosted.scheduler = this.#schedulerOf(hosted.model);",
      "",
    ],
  ),
  ...changesOf(
    "core/serve/documents.ts",
    "unit/serve/documents_test.ts",
    [
      "usage counts a prompt once per choice",
      "sum([...prompts.keys()].map(({ tokens }) => tokens.length))",
      "sum(choices.map(({ prompt }) => prompt.tokens.length))",
    ],
  ),
  ...changesOf(
    "core/serve/handler.ts",
    "unit/serve/handler_test.ts",
    ["chunked bodies have no limit", "(length += part.length) > MAX_BODY", "false"],
  ),
  ...changesOf(
    "core/train/trainable.ts",
    "unit/train/trainable_test.ts",
    ["weight decay on the biases of streams", ` && !name.endsWith("bias")`, ""],
    ["weight decay on norms", "shape.length > 1 && ", ""],
    ["static weights train nothing", ` || name !== "model.aggregate_layer.2.bias"`, " || true"],
  ),
  ...changesOf(
    "core/data/batches.ts",
    "unit/data/batches_test.ts",
    ["shares of a mixture computed one row late", "this.#row + 1", "this.#row"],
    ["a cursor forgets the rows of a source", "this.#taken[index] = place.rows", ""],
    ["a cursor of other data is taken", "found !== fingerprint)", "false)"],
  ),
  ...changesOf(
    "core/hub/download.ts",
    "unit/hub/download_test.ts",
    [
      "a content of the wrong size counts as downloaded",
      "(await statIfExists(blob))?.size === file.size",
      "(await statIfExists(blob)) !== undefined",
    ],
  ),
  ...changesOf(
    "core/hub/blob.ts",
    "unit/hub/download_test.ts",
    ["hashes are not compared", "found === undefined || found === fetching.file.oid", "true"],
    [
      "a range that begins elsewhere is taken",
      "status === 206 && headers",
      "status !== 206 || headers",
    ],
  ),
  ...changesOf(
    "core/model/rope_frequencies.ts",
    "unit/model/rope_frequencies_test.ts",
    ["YaRN clamps one pair too early", ": last, D - 1)", ": last, D - 2)"],
    ["YaRN interpolates fast pairs", "fround(1 - ramp)", "fround(ramp)"],
    [
      "Llama 3 divides short wavelengths",
      "originalContext / high) return frequency",
      "originalContext / high) return frequency / factor",
    ],
  ),
  ...changesOf(
    "core/checkpoint/safetensors.ts",
    "unit/checkpoint/safetensors_test.ts",
    ["bytes behind the last tensor", "end !== fileSize", "end > fileSize"],
    ["gaps between tensors", "entry.offset !== end", "entry.offset < end"],
    ["tensors that overlap", "entry.offset !== end", "entry.offset > end"],
    ["bytes that do not fit the shape", "byteLength * 8 !== ", "byteLength * 8 < "],
    ["a header of another type than F32, BF16 or F16 counts double", "U8: 8,", "U8: 16,"],
  ),
  ...changesOf(
    "core/checkpoint/write.ts",
    "unit/checkpoint/write_test.ts",
    ["written files are not synced", "    await file.sync();\n", ""],
  ),
  ...changesOf(
    "core/checkpoint/folder.ts",
    "unit/checkpoint/folder_test.ts",
    ["a failed swap leaves no folder", "if (moved) await rename(replaced, path);", ""],
  ),
  ...changesOf(
    "core/tokenizer/word_splitter.ts",
    "unit/tokenizer/word_splitter_test.ts",
    ["'rE is no contraction", "text.charCodeAt(at + 1) | bit", "text.charCodeAt(at + 1)"],
    ["capitals begin no contraction", "text.charCodeAt(at) | bit", "text.charCodeAt(at)"],
    ["one digit more in a word", "count = 1; count < digits", "count = 0; count < digits"],
  ),
  ...changesOf(
    "core/tokenizer/added_tokens.ts",
    "unit/tokenizer/added_tokens_test.ts",
    ["the shorter of two tokens wins", "b.length - a.length", "a.length - b.length"],
    ["blanks on the left stay", "if (token.lstrip)", "if (false)"],
  ),
  ...changesOf(
    "core/graph/derivatives.ts",
    "device/ops/gradients_test.ts",
    ["at a tie of max each gets all", "dy.div(ones.sum(axis))", "dy"],
    ["the derivative of a quotient", "[da, da.mul(y).mul(-1)]", "[da, da.mul(y)]"],
    ["the derivative of a sigmoid", "sub(y))))", "add(y))))"],
  ),
  ...changesOf(
    "core/generate/logit_rules.ts",
    "unit/generate/logit_rules_test.ts",
    ["frequency counts once", "frequencyPenalty * count", "frequencyPenalty"],
    ["presence is free", " + presencePenalty;", ";"],
    ["biases multiply", "changed[token]! += bias", "changed[token]! *= bias"],
    ["a positive score is multiplied", "score / repetitionPenalty", "score * repetitionPenalty"],
    ["masks ignore the last token of a word", "32 * word + 32)", "32 * word + 31)"],
  ),
  ...changesOf(
    "core/serve/tool_calls.ts",
    "unit/serve/tool_calls_test.ts",
    ["brackets in texts count", "else if (this.#inString)", "else if (false)"],
    ["a mark that is cut is sent at once", "length + before.length", "before.length"],
    ["a cut call is lost", "this.#format.trigger + this.#held", "this.#format.trigger"],
  ),
  ...changesOf(
    "core/grammar/source.ts",
    "device/generate/json_schema_test.ts",
    ["keywords that no grammar enforces pass", "UNSUPPORTED.has(keyword)", "false"],
    ["names in a schema are keywords", "NAMED.has(keyword)", "false"],
    ["any depth is taken", "jsonDepth(text) > MAX_DEPTH", "false"],
  ),
  ...changesOf(
    "core/grammar/engine.ts",
    "device/generate/json_schema_test.ts",
    ["others are lost with a broken library", "if (this.#pending.length > 0) this.#start();", ""],
  ),
];
