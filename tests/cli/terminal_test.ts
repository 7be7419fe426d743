/** Output on terminals: charts, tables and progress on terminals of 40, 80 and 120 columns. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { jsonLines, PLAIN_MODEL } from "./models.ts";
import { withScratch } from "../scratch.ts";
import { CHAT_MODEL } from "./serve_testing.ts";
import { HAS_TERMINALS, runOnTerminal, type TerminalResult } from "./terminal.ts";

const WIDTHS = [40, 80, 120];

/** Runs `args` at every width, with and without colour. */
function onTerminals(
  name: string,
  prepare: (cwd: string) => readonly string[],
  check: (result: TerminalResult, columns: number) => void,
): void {
  for (const columns of WIDTHS) {
    for (const color of ["always", "never"]) {
      Deno.test({
        name: `${name}, ${columns} columns, --color ${color}`,
        ignore: !HAS_TERMINALS,
        fn: () =>
          withScratch(async (cwd) => {
            const args = [...prepare(cwd), "--color", color];
            const result = await runOnTerminal(args, { columns, cwd });
            assertEquals(result.code, 0, result.raw);
            for (const line of result.screen) {
              // A word that is too long stays whole: a remedy is to be copied.
              const words = line.trim().split(" ");
              assert(line.length <= columns || words.length === 1, `too wide: ${line}`);
            }
            assert(!result.screen.join("").includes("\\x1b"), result.screen.join("\n"));
            // deno-lint-ignore no-control-regex -- colours are control sequences
            assertEquals(/\x1b\[\d+m/.test(result.raw), color === "always", result.raw);
            check(result, columns);
          }),
      });
    }
  }
}

onTerminals("plot draws its curves with their colours and spaces", (cwd) => {
  for (const [name, from] of [["first", 1], ["second", 2]] as const) {
    Deno.mkdirSync(`${cwd}/${name}`);
    const rows = Array.from({ length: 40 }, (_, i) => {
      return { step: i + 1, tokens: 100 * (i + 1), loss: from + 1 / (i + 1) };
    });
    Deno.writeTextFileSync(`${cwd}/${name}/metrics.jsonl`, jsonLines(...rows));
  }
  return ["plot", "first", "second"];
}, ({ screen }, columns) => {
  assertEquals(screen[0], "loss (nats per token)");
  const curve = screen.filter((line) => /[┤│]/.test(line));
  assertEquals(curve.length, 16);
  assert(
    curve.every((line) => line.search(/[┤│]/) === curve[0]!.search(/[┤│]/)),
    screen.join("\n"),
  );
  assert(curve.some((line) => /[\u2801-\u28ff]/.test(line)));
  // A curve reaches the right edge, and its letter stands there.
  assert(curve.some((line) => line.length >= columns - 2 && line.endsWith("A")), screen.join("\n"));
  assertStringIncludes(screen.join("\n"), "  A first");
});

onTerminals("inspect fits its table", () => ["inspect", "--model", PLAIN_MODEL], ({ screen }) => {
  assertStringIncludes(screen.join("\n"), "family");
});

onTerminals(
  "doctor ends with a summary and keeps its rows comparable",
  () => ["doctor"],
  (result) => {
    const { screen } = result;
    assertEquals(screen.filter((line) => line.startsWith("─")).length, 1, screen.join("\n"));
    assertStringIncludes(screen.join("\n"), "\nready: cpu");
    assert(screen.some((line) => /^device cpu +ok /.test(line)));
  },
);

onTerminals("generate writes several texts one after the other, with a rule between", () => {
  const prompts = ["--prompt", "one", "--prompt", "two", "--num-return", "2"];
  return ["generate", CHAT_MODEL, ...prompts, "--temperature", "1", "--max-tokens", "5"];
}, ({ screen }) => {
  const titles = screen.flatMap((line) => /^── (.*?) ─+$/.exec(line)?.[1] ?? []);
  assertEquals(titles, ["0, 1 of 2", "0, 2 of 2", "1, 1 of 2", "1, 2 of 2"]);
  assert(screen[screen.findIndex((line) => line.startsWith("──")) + 1] !== "");
});

for (const columns of WIDTHS) {
  Deno.test({
    name: `reading a long prompt has progress on one line, which does not wrap, ${columns} columns`,
    ignore: !HAS_TERMINALS,
    fn: () =>
      withScratch(async (cwd) => {
        await Deno.writeTextFile(`${cwd}/prompt`, "The red fox. ".repeat(300));
        const args = ["generate", "--model", CHAT_MODEL, "prompt", "--max-tokens", "2"];
        const { code, raw, screen } = await runOnTerminal(args, { columns, cwd });
        assertEquals(code, 0, raw);
        const drawn = raw.match(/Reading prompt:[^\r]*/g)!;
        assert(drawn.length >= 2, raw);
        for (const line of drawn.slice(0, -1)) assert(line.length < columns, line);
        const left = screen.filter((line) => line.includes("Reading prompt"));
        assertEquals(left.length, 1);
        assertMatch(left[0]!, /^Reading prompt: \d+ tokens in /);
      }),
  });
}
