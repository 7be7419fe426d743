/** NFC is that of the Rust tokenizers library, whose Unicode is older than the runtime's. */
import { assert, assertEquals } from "@std/assert";
import { toNfc } from "../../../core/tokenizer/nfc.ts";

const PATH = new URL("../../../fixtures/golden/tokenizer/nfc.jsonl", import.meta.url);

Deno.test("marks and composites that came later stay as they are", () => {
  const rows: [string, string][] = Deno.readTextFileSync(PATH).trim().split("\n").map((line) =>
    JSON.parse(line)
  );
  assert(rows.length > 500);
  for (const [text, expected] of rows) {
    assertEquals(toNfc(text), expected, JSON.stringify(text));
    // In a longer text, between parts that are composed.
    assertEquals(toNfc(`e\u0301 ${text} e\u0301`), `é ${expected} é`);
  }
  const changed = rows.filter(([text, expected]) => text.normalize("NFC") !== expected);
  assert(changed.length >= 98, `${changed.length} rows tell the versions apart`);
});
