/** Signals to parscale as the first process of a container, where the system ignores most of them. */
import { assertEquals } from "@std/assert";
import { jsonLines, MODEL } from "./models.ts";
import { environment, programLine } from "./run.ts";
import { withScratch } from "../scratch.ts";

/** A new namespace of processes, in which the program has the process id 1. */
const NAMESPACE = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];

async function namespacesWork(): Promise<boolean> {
  try {
    const args = [...NAMESPACE, "true"];
    return (await new Deno.Command("unshare", { args, stderr: "null" }).output()).success;
  } catch {
    return false; // no program of that name
  }
}

/** Starts `generate` as a first process, sends it a signal after its first row; returns its code. */
async function codeAfter(signal: Deno.Signal, cwd: string): Promise<number> {
  const rows = Array.from({ length: 3000 }, () => ({ prompt: "Ann has 3" }));
  await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...rows));
  const line = ["generate", "--model", MODEL, "rows.jsonl", "--max-tokens", "16", "--jsonl"];
  const options = { cwd, env: environment(), clearEnv: true, stdout: "piped" } as const;
  const args = [...NAMESPACE, ...programLine(line)];
  const process = new Deno.Command("unshare", { args, ...options }).spawn();
  const reader = process.stdout.getReader();
  await reader.read();
  const child = await Deno.readTextFile(`/proc/${process.pid}/task/${process.pid}/children`);
  Deno.kill(Number(child), signal);
  while (!(await reader.read()).done);
  return (await process.status).code;
}

const ignore = !await namespacesWork();

for (const [signal, code] of [["SIGTERM", 143], ["SIGINT", 130]] as const) {
  Deno.test({
    name: `${signal} ends the first process of a container`,
    ignore,
    fn: () => withScratch(async (cwd) => assertEquals(await codeAfter(signal, cwd), code)),
  });
}
