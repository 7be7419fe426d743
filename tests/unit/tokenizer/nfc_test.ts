/** NFC is that of the Rust tokenizers library, whose Unicode is older than the runtime's. */
import { assert, assertEquals } from "@std/assert";
import { RandomStream } from "../../../core/base/random.ts";
import { NEWER, toNfc } from "../../../core/tokenizer/nfc.ts";
import { fixtureRows } from "../../fixtures.ts";
import { replaced } from "../../replaced.ts";

Deno.test("marks and composites that came later stay as they are", () => {
  const rows: [string, string][] = fixtureRows("golden/tokenizer/nfc.jsonl");
  assert(rows.length > 500);
  for (const [text, expected] of rows) {
    assertEquals(toNfc(text), expected, JSON.stringify(text));
    // In a longer text, between parts that are composed.
    assertEquals(toNfc(`e\u0301 ${text} e\u0301`), `é ${expected} é`);
  }
  const changed = rows.filter(([text, expected]) => text.normalize("NFC") !== expected);
  assert(changed.length >= 98, `${changed.length} rows tell the versions apart`);
});

Deno.test("long runs of combining marks are sorted as the runtime sorts short ones", () => {
  const stream = new RandomStream(1, "marks");
  const marks = Array.from({ length: 0x110000 }, (_, code) => code)
    .filter((code) => code < 0xd800 || code > 0xdfff).map((code) => String.fromCodePoint(code))
    .filter((mark) => /\p{M}/u.test(mark) && !NEWER.test(mark));
  for (let i = 0; i < 200; i++) {
    const length = 256 + stream.integer(300), few = 2 + stream.integer(marks.length - 2);
    const run = Array.from(
      { length },
      () => stream.integer(100) === 0 ? "aω가ᄀ"[stream.integer(4)]! : marks[stream.integer(few)]!,
    );
    const text = `o${run.join("")}x`;
    assertEquals(toNfc(text), text.normalize("NFC"));
  }
});

Deno.test("the runtime, which sorts marks in quadratic time, gets long runs sorted", () => {
  const { normalize } = String.prototype, given: string[] = [];
  {
    using _ = replaced(String.prototype as { normalize(form?: string): string }, {
      normalize(form) {
        given.push(`${this}`);
        return normalize.call(`${this}`, form);
      },
    });
    toNfc("a" + "\u0301\u0323".repeat(10_000));
  }
  const longest = given.reduce((most, text) => text.length > most.length ? text : most);
  assertEquals(longest, "a" + "\u0323".repeat(10_000) + "\u0301".repeat(10_000));
});
