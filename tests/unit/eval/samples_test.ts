/** Lines of answers: fields of another type are refused with their place. */
import { assertEquals, assertThrows } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { SampleReader } from "../../../core/eval/harness/samples.ts";

const read = (fields: object) =>
  new SampleReader(["gsm8k"]).read({ task: "gsm8k", doc_id: 0, ...fields }, 'line 3 of "s"');

Deno.test("a field of a sample has its type, and null is as absent", () => {
  for (
    const [field, words] of [
      [{ tokens: "3" }, 'tokens "3", expected an integer of at least 0'],
      [{ tokens: -3 }, "tokens -3, expected an integer of at least 0"],
      [{ tokens: 1.5 }, "tokens 1.5, expected an integer of at least 0"],
      [{ tokens: [1] }, "tokens [1], expected an integer of at least 0"],
      [{ temperature: "0" }, 'temperature "0", expected a number'],
      [{ request: 5 }, "request 5, expected text"],
      [{ solution: ["x"] }, 'solution ["x"], expected text'],
      [{ text: 5 }, "text 5, expected text"],
      [{ loglikelihood: "12" }, 'loglikelihood "12", expected a list of numbers'],
    ] as const
  ) {
    const message = `line 3 of "s" has ${words}`;
    assertThrows(() => read({ text: "a", loglikelihood: [-5], ...field }), DataError, message);
  }
  assertThrows(() => read({ text: null }), DataError, 'has neither "text" nor a list');
  const absent = { tokens: null, temperature: null, loglikelihood: null };
  const sample = { task: "gsm8k", doc_id: 0, sample: 0, text: "a" };
  assertEquals(read({ text: "a", ...absent }), sample);
});
