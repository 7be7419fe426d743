/** Output on terminals of 40 and 80 columns, where control characters of others are never raw. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { main } from "../../cli/main.ts";
import { guardTerminal, visible, visibleJson, visibleLines } from "../../cli/output/clean.ts";
import { displayWidth } from "../../cli/output/wrap.ts";
import { Report } from "../../cli/output/report.ts";
import type { Invocation } from "../../cli/output/document.ts";
import { captureIo } from "../unit/cli/capture_io.ts";
import { copyFolder, jsonLines, MODEL, PLAIN_MODEL } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { DATA, TINY } from "./eval_testing.ts";
import { CHAT_MODEL } from "./serve_testing.ts";
import {
  HAS_TERMINALS,
  runOnTerminal,
  screenOf,
  Terminal,
  type TerminalResult,
} from "./terminal.ts";

const WIDTHS = [40, 80];

/** Runs `args` at every width, with colour at all but one. */
function onTerminals(
  name: string,
  prepare: (cwd: string) => readonly string[],
  check: (result: TerminalResult, columns: number) => void,
): void {
  for (const columns of WIDTHS) {
    const color = columns === 80 ? "never" : "always";
    Deno.test({
      name: `${name}, ${columns} columns, --color ${color}`,
      ignore: !HAS_TERMINALS,
      fn: () =>
        withScratch(async (cwd) => {
          const args = [...prepare(cwd), "--color", color];
          const result = await runOnTerminal(args, { columns, cwd });
          assertEquals(result.code, 0, result.raw);
          assertEquals(result.brokenWords, [], result.raw);
          assert(!result.screen.join("").includes("\\x1b"), result.screen.join("\n"));
          // deno-lint-ignore no-control-regex -- colours are control sequences
          assertEquals(/\x1b\[\d+m/.test(result.raw), color === "always", result.raw);
          check(result, columns);
        }),
    });
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
  assertEquals(screen[0], "loss, smoothed 0.95 (nats per token)");
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

/** Words, characters without spaces between them, and emoji of several parts. */
const MIXED = "The quick brown fox 漢字は空白なしで続きます。 👩‍💻 🇩🇪 한국어 and ❤️ ".repeat(4)
  .trim();

onTerminals(
  "visualize keeps the tokens of a word together",
  () => ["visualize", "--model", MODEL, "--text", "Unbelievably complicated ".repeat(12)],
  ({ screen }) => {
    const words = screen.flatMap((line) => line.match(/[Uc]\w+ed|U\w+y/g) ?? []);
    assert(words.length >= 24 && words.every((word) => /^(Unb\S+y|compl\S+ed)$/.test(word)));
  },
);

for (const columns of WIDTHS) {
  Deno.test({
    name: `generated text of wide characters breaks at words, ${columns} columns`,
    ignore: !HAS_TERMINALS,
    fn: async () => {
      const args = ["generate", CHAT_MODEL, "--echo", "--prompt", MIXED, "--max-tokens", "20"];
      const { code, raw, screen, brokenWords } = await runOnTerminal(args, { columns });
      assertEquals([code, brokenWords], [0, []], raw);
      const from = screen.findIndex((line) => line.startsWith("The quick"));
      const filled = displayWidth(screen[from]!);
      assert(filled > columns - 12 && filled <= columns, screen.join("\n"));
      assertStringIncludes(screen.join("").replaceAll(" ", ""), MIXED.replaceAll(" ", ""));
    },
  });
}

for (const columns of WIDTHS) {
  Deno.test({
    name: `chat breaks help, notes and answers at words, ${columns} columns`,
    ignore: !HAS_TERMINALS,
    fn: () =>
      withScratch(async (cwd) => {
        await using terminal = new Terminal(["chat", CHAT_MODEL, "--max-tokens", "60"], {
          columns,
          cwd,
          env: { HOME: cwd },
        });
        const lines = ["/help", `/system ${MIXED}`, "Tell me about the red fox.", "/quit"];
        for (const [i, line] of lines.entries()) {
          // The terminal itself may show what is typed before the editor of lines does.
          const before = i > 0 ? `> ${lines[i - 1]!.slice(0, 8)}` : "";
          await terminal.until((screen) => screen.includes(before) && screen.endsWith("\n>"));
          await terminal.type(`${line}\r`);
        }
        const { code, raw, brokenWords } = await terminal.end();
        assertEquals(code, 0, raw);
        // The line that was typed is broken by the editor of lines.
        const typed = screenOf(`> /system ${MIXED}`, columns).join("\n");
        assertEquals(brokenWords.filter((word) => !typed.includes(word)), [], raw);
      }),
  });
}

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

/** Title, clipboard, cursor, hidden text, C1, a bell, and text that runs backwards. */
const HOSTILE = "a\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[2J\x1b[8mhidden\x9b31m\r\u202eb\x7f";

// deno-lint-ignore no-control-regex -- they are what is looked for
const RAW = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]/;

/** Our own colours and the removal of a line are not hostile. */
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
  const started = { command: "x", startedAt: new Date(0), startedMs: 0, config: {}, origins: {} };
  for (const format of ["table", "md", "csv", "json", "jsonl"] as const) {
    for (const terminals of [["stdout", "stderr"], []] as const) {
      const { io, stdout, stderr } = captureIo({ terminals, columns: 60 });
      using report = new Report(io, { ...started, format } as unknown as Invocation, {
        schema: "x/1",
      });
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

Deno.test("eval and compare say that a chat model continues prompts without its template", async () => {
  const line = `--model ${TINY} --tasks gsm8k --limit 1 --max-tokens 2 --data ${DATA}`;
  const told = "the prompt is continued as it stands; --chat applies";
  for (const command of ["eval", "compare --dry-run"]) {
    for (const chat of ["", " --chat"]) {
      const { stderr } = await onTerminal(`${command} ${line}${chat}`.split(" "));
      assertEquals(stderr.includes(told), chat === "", `${command}${chat}: ${stderr}`);
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
      support: HOSTILE,
      distractor1: "x",
      distractor2: HOSTILE,
      distractor3: "z",
    };
    for (const split of ["test", "train"]) {
      const rows = jsonLines(row, row, row, row, row);
      await Deno.writeTextFile(`${cwd}/bench/sciq/${split}.jsonl`, rows);
    }
    const show = ["eval", "show", "sciq", "--data", `${cwd}/bench`];
    const generate = ["generate", "--model", model];
    const sampled = "--temperature 9 --max-tokens 300 --prompt a".split(" ");
    const lines: [string[], number][] = [
      [show, 0],
      [["visualize", "--model", model, "--text", HOSTILE], 0],
      [[...generate, "--chat", "--prompt", HOSTILE], 3],
      [["generate", "--model", `${cwd}/${HOSTILE.replaceAll("/", "")}`, "--prompt", "a"], 3],
      [[...generate, ...sampled], 0],
    ];
    for (const [args, code] of lines) {
      const result = await onTerminal(args);
      assertEquals(result.code, code, `${args}: ${result.stderr}`);
      assertClean(result.stdout + result.stderr, `${args}`);
    }
    assertStringIncludes((await runParscale(show)).stdout, HOSTILE, "a pipe gets the exact prompt");
  }));
