/** The frame around a command: dispatch, exit codes, error texts, dry run, help, interruption. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import {
  DataError,
  EnvironmentError,
  NumericalError,
  UsageError,
} from "../../../core/base/errors.ts";
import {
  type CommandBody,
  defineCommand,
  entry,
  type ValuesOf,
} from "../../../cli/framework/command.ts";
import { Interrupted } from "../../../cli/output/errors.ts";
import { Report } from "../../../cli/output/report.ts";
import { main } from "../../../cli/main.ts";
import { captureIo, type CaptureOptions } from "./capture_io.ts";

const failures: Record<string, () => unknown> = {
  usage: () => new UsageError("Cannot use it", { hints: ["use another"] }),
  data: () =>
    new DataError('Cannot open checkpoint "m"', {
      cause: new Error("inner", { cause: new Error("innermost") }),
    }),
  environment: () => new EnvironmentError("Cannot find a device"),
  numerical: () => new NumericalError("Cannot continue: found NaN"),
  defect: () => new TypeError("x is\n undefined"),
  blanks: () => new DataError(`a${" ".repeat(2e6)}b`),
  text: () => "just text",
  permission: () => new Deno.errors.NotCapable('Requires read access to "x", run again with -R'),
  memory: () => new RangeError("Array buffer allocation failed"),
  interrupted: () => new Interrupted("SIGINT", ["resume with `parscale probe`"]),
};

const probe = defineCommand({
  description: "For tests only.",
  examples: { "Try it": "parscale probe --fail data" },
  arguments: [{ name: "FILE", summary: "rows" }],
  flags: {
    fail: {
      type: "choice",
      choices: Object.keys(failures),
      summary: "How to fail",
      details: "Throws that error.",
    },
    code: { type: "int", min: 0, max: 1, default: 0, summary: "Exit code", details: "Returned." },
    "max-tokens": { type: "int", min: 1, summary: "Tokens", details: "Unused.", unit: "tokens" },
  },
});
const body: CommandBody<ValuesOf<typeof probe>> = {
  async run(values, ctx) {
    const { io, invocation } = ctx;
    ctx.begin({ lines: [`would return ${values.code}`] });
    if (values.fail !== undefined) throw failures[values.fail]!();
    using report = new Report(io, invocation, { schema: "parscale.probe/1" });
    report.row({ max_tokens: values.maxTokens ?? null });
    await report.finish();
    return values.code;
  },
};
const load = () => Promise.resolve({ command: probe });
const registry = [entry("probe", "Try the frame", load, () => Promise.resolve(body))];

async function run(args: string[], options: CaptureOptions = {}) {
  const capture = captureIo(options);
  const code = await main(args, capture.io, registry);
  return { code, stdout: capture.stdout(), stderr: capture.stderr() };
}

Deno.test("a command returns its result and its code", async () => {
  assertEquals(await run(["probe", "--max-tokens", "4k"]), {
    code: 0,
    stdout: "max tokens\n      4000\n",
    stderr: "",
  });
  assertEquals((await run(["probe", "--code", "1"])).code, 1);
  assertEquals((await run(["--max-tokens", "4k", "--code", "1", "probe"])).code, 1);
  assertEquals((await run(["-qq", "--format", "csv", "probe"])).stdout, "");
  assertEquals((await run(["--format", "csv", "probe"])).stdout, "max_tokens\n\n");
});

Deno.test("every kind of failure has its exit code", async () => {
  const codes = await Promise.all(
    Object.keys(failures).map(async (fail) => (await run(["probe", "--fail", fail])).code),
  );
  assertEquals(codes, [2, 3, 4, 5, 70, 3, 70, 4, 4, 130]);
});

Deno.test("errors: one line, causes after colons, hints after an empty line", async () => {
  assertEquals(
    (await run(["probe", "--fail", "usage"])).stderr,
    "error: Cannot use it\n\nhint: use another\n",
  );
  assertEquals(
    (await run(["probe", "--fail", "data"])).stderr,
    'error: Cannot open checkpoint "m": inner: innermost\n',
  );
  // For hours where the time grows with the square of the length.
  assertEquals(
    (await run(["probe", "--fail", "blanks"])).stderr.length,
    "error: ab\n".length + 2e6,
  );
});

Deno.test("errors: a defect asks for a report; the trace only comes when asked for", async () => {
  const plain = (await run(["probe", "--fail", "defect"])).stderr;
  assertStringIncludes(plain, "internal error in parscale 0.");
  assertStringIncludes(plain, "TypeError: x is undefined\n");
  assertStringIncludes(plain, "hint: please report it with the trace, which PARSCALE_TRACE=1");
  assertEquals(plain.includes("main_test.ts"), false);
  const traced = await run(["probe", "--fail", "defect"], { env: { PARSCALE_TRACE: "1" } });
  assertStringIncludes(traced.stderr, "main_test.ts");
  assertStringIncludes((await run(["probe", "-vv", "--fail", "data"])).stderr, "caused by:");
});

Deno.test("errors: one JSON object with JSON output, also for misuse", async () => {
  const { stderr } = await run(["probe", "--json", "--fail", "usage"]);
  assertEquals(JSON.parse(stderr), {
    error: { code: 2, kind: "usage", message: "Cannot use it", hints: ["use another"] },
  });
  const both = JSON.parse((await run(["probe", "--jsonl", "--cod", "--max-tokens=0"])).stderr);
  assertEquals(both.error.message.split("; ").length, 2);
  assertEquals(both.error.hints, ["did you mean `--code`?"]);
});

Deno.test("flags alone are not a command", async () => {
  const flags = await run(["--json", "--colour"]);
  assertEquals(flags.code, 2);
  assertStringIncludes(JSON.parse(flags.stderr).error.message, "no command given");
});

Deno.test("help wins over everything, with two forms", async () => {
  const short = await run(["probe", "--max-tokens", "0", "-h"]);
  const full = await run(["--help", "probe", "--bogus"]);
  assertEquals([short.code, full.code], [0, 0]);
  assertEquals(short.stdout.length < full.stdout.length, true);
  assertStringIncludes(short.stdout, "  --max-tokens N");
  const text = full.stdout;
  assertEquals(text.indexOf("Examples:") < text.indexOf("For tests only."), true);
  assertStringIncludes(text, "[at least 1; in tokens; env: PARSCALE_MAX_TOKENS]");
  assertStringIncludes(text, "[from 0 to 1; default: 0; env: PARSCALE_CODE]");
  assertStringIncludes(text, "--no-progress");
  assertStringIncludes(text, "`parscale help flags`");
  assertEquals(text.split("\n").every((line) => line.length <= 80), true);
});

Deno.test("dry run: nothing runs, and where each value comes from is told", async () => {
  const table = await run(["probe", "--dry-run", "--fail", "defect", "--max-tokens", "4k"]);
  assertEquals(table.code, 0);
  assertStringIncludes(table.stdout, "--max-tokens  4000    flag\n");
  const json = await run(["probe", "--dry-run", "--json", "--code", "1"]);
  const { origins } = JSON.parse(json.stdout);
  assertEquals([origins.code, origins.max_tokens], ["flag", "default"]);
});
