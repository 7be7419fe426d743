/**
 * Ranks that PyTorch's `torchrun` starts: on one machine, and by two agents as on two machines.
 *
 *   PARSCALE_TORCHRUN   path of `torchrun`
 *
 * Skipped where it is not given. What NCCL does with the address is tested on GPUs only.
 */
import { fileURLToPath } from "node:url";
import { assertEquals, assertNotEquals, assertStringIncludes } from "@std/assert";
import { parseLines, PLAIN_MODEL } from "../cli/models.ts";
import { programLine } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";

const torchrun = Deno.env.get("PARSCALE_TORCHRUN");
const CHILD = fileURLToPath(new URL("torchrun_child.ts", import.meta.url));
const DENO = [Deno.execPath(), "run", "-A", "--no-check"];

async function launch(options: readonly string[], program: readonly string[], cwd?: string) {
  const args = [...options, "--no-python", ...program];
  const { code, stdout, stderr } = await new Deno.Command(torchrun!, { args, cwd }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code, stdout: text(stdout), stderr: text(stderr) };
}

/** The ranks of one job, in order. */
function ranksOf(outputs: readonly string[]) {
  return outputs.flatMap(parseLines).toSorted((a, b) => a.rank - b.rank);
}

Deno.test({
  name: "torchrun on one machine: two ranks, one meeting point",
  ignore: !torchrun,
  fn: async () => {
    const { code, stdout, stderr } = await launch(["--nproc-per-node", "2"], [...DENO, CHILD]);
    assertEquals(code, 0, stderr);
    const ranks = ranksOf([stdout]);
    assertEquals(ranks.map(({ rank, world, localRank }) => [rank, world, localRank]), [
      [0, 2, 0],
      [1, 2, 1],
    ]);
    assertEquals(new Set(ranks.map(({ meeting }) => meeting)).size, 1);
    assertEquals(ranks.map(({ idBytes }) => idBytes), [true, true]);
  },
});

Deno.test({
  name: "two agents of torchrun: ranks count through, places on a machine begin anew",
  ignore: !torchrun,
  fn: async () => {
    const { port } = (() => {
      using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
      return listener.addr as Deno.NetAddr;
    })();
    const options = [
      ...["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d"],
      ...["--rdzv-endpoint", `127.0.0.1:${port}`],
    ];
    const agents = await Promise.all([0, 1].map(() => launch(options, [...DENO, CHILD])));
    assertEquals(agents.map(({ code }) => code), [0, 0], agents[0]!.stderr);
    const ranks = ranksOf(agents.map(({ stdout }) => stdout));
    assertEquals(ranks.map(({ rank, localRank }) => [rank, localRank]), [
      [0, 0],
      [1, 1],
      [2, 0],
      [3, 1],
    ]);
    assertEquals(new Set(ranks.map(({ meeting, world }) => `${meeting} ${world}`)).size, 1);
  },
});

Deno.test({
  name: "torchrun on processors is refused with a hint at mpirun",
  ignore: !torchrun,
  fn: () =>
    withScratch(async (cwd) => {
      await Deno.writeTextFile(`${cwd}/rows.jsonl`, '{"text":"one"}\n');
      const command = programLine([
        ...["train", "--model", PLAIN_MODEL, "--data", "rows.jsonl", "--steps", "1"],
        ...["--seq-len", "4", "--batch", "2", "--out", "run"],
      ]);
      const { code, stderr } = await launch(["--nproc-per-node", "2"], command, cwd);
      assertNotEquals(code, 0);
      assertStringIncludes(stderr, "exitcode: 4");
      assertStringIncludes(stderr, "which train together on GPUs only");
      assertStringIncludes(stderr, "`mpirun -n 2 parscale train ...`");
    }),
});
