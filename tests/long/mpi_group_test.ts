/** Collectives over MPI: their results, in one call and in chunks, and a wait that ends. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { runCommand } from "../cli/run.ts";
import { parseLines } from "../cli/models.ts";
import { AS_ROOT, type Mpi, MPIS } from "./mpi.ts";
import { HANG_MS } from "../hang.ts";

const CHILD = new URL("mpi_group_child.ts", import.meta.url).pathname;

function run({ launcher, options }: Mpi, world: number, args: readonly string[]) {
  const program = [Deno.execPath(), "run", "-A", "--node-modules-dir=manual", CHILD, ...args];
  const line = [launcher!, ...options, "-n", `${world}`, ...program];
  return runCommand(line, { env: AS_ROOT });
}

for (const mpi of MPIS) {
  const ignore = mpi.launcher === undefined;
  const missing = ignore ? ` (skipped: no mpirun of ${mpi.name})` : "";
  for (const most of [2 ** 28, 5]) {
    Deno.test({
      name: `${mpi.name}: three ranks exchange arrays, at most ${most} elements a call${missing}`,
      ignore,
      async fn() {
        const { code, stdout, stderr } = await run(mpi, 3, [`${most}`]);
        assertEquals([code, stderr], [0, ""]);
        const all = parseLines(stdout).sort((a, b) => a.rank - b.rank);
        assertEquals(all.map(({ rank }) => rank), [0, 1, 2]);
        const sum = Array.from({ length: 24 }, (_, i) => 3 * i + 300);
        for (const { rank, reduced, doubled, scattered, gathered, sent, sums } of all) {
          assertEquals([reduced, doubled, gathered], [sum, sum, sum]);
          const own = Array.from({ length: 24 }, (_, i) => i + 100 * rank);
          const slice = sum.slice(8 * rank, 8 * rank + 8);
          assertEquals(scattered, own.toSpliced(8 * rank, 8, ...slice));
          assertEquals(sent, new Array(20).fill(2));
          assertEquals(sums, [3, 3, 3 * 2 ** 52]);
        }
      },
    });
  }

  Deno.test({
    name: `${mpi.name}: a sum that a rank never joins ends after the timeout${missing}`,
    ignore,
    timeout: HANG_MS,
    async fn() {
      const { code, stderr } = await run(mpi, 2, [`${2 ** 28}`, "alone"]);
      assertEquals(code, 4, stderr);
      assertStringIncludes(stderr, "rank 0 of 2 got no answer from the others for 1 s");
    },
  });
}
