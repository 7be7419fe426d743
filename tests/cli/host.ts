/**
 * A process that runs command lines one after another, as `runParscale` asks it to.
 *
 * Each has the environment, the working folder and the streams that it would have in a process of its
 * own. What the process itself does, such as signals, pipes and exits, needs one: see `parscale` in
 * `run.ts`.
 */
import type { HostRequest, RunResult } from "./host_client.ts";

/** Runs one command line. */
async function answer({ args, env, cwd, stdin }: HostRequest): Promise<RunResult> {
  const [{ main }, { captureIo }] = await Promise.all([
    import("../../cli/main.ts"),
    import("../unit/cli/capture_io.ts"),
  ]);
  for (const name of Object.keys(Deno.env.toObject())) if (!(name in env)) Deno.env.delete(name);
  for (const [name, value] of Object.entries(env)) Deno.env.set(name, value);
  Deno.chdir(cwd);
  // A line of progress comes after ten seconds, which a busy machine may take for any command.
  const now = () => performance.now() / 100;
  const { io, stdout, stderr } = captureIo({ stdin, env, now });
  const code = await main(args, io);
  Deno.chdir("/"); // the folder is removed
  return { code, stdout: stdout(), stderr: stderr() };
}

let rest = "";
for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + text).split("\n");
  rest = lines.pop()!;
  for (const line of lines) {
    const result = new TextEncoder().encode(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
    for (let at = 0; at < result.length;) at += Deno.stdout.writeSync(result.subarray(at));
  }
}
