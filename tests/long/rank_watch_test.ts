/** Ranks that are killed or stopped: those that are left name them and end. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { runCommand } from "../cli/run.ts";
import { AS_ROOT, assertAllEnd, type Mpi, MPIS, ranksIn, startAndSave, testRanks } from "./mpi.ts";
import { HANG_MS } from "../hang.ts";

const CHILD = new URL("rank_watch_child.ts", import.meta.url).pathname;

/** Open MPI ends the others a second after the death of one, unless it is told to wait. */
function patient(mpi: Mpi): Mpi {
  const more = mpi.name === "Open MPI" ? ["--mca", "odls_base_sigkill_timeout", "4"] : [];
  return { ...mpi, options: [...mpi.options, ...more] };
}

for (const mpi of MPIS) {
  testRanks(mpi, "a rank that is stopped in training is named after the timeout", async (place) => {
    // The barrier of a save has no limit: the rank is stopped far from the next one.
    const child = await startAndSave(mpi, place, " --dist-timeout 3s --save-every 40");
    const pid = ranksIn(mpi, place).get(1)!;
    Deno.kill(pid, "SIGSTOP");
    const { code, stderr } = await child.output();
    const text = new TextDecoder().decode(stderr);
    assertEquals(code, 4, text);
    const name = `rank 1 (pid ${pid} on host ${Deno.hostname()})`;
    assertStringIncludes(text, `error: ${name} stopped answering: it is stopped by a signal`);
    assertStringIncludes(text, "hint: resume from the last checkpoint with `parscale train");
    await assertAllEnd(mpi, place);
  }, { timeout: HANG_MS });

  testRanks(
    mpi,
    "a rank that is stopped inside an exchange is named after the timeout",
    async () => {
      const program = [Deno.execPath(), "run", "-A", "--node-modules-dir=manual", CHILD];
      const line = [mpi.launcher!, ...mpi.options, "-n", "3", ...program];
      const { code, stdout, stderr } = await runCommand(line, { env: AS_ROOT });
      const [pid] = stdout.match(/pid \d+/)!;
      const name = `rank 2 (${pid} on host ${Deno.hostname()})`;
      assertStringIncludes(stderr, `error: ${name} stopped answering: it is stopped by a signal`);
      // MPICH's launcher may return the 9 of the rank that it then kills.
      assert(code === 4 || mpi.name === "MPICH" && code === 9, `code ${code}: ${stderr}`);
    },
    { timeout: HANG_MS },
  );

  testRanks(
    mpi,
    "a rank that is killed is named, where the launcher leaves time",
    async (place) => {
      const child = await startAndSave(patient(mpi), place);
      const pid = ranksIn(mpi, place).get(0)!;
      Deno.kill(pid, "SIGKILL");
      const { code, stderr } = await child.output();
      const text = new TextDecoder().decode(stderr);
      assert(code !== 0);
      const words = `rank 0 \\(pid ${pid} on host ${Deno.hostname()}\\) stopped answering: `;
      assertMatch(text, new RegExp(`\\[rank 1\\] error: ${words}it has ended`));
    },
    { ignore: mpi.name === "MPICH" },
  ); // its launcher kills the others at once
}
