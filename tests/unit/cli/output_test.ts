/** Output: colour rules, input, tables, number formats, documents, reports, sinks, progress. */
import {
  assert,
  assertEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { DataError, NumericalError, UsageError } from "../../../core/base/errors.ts";
import { PLAIN, wantsColor } from "../../../cli/output/color.ts";
import { buildDocument, type Invocation, toJson } from "../../../cli/output/document.ts";
import { ClosedPipeError, MissingInputError } from "../../../cli/output/io.ts";
import { formatDuration, Progress } from "../../../cli/output/progress.ts";
import { Report } from "../../../cli/output/report.ts";
import { openSink, writeText } from "../../../cli/output/sink.ts";
import {
  csvLine,
  formatNumber,
  markdownTable,
  plainTable,
  terminalTable,
} from "../../../cli/output/table.ts";
import { displayWidth } from "../../../cli/output/wrap.ts";
import { withScratch } from "../../scratch.ts";
import { captureIo } from "./capture_io.ts";

const invocation: Invocation = {
  command: "score",
  startedAt: new Date(0),
  startedMs: 0,
  format: "table",
  out: undefined,
  overwrite: false,
  config: { model: "m", seed: 3, "max-tokens": null },
  origins: { model: "flag", seed: "flag", "max-tokens": "default" },
};
const rows = [
  { task: "gsm8k", score: 0.3125, stderr: 0.0128, n: 1319 },
  { task: "größe", score: 0.5, stderr: null, n: 7 },
];
const columns = [
  { key: "task" },
  { key: "score", digits: 3, error: "stderr" },
  { key: "n", title: "samples" },
];

Deno.test("colour: flag before environment before terminal, per stream", () => {
  const wants = (mode: "auto" | "always" | "never", terminal: boolean, env = {}) =>
    wantsColor(mode, terminal, (name) => (env as Record<string, string>)[name]);
  assertEquals(wants("auto", true), true);
  assertEquals(wants("auto", false), false);
  assertEquals(wants("never", true, { FORCE_COLOR: "1" }), false);
  assertEquals(wants("always", false, { NO_COLOR: "1" }), true);
  assertEquals(wants("auto", true, { NO_COLOR: "1" }), false);
  assertEquals(wants("auto", true, { NO_COLOR: "" }), true);
  assertEquals(wants("auto", true, { TERM: "dumb" }), false);
  assertEquals(wants("auto", false, { FORCE_COLOR: "1" }), true);
  assertEquals(wants("auto", false, { FORCE_COLOR: "0" }), false);
  const { io } = captureIo({ terminals: ["stderr"] });
  assertEquals(io.palette("stderr").error("x"), "\x1b[31mx\x1b[39m");
  assertEquals(io.palette("stdout").error("x"), "x");
  const { success, warning, hint } = io.palette("stderr");
  assertEquals(
    [success("x"), warning("x"), hint("x")],
    ["\x1b[32mx\x1b[39m", "\x1b[33mx\x1b[39m", "\x1b[36mx\x1b[39m"],
  );
});

Deno.test("input: lines across chunks, last line without end, CRLF", async () => {
  const { io } = captureIo({ stdin: "a\r\nb\n\nc" });
  assertEquals(await Array.fromAsync(io.readLines()), ["a", "b", "", "c"]);
  assertEquals(await captureIo({ stdin: "é\n" }).io.readText("-"), "é\n");
});

Deno.test("input: a terminal, a missing file, a folder and broken UTF-8 are told apart", async () => {
  await assertRejects(
    () => captureIo({ terminals: ["stdin"] }).io.readText(),
    MissingInputError,
    "stdin is a terminal",
  );
  await assertRejects(() => captureIo().io.readText("/nowhere"), DataError, "no such file");
  await assertRejects(() => captureIo().io.readText(import.meta.dirname), DataError, "is a folder");
  await assertRejects(
    () => captureIo({ stdin: new Uint8Array([0xff, 0xfe, 0x80]) }).io.readText(),
    DataError,
    "not valid UTF-8",
  );
});

Deno.test("streams: quiet levels, warnings once, closed pipes", () => {
  const loud = captureIo();
  loud.io.warn("slow path", "pass --device cpu");
  loud.io.warn("slow path");
  loud.io.detail("hidden");
  assertEquals(loud.stderr(), "warning: slow path\nhint: pass --device cpu\n");
  const quiet = captureIo({ settings: { quiet: 1 } });
  quiet.io.warn("w");
  quiet.io.note("n");
  quiet.io.write("result\n");
  assertEquals([quiet.stdout(), quiet.stderr()], ["result\n", ""]);
  const silent = captureIo({ settings: { quiet: 2 } });
  silent.io.write("result\n");
  silent.io.writeError("error\n");
  assertEquals([silent.stdout(), silent.stderr()], ["", "error\n"]);
  const closed = captureIo({ closed: ["stdout", "stderr"] });
  closed.io.writeError("unread\n");
  assertThrows(() => closed.io.write("x"), ClosedPipeError);
});

Deno.test("numbers: stated precision, whole integers, four digits otherwise", () => {
  assertEquals(formatNumber(0.3125, 3), "0.313");
  assertEquals(formatNumber(1319), "1319");
  assertEquals(formatNumber(0.123456), "0.1235");
  assertEquals(formatNumber(1.5e-7), "1.5e-7");
});

Deno.test("plain table: numbers right-aligned, ±, wide characters, no trailing space", () => {
  assertEquals(
    plainTable(columns, rows),
    "task           score  samples\n" +
      "gsm8k  0.313 ± 0.013     1319\n" +
      "größe          0.500        7\n",
  );
  assertEquals(plainTable([{ key: "a" }], [{ a: "x\ny" }]), "a\nx\\ny\n");
  assertEquals([displayWidth("日本"), displayWidth("e\u0301")], [4, 1]);
});

Deno.test("terminal table: one rule, cells wrapped at words, nothing cut", async () => {
  const remedy = "install the driver and run `parscale doctor` again";
  const rows = [
    { name: "cuda", share: "0.71 ± 0.02", n: 12, remedy },
    { name: "webgpu", share: "0.50 ± 0.03", n: 7, remedy: "none" },
  ];
  const columns = ["name", "share", "n", "remedy"].map((key) => ({ key }));
  const text = await terminalTable(columns, rows, 50, PLAIN);
  const lines = text.trimEnd().split("\n");
  assert(lines.every((line) => displayWidth(line) <= 50), text);
  assertEquals(lines.filter((line) => line.startsWith("─")).length, 1);
  for (const whole of ["webgpu", "0.71 ± 0.02", ...remedy.split(" ")]) {
    assertStringIncludes(text, whole);
  }
  assertEquals(text.includes("…"), false);
  assertEquals(lines[0], "name    share         n  remedy");
});

Deno.test("terminal table: rows wider than the terminal become blocks", async () => {
  const rows = [{ name: "x".repeat(30), note: "two words" }, { name: "y", note: "z".repeat(40) }];
  const columns = [{ key: "name" }, { key: "note" }];
  assertEquals(
    await terminalTable(columns, rows, 60, PLAIN),
    `name  ${"x".repeat(30)}\nnote  two words\n\nname  y\nnote  ${"z".repeat(40)}\n`,
  );
});

Deno.test("terminal table: what all rows share, then the last columns make room", async () => {
  const rows = [1, 2, 4].map((streams) => ({
    what: "decode",
    streams,
    device: "cpu",
    none: null,
    milliseconds: 12.25 * streams,
    throughput: 1000 / streams,
  }));
  const columns = Object.keys(rows[0]!).map((key) => ({ key }));
  const all = "all rows: device cpu\n";
  const wide = await terminalTable(columns, rows, 46, PLAIN);
  assertStringIncludes(wide, `${all}what    streams  milliseconds  throughput\n`);
  const narrow = await terminalTable(columns, rows, 34, PLAIN);
  assertStringIncludes(narrow, `${all}what    streams  milliseconds\n`);
  assertStringIncludes(narrow, "left out for want of width:\nthroughput; --format csv has all\n");
  assert(narrow.split("\n").every((line) => displayWidth(line) <= 34), narrow);
});

Deno.test("terminal table: cells that may be shortened have two lines", async () => {
  const rows = [
    { check: "a", found: "tried /usr/local/lib/libcuda.so.1 and /usr/lib/libcuda.so.1" },
    { check: "b", found: "fine" },
  ];
  const columns = [{ key: "check" }, { key: "found", shortens: true }];
  const text = await terminalTable(columns, rows, 30, PLAIN);
  assertEquals(
    text,
    `check  found\n${"─".repeat(30)}\na      tried\n       /usr/local/lib/libcuda…\nb      fine\n`,
  );
});

Deno.test("Markdown and CSV: alignment, quoting, unrounded numbers", () => {
  assertEquals(
    markdownTable([{ key: "a" }, { key: "n", digits: 1 }], [{ a: "x|y", n: 2 }]),
    "| a | n |\n| --- | ---: |\n| x\\|y | 2.0 |\n",
  );
  assertEquals(
    csvLine(['say "hi"', "a,b", 0.1 + 0.2, null, true, [1, 2]]),
    '"say ""hi""","a,b",0.30000000000000004,,true,"[1,2]"\n',
  );
});

Deno.test("documents: fixed head, seed from the config, absent is null", () => {
  const head = { schema: "parscale.score/1", device: "cpu" };
  const document = buildDocument(invocation, head, 1234.5, rows);
  assertEquals(
    Object.keys(document).join(" "),
    "schema version command config seed device started_at duration_s results",
  );
  assertEquals([document.seed, document.device, document.duration_s], [3, "cpu", 1.235]);
  assertEquals(document.started_at, "1970-01-01T00:00:00.000Z");
});

Deno.test("JSON: numeric arrays, undefined, and no number that is not finite", () => {
  const json = toJson({ a: new Float32Array([0.5, 1]), b: undefined, c: [undefined], d: {} });
  assertEquals(json, '{"a":[0.5,1],"b":null,"c":[null],"d":{}}');
  assertThrows(
    () => toJson({ results: [{ loss: [0, NaN] }] }),
    NumericalError,
    'result "results[0].loss[1]" is NaN',
  );
  assertThrows(() => toJson(new Float32Array([Infinity])), NumericalError);
});

async function reported(format: Invocation["format"], single?: Record<string, unknown>) {
  const capture = captureIo();
  using report = new Report(capture.io, { ...invocation, format }, {
    schema: "parscale.score/1",
    ...(single === undefined ? { columns } : {}),
  });
  if (single === undefined) { for (const row of rows) report.row(row); }
  await report.finish(single);
  return capture.stdout();
}

Deno.test("reports: the same rows in every format", async () => {
  assertEquals(await reported("table"), plainTable(columns, rows));
  assertEquals(await reported("md"), markdownTable(columns, rows));
  assertEquals(await reported("jsonl"), rows.map((row) => JSON.stringify(row) + "\n").join(""));
  assertEquals(await reported("csv"), "task,score,n\ngsm8k,0.3125,1319\ngröße,0.5,7\n");
  assertEquals(JSON.parse(await reported("json")).results, rows);
});

Deno.test("reports: one object is upright in a table, one line in rows", async () => {
  const single = { family: "qwen2", params: 494032768, share: 0.123456789 };
  assertEquals(
    await reported("table", single),
    "field   value\nfamily  qwen2\nparams  494032768\nshare   0.123457\n",
  );
  assertEquals(JSON.parse(await reported("json", single)).results, single);
  assertEquals(JSON.parse(await reported("jsonl", single)), single);
  assertEquals(await reported("csv", single), "family,params,share\nqwen2,494032768,0.123456789\n");
});

Deno.test("reports: JSON lines go out row by row, before the end", () => {
  const capture = captureIo();
  using report = new Report(capture.io, { ...invocation, format: "jsonl" }, { schema: "s/1" });
  report.row({ id: 0 });
  assertEquals(capture.stdout(), '{"id":0}\n');
});

Deno.test("sinks: a file appears complete or not at all, and is not replaced unasked", () =>
  withScratch(async (folder) => {
    const path = `${folder}/result.json`;
    const { io } = captureIo();
    {
      using report = new Report(io, { ...invocation, out: path }, { schema: "s/1" });
      report.row({ id: 0 });
      assertEquals([...Deno.readDirSync(folder)].some(({ name }) => name === "result.json"), false);
    }
    assertEquals([...Deno.readDirSync(folder)], []);
    writeText(io, "one", path, false);
    assertThrows(() => writeText(io, "two", path, false), UsageError, "already exists");
    writeText(io, "two", path, true);
    assertEquals(await Deno.readTextFile(path), "two");
    assertEquals([...Deno.readDirSync(folder)].length, 1);
    assertThrows(() => openSink(io, folder, true), UsageError, "is a folder");
    assertThrows(() => openSink(io, `${folder}/a/b`, false), UsageError, "folder does not exist");
  }));

Deno.test("sinks: - is stdout", () => {
  const capture = captureIo();
  writeText(capture.io, "text", "-", false);
  assertEquals(capture.stdout(), "text");
});

Deno.test("progress: redrawn on a terminal with rate and time left, gone at the end", () => {
  const capture = captureIo({ terminals: ["stderr"], columns: 100 });
  {
    using progress = new Progress(capture.io, { label: "Scoring", unit: "rows", total: 20 });
    assertStringIncludes(capture.stderr(), "Scoring: [                    ] 0/20 rows");
    capture.advance(50);
    progress.update(1);
    capture.advance(1950);
    progress.update(10, "loss 2.5");
  }
  const drawn = capture.stderr().split("\r\x1b[2K");
  assertEquals(drawn[1], "Scoring: [==========          ] 10/20 rows, 5 rows/s, 2s left, loss 2.5");
  assertEquals(drawn.slice(2), ["Scoring: 10 rows in 2s, 5 rows/s\n"]);
});

Deno.test("progress: output goes above the redrawn line", () => {
  const capture = captureIo({ terminals: ["stdout", "stderr"] });
  capture.io.redraw("half");
  capture.io.write("row\n");
  capture.io.redraw("");
  assertEquals(capture.stderr(), "half\r\x1b[2Khalf\r\x1b[2K");
});

Deno.test("progress: plain lines per interval elsewhere, under CI and --no-progress", () => {
  const cases = [
    {},
    { terminals: ["stderr"] as const, env: { CI: "1" } },
    { terminals: ["stderr"] as const, settings: { progress: false } },
  ];
  for (const options of cases) {
    const capture = captureIo(options);
    {
      using progress = new Progress(capture.io, {
        label: "Training",
        unit: "steps",
        everyItems: 2,
      });
      for (const step of [1, 2, 3, 4]) {
        capture.advance(500);
        progress.update(step);
      }
    }
    assertEquals(
      capture.stderr(),
      "Training: 1 steps, 2 steps/s\nTraining: 2 steps, 2 steps/s\n" +
        "Training: 4 steps, 2 steps/s\n" +
        "Training: 4 steps in 2s, 2 steps/s\n",
    );
  }
});

Deno.test("progress: slow items get a line of their own, at longer and longer times", () => {
  const capture = captureIo({ settings: { progress: false } });
  const options = { label: "Training", unit: "steps", everyItems: 10, line: () => "line" };
  using progress = new Progress(capture.io, options);
  const linesAfter = (seconds: number) => {
    capture.advance(1000 * seconds);
    progress.update(++step);
    return capture.stderr().trim().split("\n").length;
  };
  let step = 0;
  assertEquals([linesAfter(8), linesAfter(8), linesAfter(12), linesAfter(12)], [1, 1, 2, 2]);
  assertEquals(linesAfter(20), 3);
});

Deno.test("progress: a resumed run counts the whole run, and its rate only what is new", () => {
  const capture = captureIo({ settings: { progress: false } });
  const options = { label: "Training", unit: "steps", total: 10, from: 6, everyItems: 1 };
  {
    using progress = new Progress(capture.io, options);
    capture.advance(1000);
    progress.update(8);
  }
  assertEquals(
    capture.stderr(),
    "Training: 8/10 steps, 2 steps/s, 1s left\nTraining: 2 steps in 1s, 2 steps/s\n",
  );
});

Deno.test("progress: none where rows go to the same terminal", () => {
  const settings = { streamsRows: true };
  const capture = captureIo({ terminals: ["stdout", "stderr"], settings });
  {
    using progress = new Progress(capture.io, { label: "Scoring", unit: "rows", total: 2 });
    progress.update(1);
  }
  assertEquals(capture.stderr(), "");
});

Deno.test("progress: silent under -q, and for a short run without a terminal", () => {
  for (const settings of [{ quiet: 1 }, {}]) {
    const capture = captureIo({ settings, terminals: settings.quiet ? ["stderr"] : [] });
    {
      using progress = new Progress(capture.io, { label: "Scoring", unit: "rows", total: 2 });
      capture.advance(100);
      progress.update(2);
    }
    assertEquals(capture.stderr(), "");
  }
});

Deno.test("durations read well at every length", () => {
  assertEquals([0.4, 45, 185, 7620].map(formatDuration), ["0s", "45s", "3m05s", "2h07m"]);
});
