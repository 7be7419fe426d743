import { assert, assertEquals, assertMatch } from "@std/assert";
import { fileURLToPath } from "node:url";

const DEMO = fileURLToPath(new URL("../../fixtures/demo/demo.ts", import.meta.url));

Deno.test("the demo: four streams beside one, and a second stream that learns other text", async () => {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", DEMO],
    env: { NO_COLOR: "1" },
  }).output();
  const [text, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  assertEquals(code, 0, errors);
  const [, measured] = /measured (-?[\d.]+), by the law (-?[\d.]+) nats/.exec(text!)!;
  assert(Number(measured) < 0, text);
  const [, before, after] = /two pages: ([\d.]+) before, ([\d.]+) now/.exec(text!)!;
  assert(Number(after) < Number(before) - 0.1, text);
  assertMatch(errors!, /step 60\/60, loss [\d.]+, \d+ tok\/s, 0s left/);
});
