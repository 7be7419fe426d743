/** Starting parscale as documented makes no look-up of the runtime's own update server. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals } from "@std/assert";
import { environment } from "./run.ts";
import { withScratch } from "../scratch.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const read = (path: string) => Deno.readTextFileSync(`${ROOT}${path}`);

const hasStrace = await new Deno.Command("strace", { args: ["-V"], stdout: "null", stderr: "null" })
  .output().then(({ success }) => success, () => false);

Deno.test("every task that starts parscale sets DENO_NO_UPDATE_CHECK", () => {
  const { tasks } = JSON.parse(read("deno.json")) as { tasks: Record<string, string> };
  for (const name of ["parscale", "demo", "study", "word-problems"]) {
    assert(tasks[name]!.startsWith("DENO_NO_UPDATE_CHECK=1 "), name);
  }
});

/** Connections to the network that a command in the project folder tries to make. */
async function connections(trace: string, ...args: string[]): Promise<string[]> {
  const { code } = await new Deno.Command("strace", {
    args: ["-f", "-e", "trace=connect", "-o", trace, Deno.execPath(), ...args],
    cwd: ROOT,
    env: environment(),
    clearEnv: true,
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).output();
  assertEquals(code, 0);
  return Deno.readTextFileSync(trace).split("\n").filter((line) => /AF_INET6?\b/.test(line));
}

Deno.test({
  name: "deno task parscale connects to nothing",
  ignore: !hasStrace,
  fn: () =>
    withScratch(async (cwd) => {
      const text = "The capital of France is";
      const generate = ["generate", "--model", "fixtures/models/tiny-qwen2", "--prompt", text];
      const args = [...generate, "--max-tokens", "200", "--ignore-eos"];
      assertEquals(await connections(`${cwd}/trace`, "task", "parscale", ...args), []);
    }),
});
