/** Colour, input, tables, number formats, reports, sinks, progress. */
import {
  assert,
  assertEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { DataError, NumericalError } from "../../../core/base/errors.ts";
import { PLAIN, wantsColor } from "../../../cli/output/color.ts";
import { type Invocation, toJson } from "../../../cli/output/document.ts";
import { ClosedPipeError, MissingInputError } from "../../../cli/output/io.ts";
import { Progress, ReadingProgress } from "../../../cli/output/progress.ts";
import { Report, reportRows } from "../../../cli/output/report.ts";
import {
  columnsOf,
  csvLine,
  formatNumber,
  markdownTable,
  plainTable,
  terminalTable,
} from "../../../cli/output/table.ts";
import { cutToWidth, displayWidth } from "../../../cli/output/wrap.ts";
import { captureIo, type CaptureOptions, INVOCATION } from "./capture_io.ts";

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
  const cases = [
    ["auto", true, {}, true],
    ["auto", false, {}, false],
    ["never", true, { FORCE_COLOR: "1" }, false],
    ["always", false, { NO_COLOR: "1" }, true],
    ["auto", true, { NO_COLOR: "1" }, false],
    ["auto", true, { NO_COLOR: "" }, true],
    ["auto", true, { TERM: "dumb" }, false],
    ["auto", false, { FORCE_COLOR: "1" }, true],
    ["auto", false, { FORCE_COLOR: "0" }, false],
  ] as const;
  for (const [mode, terminal, env, expected] of cases) {
    const variable = (name: string) => (env as Record<string, string>)[name];
    assertEquals(wantsColor(mode, terminal, variable), expected, JSON.stringify([mode, env]));
  }
  const { io } = captureIo({ terminals: ["stderr"] });
  assertEquals(io.palette("stderr").error("x"), "\x1b[31mx\x1b[39m");
  assertEquals(io.palette("stdout").error("x"), "x");
  const { success, warning, hint } = io.palette("stderr");
  const colored = [success("x"), warning("x"), hint("x")];
  assertEquals(colored, [32, 33, 36].map((color) => `\x1b[${color}mx\x1b[39m`));
});

Deno.test("input: lines across chunks, last line without end, CRLF", async () => {
  const { io } = captureIo({ stdin: "a\r\nb\n\nc" });
  assertEquals(await Array.fromAsync(io.readLines()), ["a", "b", "", "c"]);
  assertEquals(await captureIo({ stdin: "é\n" }).io.readText("-"), "é\n");
});

Deno.test("input: a terminal, a missing file, a folder and broken UTF-8 are told apart", async () => {
  const terminal = () => captureIo({ terminals: ["stdin"] }).io.readText();
  await assertRejects(terminal, MissingInputError, "stdin is a terminal");
  await assertRejects(() => captureIo().io.readText("/nowhere"), DataError, "no such file");
  await assertRejects(() => captureIo().io.readText(import.meta.dirname), DataError, "is a folder");
  const broken = () => captureIo({ stdin: new Uint8Array([0xff, 0xfe, 0x80]) }).io.readText();
  await assertRejects(broken, DataError, "not valid UTF-8");
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
  assertEquals([cutToWidth("日本語", 5), cutToWidth("e\u0301a", 1)], ["日本", "e\u0301"]);
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

Deno.test("terminal table: a hash is wrapped in its middle, a score before its interval", async () => {
  const hash = "0123456789abcdef".repeat(4), columns = [{ key: "field" }, { key: "value" }];
  const rows = [{ field: "backbone_sha256", value: hash }, { field: "streams", value: 4 }];
  const text = await terminalTable(columns, rows, 80, PLAIN);
  const halves = `${hash.slice(0, 32)}\n${" ".repeat(17)}${hash.slice(32)}`;
  assertStringIncludes(text, `backbone_sha256  ${halves}`);
  const score = "0.412 (+0.031 ± 0.020)";
  const one = { beams: 1, a: score, b: score, mib: 9 };
  const compared = [one, { ...one, beams: 2, a: "-", mib: 8 }];
  const narrow = await terminalTable(columnsOf(compared), compared, 48, PLAIN);
  assertStringIncludes(narrow, "(+0.031 ± 0.020)");
  assert(!narrow.includes("left out"), narrow);
  assert(narrow.split("\n").every((line) => displayWidth(line) <= 48), narrow);
});

Deno.test("the table of compare keeps the cost of beams at 80 columns", async () => {
  const rows = [2, 4, 8].map((scale) => ({
    "P or beams": scale,
    "gsm8k ParScale": `0.41${scale} (+0.03${scale} ± 0.020)`,
    "gsm8k beam": `0.40${scale} (+0.02${scale} ± 0.018)`,
    "ParScale s/answer": `0.14${scale}`,
    "ParScale MiB": 1160 + scale,
    "beam s/answer": `0.13${scale}`,
    "beam MiB": 1200 + scale,
  }));
  const text = await terminalTable(columnsOf(rows), rows, 80, PLAIN);
  assertStringIncludes(text, "1208\n");
  assert(!text.includes("left out"), text);
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

Deno.test("JSON: numeric arrays, undefined, and no number that is not finite", () => {
  const json = toJson({ a: new Float32Array([0.5, 1]), b: undefined, c: [undefined], d: {} });
  assertEquals(json, '{"a":[0.5,1],"b":null,"c":[null],"d":{}}');
  const nan = () => toJson({ results: [{ loss: [0, NaN] }] });
  assertThrows(nan, NumericalError, 'result "results[0].loss[1]" is NaN');
  assertThrows(() => toJson(new Float32Array([Infinity])), NumericalError);
});

async function reported(format: Invocation["format"], single: Record<string, unknown>) {
  const { io, stdout } = captureIo();
  using report = new Report(io, { ...INVOCATION, format }, { schema: "parscale.score/1" });
  await report.finish(single);
  return stdout();
}

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

Deno.test("reports: a table has neither fields without a value nor a head without rows", async () => {
  const lacking = { loss: null, steps: 2 };
  assertEquals(await reported("table", lacking), "field  value\nsteps  2\n");
  assertEquals(JSON.parse(await reported("json", lacking)).results, lacking);
  const { io, stdout } = captureIo();
  const options = { schema: "x/1", columns: ["id", "text"] };
  await reportRows(io, { ...INVOCATION, format: "table" }, options, []);
  assertEquals(stdout(), "");
});

Deno.test("tables: any number of rows is drawn", async () => {
  const many = Array.from({ length: 130_000 }, (_, row) => ({ row }));
  const text = await terminalTable([{ key: "row" }], many, 80, PLAIN);
  assertEquals(text.split("\n").length, 130_003);
});

/** Reports progress in these steps of [milliseconds, items, note]; what stderr got. */
function progressed(
  capture: CaptureOptions,
  options: ConstructorParameters<typeof Progress>[1],
  steps: readonly (readonly [ms: number, done: number, note?: string])[],
): string {
  const { io, advance, stderr } = captureIo(capture);
  {
    using progress = new Progress(io, options);
    for (const [ms, done, note] of steps) {
      advance(ms);
      progress.update(done, note);
    }
  }
  return stderr();
}

const SCORING = { label: "Scoring", unit: "rows", total: 2 };
const TRAINING = { label: "Training", unit: "steps" }, UNSEEN = { progress: false };

Deno.test("progress: redrawn on a terminal with rate and time left, gone at the end", () => {
  const terminal: CaptureOptions = { terminals: ["stderr"], columns: 100 };
  const steps = [[50, 1], [1950, 10, "loss 2.5"]] as const;
  const [first, ...drawn] = progressed(terminal, { ...SCORING, total: 20 }, steps)
    .split("\r\x1b[2K");
  assertEquals(first, "Scoring: [                    ] 0/20 rows");
  assertEquals(drawn, [
    "Scoring: [==========          ] 10/20 rows, 2s left, 4.62 rows/s, loss 2.5",
    "Scoring: 10 rows in 2s, 5 rows/s\n",
  ]);
});

Deno.test("progress: a redrawn line leaves out whole parts, and is cut by the columns it takes", () => {
  const terminal: CaptureOptions = { terminals: ["stderr"], columns: 60 };
  const name = "\u540d".repeat(20);
  const drawn = (label: string, steps: Parameters<typeof progressed>[2]) =>
    progressed(terminal, { ...SCORING, label }, steps).split("\r\x1b[2K").slice(1, -1);
  assertEquals(drawn("Scoring", [[50, 1], [1950, 1, name]]), [
    "Scoring: 1/2 rows, 1s left, 20 rows/s",
  ]);
  const [line] = drawn(name.repeat(2), [[1950, 1]]);
  assertEquals(displayWidth(line!), 58);
});

Deno.test("progress: output goes above the redrawn line", () => {
  const capture = captureIo({ terminals: ["stdout", "stderr"] });
  capture.io.redraw("half");
  capture.io.write("row\n");
  capture.io.redraw("");
  assertEquals(capture.stderr(), "half\r\x1b[2Khalf\r\x1b[2K");
});

Deno.test("progress: plain lines per interval elsewhere, under CI and --no-progress", () => {
  const cases: CaptureOptions[] = [
    {},
    { terminals: ["stderr"], env: { CI: "1" } },
    { terminals: ["stderr"], settings: UNSEEN },
  ];
  for (const capture of cases) {
    const steps = [1, 2, 3, 4].map((step) => [500, step] as const);
    assertEquals(
      progressed(capture, { ...TRAINING, everyItems: 2 }, steps),
      "Training: 1 steps, 2 steps/s\nTraining: 2 steps, 2 steps/s\n" +
        "Training: 4 steps, 2 steps/s\nTraining: 4 steps in 2s, 2 steps/s\n",
    );
  }
});

Deno.test("progress: slow items get a line of their own, at longer and longer times", () => {
  const options = { ...TRAINING, everyItems: 10, line: () => ["line"] };
  const seconds = [8, 8, 12, 12, 20];
  const lines = seconds.map((_, count) => {
    const steps = seconds.slice(0, count + 1).map((each, i) => [1000 * each, i + 1] as const);
    return progressed({ settings: UNSEEN }, options, steps).match(/^line$/gm)?.length;
  });
  assertEquals(lines, [1, 1, 2, 2, 3]);
});

Deno.test("progress: a resumed run counts the whole run, and its rate only what is new", () => {
  const options = { ...TRAINING, total: 10, from: 6, everyItems: 1 };
  assertEquals(
    progressed({ settings: UNSEEN }, options, [[1000, 8]]),
    "Training: 8/10 steps, 1s left, 2 steps/s\nTraining: 2 steps in 1s, 2 steps/s\n",
  );
});

Deno.test("progress: at 80 columns the time left is kept, and the rate goes first", () => {
  const terminal: CaptureOptions = { terminals: ["stderr"], columns: 80 };
  const options = { label: "Evaluating a_long_name_of_a_task", unit: "samples", total: 100 };
  const drawn = progressed(terminal, options, [[3000, 7]]).split("\r\x1b[2K")[1];
  // The bar has gone, too.
  assertEquals(drawn, "Evaluating a_long_name_of_a_task: 7/100 samples, 40s left, 2.33 samples/s");
  const long = { ...options, label: `${options.label}_of_many_words` };
  const longer = progressed(terminal, long, [[3000, 7]]).split("\r\x1b[2K")[1];
  assertEquals(longer, "Evaluating a_long_name_of_a_task_of_many_words: 7/100 samples, 40s left");
});

Deno.test("progress: the time left is never 0 before the end", () => {
  const { io, stderr, advance } = captureIo();
  using progress = new Progress(io, { ...SCORING, total: 3 });
  const left = (ms: number, done: number) => {
    advance(ms);
    progress.update(done);
    return stderr().trimEnd().split("\n").at(-1)!.match(/\d+s left/)?.[0];
  };
  const shown = [left(10_000, 2), left(60_000, 2), left(10_000, 3)];
  assertEquals(shown, ["5s left", "1s left", "0s left"]);
});

Deno.test("progress: the first chunk of a prompt tells the time left, not 0", () => {
  const { io, stderr, advance } = captureIo();
  using reading = new ReadingProgress(io, "Reading prompt");
  advance(10_000);
  reading.update(256, 1024);
  advance(10_000);
  reading.update(512, 1024);
  assertEquals(stderr(), "Reading prompt: 512/1024 tokens, 20s left, 25.6 tokens/s\n");
  advance(20_000);
  reading.end();
  assert(stderr().endsWith("\nReading prompt: 1024 tokens in 40s, 25.6 tokens/s\n"), stderr());
});

Deno.test("progress: megabytes and their rate are rounded, and small ones are not 0", () => {
  const options = { label: "Writing", unit: "MB", total: 1264.73114 };
  const lines = (done: number) => progressed({}, options, [[40_000, done]]).split("\n");
  assertEquals(lines(0.262144)[0], "Writing: 0.3/1265 MB, 53h35m left, 0.00655 MB/s");
  assertEquals(lines(634.2)[1], "Writing: 634 MB in 40s, 15.9 MB/s");
  assertEquals(lines(0.00012)[1], "Writing: 0.0001 MB in 40s, 0.000003 MB/s");
});

Deno.test("progress: a plain line comes after 2 s, and then every 10 s", () => {
  const steps = [1, 2, 3, 4, 5, 6, 7].map((step) => [2000, step] as const);
  const lines = progressed({}, { ...SCORING, total: 9 }, steps).match(/\d\/9/g);
  assertEquals(lines, ["1/9", "6/9"]);
});

Deno.test("progress: none beside rows on a terminal, under -q, and for a short run elsewhere", () => {
  const silent: CaptureOptions[] = [
    { terminals: ["stdout", "stderr"], settings: { streamsRows: true } },
    { terminals: ["stderr"], settings: { quiet: 1 } },
    {},
  ];
  for (const capture of silent) assertEquals(progressed(capture, SCORING, [[100, 2]]), "");
});
