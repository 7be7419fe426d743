/** The frame as a black box: exit codes, streams, help, signals, full devices, start-up, network. */
import { dirname } from "node:path";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { commands } from "../../cli/commands/mod.ts";
import { documentOf, jsonLines, MODEL, names, succeed } from "./models.ts";
import {
  ENTRY,
  environment,
  isInstalled,
  programLine,
  runCommand,
  runParscale,
  runShell,
} from "./run.ts";
import { withScratch } from "../scratch.ts";
import { ROOT } from "../fixtures.ts";

const CONFIG = `${ROOT}deno.json`;

Deno.test("version and help go to stdout with 0", async () => {
  const { version } = JSON.parse(await Deno.readTextFile(CONFIG));
  for (const line of ["--version", "-V", "score -V"]) {
    assertEquals(await succeed(line), `parscale ${version}\n`);
  }
  for (const line of ["--help", "-h", "help"]) {
    const stdout = await succeed(line);
    for (const { name, summary } of commands) {
      assertStringIncludes(stdout, name);
      assertStringIncludes(stdout, summary);
    }
  }
});

Deno.test("misuse: no command shows help on stderr", async () => {
  const { code, stdout, stderr } = await runParscale([]);
  assertEquals([code, stdout], [2, ""]);
  assertStringIncludes(stderr, "Usage: parscale COMMAND [flags]");
});

Deno.test("help topics and command help", async () => {
  const codes = await succeed("help exit-codes");
  for (const code of [0, 1, 2, 3, 4, 5, 70, 130, 143]) {
    assert(new RegExp(`^ *${code}  `, "m").test(codes), String(code));
  }
  for (const topic of ["formats", "environment", "presets"]) await succeed(`help ${topic}`);
  const json = await documentOf("help exit-codes");
  assertEquals([json.schema, json.command, json.results[2].code], ["parscale.help/1", "help", 2]);
  assertEquals(await succeed("help completions"), await succeed("completions --help"));
});

Deno.test("a closed pipe ends quietly with 0", async () => {
  const script = 'parscale completions zsh | head -c 10; echo " ${PIPESTATUS[0]}"';
  assertEquals(await runShell(script), { code: 0, stdout: "#compdef p 0\n", stderr: "" });
  const device =
    "parscale cost 1.6B --batch 1..3000 -o /dev/stdout | head -c 0; echo ${PIPESTATUS[0]}";
  assertEquals(await runShell(device), { code: 0, stdout: "0\n", stderr: "" });
  const closed = await runShell("(sleep 0.1; parscale help environment; echo $? >&2) | true");
  assertEquals([closed.code, closed.stderr], [0, "0\n"]);
});

Deno.test("a closed stderr does not change the exit code", async () => {
  const script = "{ sleep 0.1; parscale nonsense 2>&1; } | true; echo ${PIPESTATUS[0]}";
  assertEquals((await runShell(script)).stdout, "2\n");
  assertEquals((await runShell("parscale nonsense 2>&-; echo $?")).stdout, "2\n");
});

Deno.test("a working folder is never read unasked, and --config overrides the defaults", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/config.json`, '{ "format": "csv" }');
    const csv = await succeed("help exit-codes --config config.json", { cwd });
    assertStringIncludes(csv, "code,meaning\n0,");
    assertStringIncludes(await succeed("help exit-codes", { cwd }), "code  meaning\n");
  }));

/** Words that run a program whose one command does what `run` says. */
function programOf(run: string, savesOnInterrupt = false): string[] {
  const at = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);
  const program = `
    import { runProcess } from ${at("../../cli/main.ts")};
    import { Interrupted } from ${at("../../cli/output/errors.ts")};
    const command = {
      name: "wait", summary: "Wait", description: "Waits.", examples: {}, flags: {},
      savesOnInterrupt: ${savesOnInterrupt},
    };
    const body = { async run(_values, { io }) { ${run} } };
    const registry = [{ ...command, load: async () => command, body: async () => body }];
    await runProcess(["wait"], registry);`;
  const deno = [Deno.execPath(), "eval", "--node-modules-dir=manual", "--config", CONFIG];
  return [...deno, "--ext=js", program];
}

/** Waits for ever, or until it is interrupted. */
const WAIT = `
  io.write("ready\\n");
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, 20000);
    io.interruption.addEventListener("abort", () => (clearTimeout(timer), resolve()));
  });
  io.write("saved\\n");
  throw new Interrupted(io.interruption.reason.signal, ["resume with \`parscale wait\`"]);`;

Deno.test("an error in a promise without a handler is told in our words", async () => {
  const thrown = "new Error('lost')";
  for (const stray of [`Promise.reject(${thrown})`, `setTimeout(() => { throw ${thrown} })`]) {
    const { code, stderr } = await runCommand(programOf(`${stray}; ${WAIT}`));
    assertEquals(code, 70, stderr);
    assert(/^error: internal error in parscale [\d.]+: Error: lost\n/.test(stderr), stderr);
    assertEquals(stderr.includes("Uncaught"), false);
  }
});

/** Starts the program that waits; `shell` runs before it in the same process. */
function startWaiting(savesOnInterrupt: boolean, shell = "", run = WAIT): Deno.ChildProcess {
  return new Deno.Command("sh", {
    args: ["-c", `${shell}\nexec "$@"`, "sh", ...programOf(run, savesOnInterrupt)],
    env: environment(),
    clearEnv: true,
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

/** Runs the program until it has sent its first output, then `act`, and to its end. */
async function interrupted(child: Deno.ChildProcess, act: () => void) {
  const decoder = new TextDecoder();
  let stdout = "";
  for await (const part of child.stdout) {
    if (stdout === "") act();
    stdout += decoder.decode(part);
  }
  const stderr = await child.stderr.text();
  return { code: (await child.status).code, stdout, stderr };
}

Deno.test("signals: 130 and 143; a command that saves does so first and tells how to continue", async () => {
  const cases = [
    ["SIGINT", 130, 130, "Interrupted"],
    ["SIGTERM", 143, 143, "Terminated"],
    ["SIGHUP", 143, 129, "Terminated"],
  ] as const;
  for (const [signal, code, plain, word] of cases) {
    for (const saves of [true, false]) {
      const child = startWaiting(saves);
      const result = await interrupted(child, () => child.kill(signal));
      const stopping = "stopping …; a second signal ends parscale at once\n";
      const stderr = `${stopping}error: ${word}\n\nhint: resume with \`parscale wait\`\n`;
      const saved = { code, stdout: "ready\nsaved\n", stderr };
      assertEquals(result, saves ? saved : { code: plain, stdout: "ready\n", stderr: "" });
    }
  }
});

Deno.test("a signal is answered while the main thread is busy, and the second ends it with 130", async () => {
  const child = startWaiting(true, "", `io.write("ready\\n"); for (;;);`);
  const { code, stderr } = await interrupted(child, () => {
    child.kill("SIGINT");
    setTimeout(() => child.kill("SIGINT"), 500);
  });
  assertEquals([code, stderr], [130, "stopping …; a second signal ends parscale at once\n"]);
});

Deno.test({
  name: "nohup: SIGHUP does nothing where it is ignored",
  ignore: Deno.build.os !== "linux",
  async fn() {
    const child = startWaiting(true, "trap '' HUP");
    const { code, stdout } = await interrupted(child, () => {
      child.kill("SIGHUP");
      setTimeout(() => child.kill("SIGINT"), 500);
    });
    assertEquals([code, stdout], [130, "ready\nsaved\n"]);
  },
});

/** A new namespace of processes, in which the program has the process id 1. */
const NAMESPACE = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];

const namespacesWork = isInstalled("unshare") &&
  (await runCommand(["unshare", ...NAMESPACE, "true"])).code === 0;

/** Starts `generate` as a first process, sends it a signal after its first row; returns its code. */
async function codeAfter(signal: Deno.Signal, cwd: string): Promise<number> {
  const rows = Array.from({ length: 3000 }, () => ({ prompt: "Ann has 3" }));
  await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...rows));
  const line = `generate --model ${MODEL} rows.jsonl --max-tokens 16 --jsonl`;
  const options = { cwd, env: environment(), clearEnv: true, stdout: "piped" } as const;
  const args = [...NAMESPACE, ...programLine(line.split(" "))];
  const process = new Deno.Command("unshare", { args, ...options }).spawn();
  const reader = process.stdout.getReader();
  await reader.read();
  const child = await Deno.readTextFile(`/proc/${process.pid}/task/${process.pid}/children`);
  Deno.kill(Number(child), signal);
  while (!(await reader.read()).done);
  return (await process.status).code;
}

for (const [signal, code] of [["SIGTERM", 143], ["SIGINT", 130]] as const) {
  Deno.test({
    name: `${signal} ends the first process of a container`,
    ignore: !namespacesWork,
    fn: () => withScratch(async (cwd) => assertEquals(await codeAfter(signal, cwd), code)),
  });
}

const COMMANDS = [
  "help formats",
  "completions bash",
  "cost --model 1.6B --streams 2",
  `inspect --model ${MODEL} --json`,
  `generate --model ${MODEL} --prompt a --max-tokens 2`,
  `generate --model ${MODEL} --prompt a --prompt b --max-tokens 2 --jsonl`,
  `visualize --model ${MODEL} --text "a b"`,
];

Deno.test({
  name: "a full device under stdout or -o ends every command with 4, and stays the device it is",
  ignore: Deno.build.os !== "linux",
  fn: () =>
    withScratch(async (cwd) => {
      const full = "no space left on device";
      for (
        const [command, message] of [
          ...[...COMMANDS, "eval ls"].map((line) => [`${line} > /dev/full`, `stdout: ${full}`]),
          ...COMMANDS.map((line) => [`${line} -o /dev/full`, `"/dev/full": ${full}`]),
        ] as [string, string][]
      ) {
        const { code, stdout, stderr } = await runShell(`parscale ${command}`, { cwd });
        assertEquals([code, stdout], [4, ""], `${command}: ${stderr}`);
        assertStringIncludes(stderr.replaceAll('\\"', '"'), `cannot write ${message}`);
      }
      assertEquals([Deno.statSync("/dev/full").isCharDevice, names(cwd)], [true, []]);
      assertEquals((await runShell("parscale nonsense 2> /dev/full")).code, 2);
      assertEquals((await runShell("parscale help formats 2> /dev/full > /dev/full")).code, 4);
    }),
});

Deno.test("a missing permission is told with our remedy, not the runtime's", async () => {
  const { code, stderr } = await runShell(
    `'${Deno.execPath()}' run --no-prompt '${ENTRY}' help --config x.json`,
  );
  assertEquals(code, 4);
  assertStringIncludes(stderr, "error: missing permission: read access");
  assertStringIncludes(stderr, "hint: run with `deno run -A mod.ts`");
});

/** Modules that may be loaded at the start: tables, names, and the writing of files. */
const LIGHT =
  /parse_args\.js$|core\/(base\/(companions|errors|exact_json|files|native_calls|version|write_all|platform\/\w+)|storage\/\w+|analysis\/devices|eval\/tasks\/names)\.ts$/;

/** Modules that a run may load, which is most of its start; completions read all tables of flags. */
const BUDGETS = {
  "--help": 36,
  "--version": 36,
  "train --help": 40,
  "nonsense": 36,
  "train --nonsense": 42,
  "completions bash": 72,
  "help formats": 76,
};

for (const [line, budget] of Object.entries(BUDGETS)) {
  Deno.test(`parscale ${line} loads at most ${budget} modules, no engine and no package`, async () => {
    const run = [Deno.execPath(), "run", "-A", "--log-level=debug", ENTRY];
    const { stderr: log } = await runCommand([...run, ...line.split(" ")]);
    const modules = new Set([...log.matchAll(/ES module: (file:[^\s,]+)/g)].map(([, url]) => url!));
    assert(modules.size >= 10, "the runtime's log names its modules");
    assert(modules.size <= budget, `${modules.size} modules`);
    const foreign = /node_modules|\/core\/|CJS module/;
    assertEquals([...modules].filter((url) => foreign.test(url) && !LIGHT.test(url)), []);
  });
}

Deno.test("every task that starts parscale sets DENO_NO_UPDATE_CHECK", () => {
  const { tasks } = JSON.parse(Deno.readTextFileSync(CONFIG));
  for (const name of ["parscale", "demo", "study", "word-problems"]) {
    assert(tasks[name].startsWith("DENO_NO_UPDATE_CHECK=1 "), name);
  }
});

Deno.test({
  name: "deno task parscale connects to nothing",
  ignore: !isInstalled("strace"),
  fn: () =>
    withScratch(async (folder) => {
      const trace = `${folder}/trace`;
      const task = ["strace", "-f", "-e", "trace=connect", "-o", trace, Deno.execPath(), "task"];
      const generate =
        `parscale generate --model ${MODEL} --prompt a --max-tokens 200 --ignore-eos`;
      const options = { cwd: dirname(CONFIG) };
      assertEquals((await runCommand([...task, ...generate.split(" ")], options)).code, 0);
      const lines = Deno.readTextFileSync(trace).split("\n");
      assertEquals(lines.filter((line) => /AF_INET6?\b/.test(line)), []);
    }),
});
