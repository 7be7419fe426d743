/** Start-up: help, version and completions beside an empty program; the budget is twice its time. */
import { fileURLToPath } from "node:url";
import { ROOT } from "../fixtures.ts";
const ENTRY = `${ROOT}mod.ts`;
const EMPTY = fileURLToPath(new URL("./empty.ts", import.meta.url));

function run(...args: string[]): () => Promise<void> {
  return async () => {
    await new Deno.Command(Deno.execPath(), { args: ["run", "-A", ...args], stdout: "null" })
      .output();
  };
}

Deno.bench({ name: "an empty program", group: "start", baseline: true, fn: run(EMPTY) });
Deno.bench({ name: "parscale --help", group: "start", fn: run(ENTRY, "--help") });
Deno.bench({ name: "parscale --version", group: "start", fn: run(ENTRY, "--version") });
Deno.bench({
  name: "parscale completions bash",
  group: "start",
  fn: run(ENTRY, "completions", "bash"),
});
