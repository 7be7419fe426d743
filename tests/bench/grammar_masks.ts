/**
 * Time of grammars: until the first mask, and of each mask along a valid document.
 *
 *   deno run -A tests/bench/grammar_masks.ts [FOLDER_OR_GGUF_FILE]
 *
 * The tokenizer is that of the model, by default a small one.
 * Rows are JSON.
 */
import { fileURLToPath } from "node:url";
import { Matcher } from "../../core/grammar/matcher.ts";
import { networkOf } from "../../core/grammar/network.ts";
import { schemaGrammar } from "../../core/grammar/schema.ts";
import { tokenBytes } from "../../core/grammar/token_bytes.ts";
import { TokenMasks } from "../../core/grammar/token_masks.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";

const FIXTURE = fileURLToPath(new URL("../../fixtures/models/tiny-qwen2", import.meta.url));

const TEXT = 'She said "go" once. The quick brown fox jumps over the lazy dog, é 🙂\n'.repeat(12);

const properties = Object.fromEntries(
  Array.from({ length: 200 }, (_, i) => [`property_${i}`, { type: i % 2 ? "integer" : "string" }]),
);
const values = Object.fromEntries(
  Object.keys(properties).map((name, i) => [name, i % 2 ? i : "a b"]),
);

const CASES: Readonly<Record<string, readonly [schema: object, document: unknown]>> = {
  "any string": [{ type: "string" }, TEXT],
  "maxLength 255": [{ type: "string", maxLength: 255 }, TEXT.slice(0, 255)],
  "maxLength 4096": [{ type: "string", maxLength: 4096 }, TEXT],
  "minLength 100": [{ type: "string", minLength: 100, maxLength: 300 }, TEXT.slice(0, 290)],
  "200 optional properties": [{ type: "object", properties }, values],
  "any object": [{ type: "object" }, { list: [1, 2, { a: null }], values }],
  "pattern ^[^,]+$": [{ type: "string", pattern: "^[^,]+$" }, TEXT.replaceAll(",", "")],
  "pattern ^[a-z ]{1,200}$": [
    { type: "string", pattern: "^[a-z ]{1,200}$" },
    "the fox ".repeat(22),
  ],
  "list of short strings": [
    { type: "array", maxItems: 500, items: { type: "string", maxLength: 40 } },
    Array.from({ length: 60 }, (_, i) => `item number ${i}`),
  ],
};

const tokenizer = await openTokenizer(Deno.args[0] ?? FIXTURE);
const start = performance.now();
const vocabulary = tokenBytes(tokenizer, tokenizer.vocabSize);
const masks = new TokenMasks(vocabulary, []);
const row = (fields: Record<string, unknown>) => console.log(JSON.stringify(fields));
row({ vocabulary: tokenizer.vocabSize, ms: rounded(performance.now() - start) });

for (const [name, [schema, document]] of Object.entries(CASES)) {
  const from = performance.now();
  const matcher = new Matcher(networkOf(schemaGrammar(schema)), vocabulary, masks);
  matcher.mask(0, []);
  const first = performance.now() - from;
  const tokens = tokenizer.encode(JSON.stringify(document));
  const times = tokens.map((_, length) => {
    const from = performance.now();
    matcher.mask(0, tokens.slice(0, length + 1));
    return performance.now() - from;
  });
  const mean = times.reduce((sum, time) => sum + time, 0) / times.length;
  const most = Math.max(...times);
  row({ name, first_ms: rounded(first), mask_ms: rounded(mean), slowest_ms: rounded(most) });
}

function rounded(ms: number): number {
  return Number(ms.toFixed(3));
}
