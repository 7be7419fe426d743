/**
 * Installed as a command by `deno install` from a clone, and imported by a program in another folder.
 *
 * All in an empty HOME. They fetch packages from the npm registry, as an installation does.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { VERSION } from "../../core/base/version.ts";
import { ROOT } from "../../cli/release/stage.ts";
import { MODEL } from "../cli/models.ts";
import { withScratch } from "../cli/run.ts";

const GENERATE = ["generate", "--model", MODEL, "--prompt", "a", "--max-tokens", "4", "--jsonl"];

/** Runs a program as the user whose HOME is `home`; settings of the registry stay. */
async function runAt(home: string, [program, ...args]: readonly string[], cwd = home) {
  const { code, stdout, stderr } = await new Deno.Command(program!, {
    args,
    cwd,
    env: { HOME: home, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1", XDG_CACHE_HOME: `${home}/cache` },
    stdin: "null",
  }).output();
  const text = new TextDecoder();
  return { code, stdout: text.decode(stdout), stderr: text.decode(stderr) };
}

/** The same for every way to install. */
async function requireWorking(home: string, parscale: string): Promise<void> {
  assertEquals((await runAt(home, [parscale, "--version"])).stdout, `parscale ${VERSION}\n`);
  const generated = await runAt(home, [parscale, ...GENERATE]);
  assertEquals(generated.code, 0, generated.stderr);
  assertEquals(JSON.parse(generated.stdout).tokens.length, 4);
  const misuse = await runAt(home, [parscale, "genrate"]);
  assertEquals([misuse.code, misuse.stdout], [2, ""]);
  assertStringIncludes(misuse.stderr, 'error: unknown command "genrate"');
  const closed = await runAt(home, [
    "bash",
    "-c",
    `"${parscale}" fit --preset paper | true; echo \${PIPESTATUS[0]}`,
  ]);
  assertEquals(closed.stdout, "0\n", closed.stderr);
}

Deno.test("deno install makes a command that works from any folder", () =>
  withScratch(async (home) => {
    const install = ["install", "-g", "-A", "-n", "parscale", "--config", "deno.json", "mod.ts"];
    const { code, stderr } = await runAt(home, [Deno.execPath(), ...install], ROOT);
    assertEquals(code, 0, stderr);
    await requireWorking(home, `${home}/.deno/bin/parscale`);
  }));

Deno.test("a program in another folder checks and runs with a link to the clone", () =>
  withScratch(async (home) => {
    const config = { links: [ROOT], unstable: ["worker-options"] };
    await Deno.writeTextFile(`${home}/deno.json`, JSON.stringify(config));
    await Deno.writeTextFile(
      `${home}/main.ts`,
      `import { type Completion, openModel } from ${JSON.stringify(`${ROOT}mod.ts`)};
using model = await openModel(${JSON.stringify(`${ROOT}fixtures/models/tiny-qwen2`)});
const messages = [{ role: "user", content: "a" }];
const { tokens }: Completion = await model.complete(messages, { maxTokens: 4 });
console.log(tokens.length);
`,
    );
    const checked = await runAt(home, [Deno.execPath(), "check", "main.ts"]);
    assertEquals(checked.code, 0, checked.stderr);
    const { stdout, stderr } = await runAt(home, [Deno.execPath(), "run", "-A", "main.ts"]);
    assertEquals(stdout, "4\n", stderr);
  }));
