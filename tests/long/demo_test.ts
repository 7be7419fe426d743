import { assert, assertEquals, assertMatch } from "@std/assert";
import { FIXTURES } from "../fixtures.ts";

const DEMO = `${FIXTURES}demo/demo.ts`;

Deno.test("the demo: a second stream that learns other text, then four streams beside one", async () => {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", DEMO],
    env: { NO_COLOR: "1" },
  }).output();
  const [text, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  assertEquals(code, 0, errors);
  const [, one, four] = /seen: ([\d.]+) with one stream, ([\d.]+) with four/.exec(text!)!;
  assert(Number(four) < Number(one), text);
  assert(!text!.includes("word_perplexity") && text!.indexOf("two pages:") < text!.indexOf(one!));
  const [, before, after] = /two pages: ([\d.]+) before, ([\d.]+) now/.exec(text!)!;
  assert(Number(after) < Number(before) - 0.1, text);
  assertMatch(errors!, /step 60\/60, loss [\d.]+, smoothed [\d.]+, \d+ tok\/s, 0s left/);
});
