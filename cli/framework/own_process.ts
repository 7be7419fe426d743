/**
 * Runs another parscale command in a process of its own that ends when this one does.
 *
 * The child's stdin is a pipe that nothing is written to: it ends with this process, however that
 * ends, and the child with it. A signal that reaches this process is passed on as SIGTERM, so that the
 * child can save.
 */
import { fileURLToPath } from "node:url";
import type { Io } from "../output/io.ts";

/** First argument of such a child; not part of the command line that users see. */
const CHILD_ARGUMENT = "--child";

const ENTRY = new URL("../../mod.ts", import.meta.url);

/** Longest time of a child to save. */
const GRACE_MS = 5000;

/** Runs a command to its end and returns what it printed; its stderr is ours. */
export async function runOwn(
  args: readonly string[],
  io: Io,
): Promise<{ code: number; stdout: string }> {
  const program = Deno.build.standalone
    ? []
    : ["run", "-A", "--node-modules-dir=manual", fileURLToPath(ENTRY)];
  const child = new Deno.Command(Deno.execPath(), {
    args: [...program, CHILD_ARGUMENT, ...args],
    env: { DENO_NO_UPDATE_CHECK: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const end = () => {
    kill(child, "SIGTERM");
    timer = setTimeout(() => kill(child, "SIGKILL"), GRACE_MS);
  };
  if (io.interruption.aborted) end();
  io.interruption.addEventListener("abort", end);
  try {
    const [{ code }, stdout] = await Promise.all([child.status, child.stdout.text()]);
    await child.stdin.close().catch(() => {}); // the reader has gone
    return { code, stdout };
  } finally {
    io.interruption.removeEventListener("abort", end);
    clearTimeout(timer);
  }
}

function kill(child: Deno.ChildProcess, signal: Deno.Signal): void {
  try {
    child.kill(signal);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // it has ended meanwhile
  }
}

/** In the child: ends this process once the one that started it has ended. */
export async function endWithParent(): Promise<void> {
  try {
    for await (const _ of Deno.stdin.readable);
  } catch {
    // A pipe that cannot be read has ended too.
  }
  // Not by an exit, which would wait for computing threads; what is finished is on the disk.
  Deno.kill(Deno.pid, "SIGKILL");
}
