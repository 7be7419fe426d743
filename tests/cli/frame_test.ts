/** The frame as a black box: exit codes, streams, help, colour, pipes, start-up. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { commands } from "../../cli/commands/mod.ts";
import type { EndingSignal } from "../../cli/output/signals.ts";
import { assertFailed, succeed } from "./models.ts";
import { ENTRY, environment, runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const CONFIG = fileURLToPath(new URL("../../deno.json", import.meta.url));

Deno.test("version and help go to stdout with 0", async () => {
  const { version } = JSON.parse(await Deno.readTextFile(CONFIG));
  for (const args of [["--version"], ["-V"], ["score", "-V"]]) {
    assertEquals(await succeed(args), `parscale ${version}\n`);
  }
  for (const args of [["--help"], ["-h"], ["help"]]) {
    const stdout = await succeed(args);
    for (const { name, summary } of commands) {
      assertStringIncludes(stdout, name);
      assertStringIncludes(stdout, summary);
    }
  }
});

Deno.test("no command is misuse: help on stderr, nothing on stdout", async () => {
  const { code, stdout, stderr } = await runParscale([]);
  assertEquals([code, stdout], [2, ""]);
  assertStringIncludes(stderr, "Usage: parscale COMMAND [flags]");
});

Deno.test("unknown command and unknown flags: all named, nearest suggested, exit 2", async () => {
  const command = await runParscale(["completoins"]);
  assertEquals([command.code, command.stdout], [2, ""]);
  assertStringIncludes(command.stderr, 'error: unknown command "completoins"\n');
  assertStringIncludes(command.stderr, "hint: did you mean `completions`?");
  const flags = await runParscale(["completions", "bash", "--fromat", "json", "--overwrit"]);
  assertEquals([flags.code, flags.stdout], [2, ""]);
  assertEquals(
    flags.stderr,
    "error: unknown flag `--fromat`\n" +
      "error: unknown flag `--overwrit`\n\n" +
      "hint: did you mean `--format`?\nhint: did you mean `--overwrite`?\n",
  );
});

Deno.test("errors are one JSON object on stderr with --json", async () => {
  const { code, stdout, stderr } = await runParscale(["completions", "tcsh", "--json"]);
  assertEquals([code, stdout], [2, ""]);
  const { error } = JSON.parse(stderr);
  assertEquals(Object.keys(error), ["code", "kind", "message", "hints"]);
  assertEquals([error.code, error.kind], [2, "usage"]);
});

Deno.test("help topics and command help", async () => {
  const codes = await runParscale(["help", "exit-codes"]);
  assertEquals(codes.code, 0);
  for (const code of [0, 1, 2, 3, 4, 5, 70, 130, 143]) {
    assert(new RegExp(`^ *${code}  `, "m").test(codes.stdout), String(code));
  }
  for (const topic of ["formats", "environment", "presets"]) {
    assertEquals((await runParscale(["help", topic])).code, 0, topic);
  }
  const json = JSON.parse((await runParscale(["help", "exit-codes", "--json"])).stdout);
  assertEquals([json.schema, json.command, json.results[2].code], ["parscale.help/1", "help", 2]);
  const [byTopic, byFlag] = await Promise.all([
    runParscale(["help", "completions"]),
    runParscale(["completions", "--help"]),
  ]);
  assertEquals(byTopic, byFlag);
  assertEquals((await runParscale(["help", "exit-code"])).code, 2);
});

Deno.test("a closed pipe ends quietly with 0", async () => {
  const script = 'parscale completions zsh | head -c 10; echo " ${PIPESTATUS[0]}"';
  assertEquals(await runShell(script), { code: 0, stdout: "#compdef p 0\n", stderr: "" });
  const closed = await runShell("(sleep 0.1; parscale help environment; echo $? >&2) | true");
  assertEquals([closed.code, closed.stderr], [0, "0\n"]);
});

Deno.test("a closed stderr does not change the exit code", async () => {
  const script = "{ sleep 0.1; parscale nonsense 2>&1; } | true; echo ${PIPESTATUS[0]}";
  assertEquals((await runShell(script)).stdout, "2\n");
  assertEquals((await runShell("parscale nonsense 2>&-; echo $?")).stdout, "2\n");
});

Deno.test("colour is off in a pipe, on with --color always and FORCE_COLOR, NO_COLOR wins", async () => {
  const colored = async (args: string[], env: Record<string, string> = {}) =>
    (await runParscale([...args, "nonsense"], { env })).stderr.includes("\x1b[");
  assertEquals(await colored([]), false);
  assertEquals(await colored(["--color", "always"]), true);
  assertEquals(await colored([], { FORCE_COLOR: "1" }), true);
  assertEquals(await colored([], { FORCE_COLOR: "1", NO_COLOR: "1" }), false);
});

Deno.test("environment and config set flags; a working folder is never read unasked", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/config.json`, '{ "format": "csv" } // comment');
    const topic = ["help", "exit-codes"];
    const csv = (await runParscale([...topic, "--config", "config.json"], { cwd })).stdout;
    assertStringIncludes(csv, "code,meaning\n0,");
    const env = { PARSCALE_FORMAT: "jsonl" };
    const jsonl = await runParscale([...topic, "--config", "config.json"], { cwd, env });
    assertEquals(JSON.parse(jsonl.stdout.split("\n")[0]!).code, 0);
    assertStringIncludes((await runParscale(topic, { cwd })).stdout, "code  meaning\n");
    await Deno.writeTextFile(`${cwd}/config.json`, '{ "formt": "csv" }');
    const unknown = await runParscale([...topic, "--config", "config.json"], { cwd });
    assertEquals(unknown.code, 2);
    assertStringIncludes(unknown.stderr, "did you mean `format`?");
  }));

Deno.test("a dry run prints a config that repeats it, and touches nothing", () =>
  withScratch(async (cwd) => {
    const args = ["completions", "bash", "--out", "script", "--quiet", "--dry-run", "--json"];
    const plan = await runParscale(args, { cwd });
    assertEquals([plan.code, plan.stderr], [0, ""]);
    assertEquals([...Deno.readDirSync(cwd)], []);
    await Deno.writeTextFile(`${cwd}/plan.json`, plan.stdout);
    const again = await runParscale(["completions", "bash", "--config", "plan.json"], { cwd });
    assertEquals(again, { code: 0, stdout: "", stderr: "" });
    assertStringIncludes(await Deno.readTextFile(`${cwd}/script`), "complete -F _parscale");
  }));

Deno.test("an existing file is only replaced with --overwrite", () =>
  withScratch(async (cwd) => {
    const args = ["help", "formats", "-o", "formats.txt"];
    assertEquals((await runParscale(args, { cwd })).code, 0);
    assertFailed(await runParscale(args, { cwd }), 2, "hint: pass --overwrite, or another name");
    assertEquals((await runParscale([...args, "--overwrite"], { cwd })).code, 0);
    assertEquals([...Deno.readDirSync(cwd)].map(({ name }) => name), ["formats.txt"]);
  }));

/** A program whose one command waits for ever, or saves when it is interrupted. */
function waitingProgram(savesOnInterrupt: boolean): string {
  const at = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);
  return `
    import { runProcess } from ${at("../../cli/main.ts")};
    import { Interrupted } from ${at("../../cli/output/errors.ts")};
    const command = {
      name: "wait", summary: "Wait", description: "Waits.", examples: {}, flags: {},
      savesOnInterrupt: ${savesOnInterrupt},
    };
    const body = {
      async run(_values, io) {
        io.write("ready\\n");
        await new Promise((resolve) => {
          const timer = setTimeout(resolve, 20000);
          io.interruption.addEventListener("abort", () => (clearTimeout(timer), resolve()));
        });
        io.write("saved\\n");
        throw new Interrupted(io.interruption.reason.signal, ["resume with \`parscale wait\`"]);
      },
    };
    const registry = [{ ...command, load: async () => command, body: async () => body }];
    await runProcess(["wait"], registry);`;
}

/** Starts the program; `shell` runs before it in the same process. */
function startWaiting(savesOnInterrupt: boolean, shell = ""): Deno.ChildProcess {
  const program = waitingProgram(savesOnInterrupt);
  const deno = ["eval", "--node-modules-dir=manual", "--config", CONFIG, "--ext=js", program];
  return new Deno.Command("sh", {
    args: ["-c", `${shell}\nexec "$@"`, "sh", Deno.execPath(), ...deno],
    env: environment(),
    clearEnv: true,
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

async function interrupted(savesOnInterrupt: boolean, signal: EndingSignal) {
  const child = startWaiting(savesOnInterrupt);
  const decoder = new TextDecoder();
  let stdout = "";
  for await (const part of child.stdout) {
    if (stdout === "") child.kill(signal);
    stdout += decoder.decode(part);
  }
  const stderr = await child.stderr.text();
  return { code: (await child.status).code, stdout, stderr };
}

Deno.test("signals: 130 and 143; a command that saves does so first and tells how to continue", async () => {
  const cases = [
    ["SIGINT", 130, "Interrupted"],
    ["SIGTERM", 143, "Terminated"],
    ["SIGHUP", 143, "Terminated"],
  ] as const;
  for (const [signal, code, word] of cases) {
    assertEquals(await interrupted(true, signal), {
      code,
      stdout: "ready\nsaved\n",
      stderr: `error: ${word}\n\nhint: resume with \`parscale wait\`\n`,
    });
    const plain = signal === "SIGHUP" ? 129 : code;
    assertEquals(await interrupted(false, signal), { code: plain, stdout: "ready\n", stderr: "" });
  }
});

Deno.test({
  name: "nohup: SIGHUP does nothing where it is ignored",
  ignore: Deno.build.os !== "linux",
  async fn() {
    const child = startWaiting(true, "trap '' HUP");
    const decoder = new TextDecoder();
    let stdout = "";
    for await (const part of child.stdout) {
      if (stdout === "") {
        child.kill("SIGHUP");
        setTimeout(() => child.kill("SIGINT"), 500);
      }
      stdout += decoder.decode(part);
    }
    await child.stderr.cancel();
    assertEquals([(await child.status).code, stdout], [130, "ready\nsaved\n"]);
  },
});

Deno.test("a missing permission is told with our remedy, not the runtime's", async () => {
  const { code, stderr } = await runShell(
    `'${Deno.execPath()}' run --no-prompt '${ENTRY}' help --config x.json`,
  );
  assertEquals(code, 4);
  assertStringIncludes(stderr, "error: missing permission: read access");
  assertStringIncludes(stderr, "hint: run with `deno run -A mod.ts`");
});

/** Modules that may be loaded at the start: tables and names without imports of their own. */
const LIGHT =
  /parse_args\.js$|core\/(base\/(errors|native_calls|version|write_all|platform\/\w+)|analysis\/devices|eval\/tasks\/names)\.ts$/;

Deno.test("help, version, completions and misuse load no engine and no table package", async () => {
  const lines = [["--help"], ["--version"], ["completions", "bash"], ["help", "formats"], [
    "nonsense",
  ]];
  for (const args of lines) {
    const { stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--log-level=debug", ENTRY, ...args],
      env: environment(),
      clearEnv: true,
    }).output();
    const log = new TextDecoder().decode(stderr);
    const modules = new Set([...log.matchAll(/ES module: (file:[^\s,]+)/g)].map(([, url]) => url!));
    assert(modules.size >= 10, `${args}: the runtime's log names its modules`);
    assert(modules.size <= 30 + 2 * commands.length, `${args}: ${modules.size} modules`);
    const foreign = [...modules].filter((url) =>
      /node_modules|\/core\//.test(url) &&
      !LIGHT.test(url)
    );
    assertEquals(foreign, [], args.join(" "));
    assertEquals(/cli-table3|onnxruntime|CJS module/.test([...modules].join(" ")), false);
  }
});
