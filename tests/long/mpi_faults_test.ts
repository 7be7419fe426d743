/** Signals and deaths of ranks under mpirun: all save or all end, and the last checkpoint loads. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { ROWS, type Workplace } from "../cli/train_testing.ts";
import { assertAllEnd, MPIS, ranksIn, startAndSave, testRanks, trainRanks } from "./mpi.ts";

/** Resumes the run as one process and ends it after a step. */
async function assertResumes(place: Workplace): Promise<void> {
  const { step } = JSON.parse(Deno.readTextFileSync(`${place.last("run")}/training_state.json`));
  const child = place.start("--resume --out run -q --jsonl");
  const stderr = new Response(child.stderr).text();
  let text = "";
  for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
    if (text === "") child.kill("SIGTERM");
    text += part;
  }
  const { code } = await child.status;
  assertEquals([JSON.parse(text.split("\n")[0]!).step, code], [step + 1, 143], await stderr);
}

for (const mpi of MPIS) {
  // Open MPI kills its ranks a second after SIGTERM; SIGUSR2 it only passes on.
  const stop = mpi.name === "Open MPI" ? "SIGUSR2" : "SIGTERM";

  testRanks(mpi, `${stop} to mpirun makes all ranks save`, async (place) => {
    const child = await startAndSave(mpi, place);
    child.kill(stop);
    const { code, stderr } = await child.output();
    const text = new TextDecoder().decode(stderr);
    // MPICH's launcher may return 0 after a signal, whatever its ranks return.
    assert(code === 143 || mpi.name === "MPICH" && code === 0, `code ${code}: ${text}`);
    assertMatch(text, /error: Terminated\n\nhint: step \d+ is saved; resume with/);
    assertEquals(text.match(/is saved/g)!.length, 1, "one rank reports");
    const { step } = place.metrics("run").at(-1);
    const saved = Number(place.last("run").split("-").at(-1));
    assertEquals(saved, step, "the last step is saved");
    await assertResumes(place);
  });

  for (const victim of [0, 1]) {
    testRanks(mpi, `no rank lives long after rank ${victim} was killed`, async (place) => {
      const child = await startAndSave(mpi, place);
      const ranks = ranksIn(mpi, place);
      assertEquals(ranks.size, 2);
      Deno.kill(ranks.get(victim)!, "SIGKILL");
      const end = assertAllEnd(mpi, place);
      const { code } = await child.output();
      await end;
      assert(code !== 0, "mpirun reports the loss");
      await assertResumes(place);
    });
  }

  testRanks(mpi, "a signal that one rank gets makes all save", async (place) => {
    const child = await startAndSave(mpi, place);
    Deno.kill(ranksIn(mpi, place).get(1)!, "SIGTERM");
    const { code, stderr } = await child.output();
    assertEquals(code, 143, new TextDecoder().decode(stderr));
    const saved = Number(place.last("run").split("-").at(-1));
    assertEquals(saved, place.metrics("run").at(-1).step);
  });

  testRanks(mpi, "a rank that cannot begin ends those that wait for it", async (place) => {
    await place.trained(`--model p2 ${ROWS} --steps 1 --out run`);
    const line = `--model p2 ${ROWS} --micro-batch 2 --steps 1 --out run -q`;
    const { code, stderr } = await trainRanks(mpi, 2, place, line);
    assertEquals(code, 2, stderr);
    assertStringIncludes(stderr, 'error: "run" already exists');
    await assertAllEnd(mpi, place);
  });

  testRanks(
    mpi,
    "a rank that fails alone ends the job with its code and its name",
    async (place) => {
      const child = await startAndSave(mpi, place);
      await child.stdout.cancel();
      child.kill(stop);
      await child.stderr.cancel();
      await child.status;
      // Only rank 0 writes, so it alone meets a folder that cannot be written.
      await Deno.remove(`${place.cwd}/run/metrics.jsonl`);
      await Deno.mkdir(`${place.cwd}/run/metrics.jsonl`);
      const { code, stderr } = await trainRanks(mpi, 2, place, "--resume --out run -q");
      assertStringIncludes(stderr, "metrics.jsonl");
      assert(![0, 143].includes(code), `code ${code}`);
      assert(!stderr.includes("[rank 1]"), stderr);
      await assertAllEnd(mpi, place);
    },
  );

  testRanks(mpi, "a loss that is not finite ends all ranks with code 5", async (place) => {
    const line = `--model p2 ${ROWS} --micro-batch 2 --steps 50 --lr 1e30 --warmup 0 --clip 0 -q`;
    const { code, stderr } = await trainRanks(mpi, 2, place, `${line} --out run`);
    assertEquals(code, 5, stderr);
    assertEquals(stderr.match(/error: training diverged at step/g)?.length, 1, stderr);
  });
}
