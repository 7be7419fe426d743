/** Control characters of data, names, messages and templates never reach a terminal raw. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { main } from "../../cli/main.ts";
import { guardTerminal, visible, visibleJson, visibleLines } from "../../cli/output/clean.ts";
import { Report } from "../../cli/output/report.ts";
import type { Invocation } from "../../cli/output/document.ts";
import { captureIo } from "../unit/cli/capture_io.ts";
import { copyFolder, jsonLines, MODEL } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

/** Title, clipboard, cursor, hidden text, C1, a bell, and text that runs backwards. */
const HOSTILE = "a\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[2J\x1b[8mhidden\x9b31m\r\u202eb\x7f";

// deno-lint-ignore no-control-regex -- they are what is looked for
const RAW = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]/;

/** Our own colours and the removal of a line are no hostile text. */
// deno-lint-ignore no-control-regex -- they are what is looked for
const OWN = /\r?\x1b\[2K|\x1b\[(1|2|22|3\d|39|4\d|49|[34]8;5;\d+|0|90)m/g;

function assertClean(text: string, what: string): void {
  const found = RAW.exec(text.replace(OWN, ""));
  assertEquals(found, null, `${what}: ${JSON.stringify(text)}`);
}

/** Runs a command line with all streams on a terminal. */
async function onTerminal(args: readonly string[], env: Record<string, string> = {}) {
  const capture = captureIo({ terminals: ["stdin", "stdout", "stderr"], columns: 100, env });
  const code = await main(args, capture.io);
  return { code, stdout: capture.stdout(), stderr: capture.stderr() };
}

Deno.test("every control character becomes an escape; colours of ours pass the last wall", () => {
  assertClean(visible(HOSTILE), "visible");
  assertClean(visibleLines(HOSTILE), "visibleLines");
  assertEquals(visible("a\nb\tc\x1b"), "a\\nb\\tc\\x1b");
  assertEquals(visibleLines("a\nb\tc\x9b\u202e"), "a\nb\tc\\x9b\\u202e");
  assertEquals(JSON.parse(visibleJson(JSON.stringify(HOSTILE))), HOSTILE);
  const colored = "\x1b[31mred\x1b[39m\n\r\x1b[2K50%";
  assertEquals(guardTerminal(colored), colored);
  assertEquals(guardTerminal("\x1b[2J\x1b]0;t\x07\x9b\r"), "\\x1b[2J\\x1b]0;t\\x07\\x9b\\r");
});

Deno.test("tables, notes, warnings and errors are clean on a terminal, results elsewhere exact", async () => {
  const invocation = (format: Invocation["format"]) =>
    ({
      command: "x",
      startedAt: new Date(0),
      startedMs: 0,
      format,
      config: {},
      origins: {},
    }) as unknown as Invocation;
  for (const format of ["table", "md", "csv", "json", "jsonl"] as const) {
    for (const terminals of [["stdout", "stderr"], []] as const) {
      const { io, stdout, stderr } = captureIo({ terminals, columns: 60 });
      using report = new Report(io, invocation(format), { schema: "x/1" });
      report.row({ [`k${HOSTILE}`]: HOSTILE, n: 1 });
      await report.finish();
      io.note(HOSTILE);
      io.warn(HOSTILE, HOSTILE);
      io.redraw(HOSTILE);
      assertClean(stderr(), `stderr ${format}`);
      if (terminals.length > 0) assertClean(stdout(), `stdout ${format}`);
      else if (!format.startsWith("json")) assertStringIncludes(stdout(), HOSTILE);
    }
  }
  for (
    const args of [[HOSTILE], ["help", HOSTILE], ["inspect", "--model", HOSTILE], [`--${HOSTILE}`]]
  ) {
    for (const json of [[], ["--json"]]) {
      const { code, stdout, stderr } = await onTerminal([...args, ...json]);
      assert(code === 2 || code === 3, `${code}`);
      assertClean(stdout + stderr, `${args}`);
    }
  }
});

Deno.test("model text, prompts of a task, templates and tokens are clean on a terminal", () =>
  withScratch(async (cwd) => {
    const files = { "chat_template.jinja": `{{ raise_exception(messages[0].content) }}` };
    const model = await copyFolder(MODEL, `${cwd}/m`, files);
    await Deno.mkdir(`${cwd}/bench/sciq`, { recursive: true });
    const row = {
      question: HOSTILE,
      correct_answer: HOSTILE,
      ...{ distractor1: "x", distractor2: HOSTILE, distractor3: "z", support: HOSTILE },
    };
    const rows = jsonLines(row, row, row, row, row);
    await Deno.writeTextFile(`${cwd}/bench/sciq/test.jsonl`, rows);
    await Deno.writeTextFile(`${cwd}/bench/sciq/train.jsonl`, rows);
    const show = ["eval", "show", "sciq", "--data", `${cwd}/bench`];
    const lines: [string[], number][] = [
      [show, 0],
      [["visualize", "--model", model, "--text", HOSTILE], 0],
      [["generate", "--model", model, "--chat", "--prompt", HOSTILE], 3],
      [["generate", "--model", `${cwd}/${HOSTILE.replaceAll("/", "")}`, "--prompt", "a"], 3],
      [
        [
          "generate",
          "--model",
          model,
          "--temperature",
          "9",
          "--max-tokens",
          "300",
          "--prompt",
          "a",
        ],
        0,
      ],
    ];
    for (const [args, code] of lines) {
      const result = await onTerminal(args);
      assertEquals(result.code, code, `${args}: ${result.stderr}`);
      assertClean(result.stdout, `${args}`);
      assertClean(result.stderr, `${args}`);
    }
    const { stdout } = await runParscale(show);
    assertStringIncludes(stdout, HOSTILE, "what is no terminal gets the exact prompt");
  }));
