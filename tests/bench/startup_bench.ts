/** Start-up: help, version and completions beside an empty program; the budget is twice its time. */
import { ROOT } from "../fixtures.ts";

function run(...args: string[]): () => Promise<void> {
  return async () => {
    await new Deno.Command(Deno.execPath(), { args: ["run", "-A", ...args], stdout: "null" })
      .output();
  };
}

const empty = run("data:text/javascript,");
Deno.bench({ name: "an empty program", group: "start", baseline: true, fn: empty });
for (const args of ["--help", "--version", "completions bash"]) {
  const fn = run(`${ROOT}mod.ts`, ...args.split(" "));
  Deno.bench({ name: `parscale ${args}`, group: "start", fn });
}
