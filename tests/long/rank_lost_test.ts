/** Ranks that are killed or stopped: those that are left end at the time limit, with the resume command. */
import { assert, assertStringIncludes } from "@std/assert";
import { assertAllEnd, MPIS, ranksIn, startAndSave, testRanks } from "./mpi.ts";
import { HANG_MS } from "../hang.ts";

for (const mpi of MPIS) {
  testRanks(mpi, "a rank that is stopped ends the others after the timeout", async (place) => {
    // The barrier of a save has no limit: the rank is stopped far from the next one.
    const child = await startAndSave(mpi, place, " --dist-timeout 3s --save-every 40");
    Deno.kill(ranksIn(mpi, place).get(1)!, "SIGSTOP");
    const { code, stderr } = await child.output();
    const text = new TextDecoder().decode(stderr);
    // MPICH's launcher may return the 9 of the rank that it then kills.
    assert(code === 4 || mpi.name === "MPICH" && code === 9, `code ${code}: ${text}`);
    assertStringIncludes(text, "error: rank 0 of 2 got no answer from the others for 3 s");
    assertStringIncludes(text, "hint: resume from the last checkpoint with `parscale train");
    await assertAllEnd(mpi, place);
  }, { timeout: HANG_MS });

  testRanks(mpi, "a rank that is killed ends the job, whose checkpoint stays", async (place) => {
    const child = await startAndSave(mpi, place);
    Deno.kill(ranksIn(mpi, place).get(0)!, "SIGKILL");
    const { code } = await child.output();
    assert(code !== 0);
    await assertAllEnd(mpi, place);
    assert(place.exists(`run/${place.read("run/last").trim()}/training_state.json`));
  }, { timeout: HANG_MS });
}
