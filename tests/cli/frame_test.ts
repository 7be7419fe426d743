/** The frame as a black box: exit codes, streams, help, colour, pipes, start-up. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { commands } from "../../cli/commands/mod.ts";
import { documentOf, succeed } from "./models.ts";
import { ENTRY, environment, runParscale, type RunResult, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const CONFIG = fileURLToPath(new URL("../../deno.json", import.meta.url));

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

Deno.test("misuse: no command shows help on stderr, unknown flags are all named", async () => {
  assertFailedWith(await runParscale([]), "Usage: parscale COMMAND [flags]");
  assertFailedWith(
    await runParscale("completions bash --fromat json --overwrit"),
    "error: unknown flag `--fromat`\nerror: unknown flag `--overwrit`\n\n" +
      "hint: did you mean `--format`?\nhint: did you mean `--overwrite`?\n",
  );
});

function assertFailedWith({ code, stdout, stderr }: RunResult, words: string): void {
  assertEquals([code, stdout], [2, ""]);
  assertStringIncludes(stderr, words);
}

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
    await Deno.writeTextFile(`${cwd}/config.json`, '{ "format": "csv" } // comment');
    const csv = await succeed("help exit-codes --config config.json", { cwd });
    assertStringIncludes(csv, "code,meaning\n0,");
    assertStringIncludes(await succeed("help exit-codes", { cwd }), "code  meaning\n");
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
      const stderr = `error: ${word}\n\nhint: resume with \`parscale wait\`\n`;
      const saved = { code, stdout: "ready\nsaved\n", stderr };
      assertEquals(result, saves ? saved : { code: plain, stdout: "ready\n", stderr: "" });
    }
  }
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

/** Modules that a run may load, which is most of its start; completions read all tables of flags. */
const BUDGETS = {
  ...{ "--help": 36, "--version": 36, "train --help": 40, "nonsense": 36 },
  ...{ "train --nonsense": 42, "completions bash": 72, "help formats": 76 },
};

for (const [line, budget] of Object.entries(BUDGETS)) {
  Deno.test(`parscale ${line} loads at most ${budget} modules, no engine and no package`, async () => {
    const { stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--log-level=debug", ENTRY, ...line.split(" ")],
      env: environment(),
      clearEnv: true,
    }).output();
    const log = new TextDecoder().decode(stderr);
    const modules = new Set([...log.matchAll(/ES module: (file:[^\s,]+)/g)].map(([, url]) => url!));
    assert(modules.size >= 10, "the runtime's log names its modules");
    assert(modules.size <= budget, `${modules.size} modules`);
    const foreign = /node_modules|\/core\/|CJS module/;
    assertEquals([...modules].filter((url) => foreign.test(url) && !LIGHT.test(url)), []);
  });
}
