/** `parscale train` under mpirun of Open MPI and MPICH: several ranks compute what one process does. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { jsonLines } from "../cli/models.ts";
import { programLine, runCommand } from "../cli/run.ts";
import type { Workplace } from "../cli/train_testing.ts";
import { AS_ROOT, type Mpi, mpiLine, MPIS, testRanks, trainRanks } from "./mpi.ts";

/** 77 rows of unequal length, twice: twenty steps, of which the last has one micro-batch. */
function writeRows(place: Workplace): void {
  const rows = Array.from({ length: 77 }, (_, i) => ({
    tokens: Array.from({ length: 4 + i * 5 % 13 }, (_, t) => 1 + (i * 37 + t * t * 11) % 380),
  }));
  place.write("uneven.jsonl", jsonLines(...rows));
}

const RUN = "--data uneven.jsonl --no-pack --seq-len 16 --batch 8 --micro-batch 2 --epochs 2 " +
  "--warmup 4 --clip 0.5 --lr 1e-3";

const MODES = {
  full: "--model p2",
  introduced: "--model p2 --train-params introduced --lr-prefix 1e-2",
  LoRA: "--model p1 --streams 2 --transform lora --train-params introduced --lr-prefix 1e-2",
};

/** Runs ranks, which must succeed in silence but for one result. */
async function trained(mpi: Mpi, world: number, place: Workplace, line: string): Promise<void> {
  const { code, stdout, stderr } = await trainRanks(mpi, world, place, `${line} -q --json`);
  assertEquals([code, stderr], [0, ""], line);
  assertEquals(JSON.parse(stdout).schema, "parscale.train/1", "one rank writes one result");
}

/** The f32 values that a run ended with, which are not rounded as saved weights are. */
async function values(place: Workplace, run: string): Promise<Map<string, Float32Array>> {
  return await place.weights(run, "training_state.safetensors");
}

async function assertEqualRuns(place: Workplace, found: string, expected: string): Promise<void> {
  const [ours, theirs] = [place.metrics(found), place.metrics(expected)];
  assertEquals(ours.map(({ step }) => step), theirs.map(({ step }) => step));
  ours.forEach((row, i) => {
    const relative = (key: string) => Math.abs(row[key] / theirs[i][key] - 1);
    assertEquals(row.tokens, theirs[i].tokens);
    if (row.step === 0) return;
    assert(relative("loss") < 1e-6, `step ${row.step}: loss ${row.loss}, ${theirs[i].loss}`);
    assert(relative("grad_norm") < 1e-5, `step ${row.step}: norm ${row.grad_norm}`);
  });
  const [a, b] = [await values(place, found), await values(place, expected)];
  assertEquals([...a.keys()].sort(), [...b.keys()].sort());
  for (const kind of ["values", "m", "v"]) {
    let difference = 0, size = 0;
    for (const [name, array] of a) {
      if (!name.startsWith(`${kind}.`)) continue;
      const other = b.get(name)!;
      array.forEach((value, i) => difference += (value - other[i]!) ** 2);
      other.forEach((value) => size += value ** 2);
    }
    assert(size > 0 && Math.sqrt(difference / size) < 1e-5, `${kind}: ${difference / size}`);
  }
  const cursor = (run: string) =>
    JSON.parse(Deno.readTextFileSync(`${place.last(run)}/training_state.json`)).cursor;
  assertEquals(cursor(found), cursor(expected));
}

/** One kind is enough for what only the program does. */
const FIRST = MPIS.find(({ launcher }) => launcher !== undefined) ?? MPIS[0]!;

for (const mpi of MPIS) {
  const test = (name: string, fn: (place: Workplace) => Promise<void>) =>
    testRanks(mpi, name, (place) => {
      writeRows(place);
      return fn(place);
    });

  for (const [mode, model] of Object.entries(MODES)) {
    if (mode !== "full" && mpi !== FIRST) continue;
    test(`two ranks equal one over twenty steps, ${mode}`, async (place) => {
      const solo = await place.trained(`${model} ${RUN} --out solo`);
      assertEquals(solo.length, 20);
      assert(solo.some(({ clip_scale }) => clip_scale < 1), "clipping is active");
      assert(solo[19].tokens - solo[18].tokens < 40, "the last step is short");
      await trained(mpi, 2, place, `${model} ${RUN} --out two`);
      await assertEqualRuns(place, "two", "solo");
      assertEquals(place.metrics("two").map(({ world }) => world), new Array(20).fill(2));
      assertEquals(place.names("two"), place.names("solo"), "only rank 0 writes");
    });
  }

  test("a repeated run has the same bits, sharded or not", async (place) => {
    const state = (run: string) =>
      Deno.readFileSync(`${place.last(run)}/training_state.safetensors`);
    for (const flag of mpi === FIRST ? ["", " --no-shard-optimizer"] : [""]) {
      const line = `${MODES.full} ${RUN} --steps 6${flag} --out`;
      await trained(mpi, 2, place, `${line} first --overwrite`);
      await trained(mpi, 2, place, `${line} second --overwrite`);
      assertEquals(state("first"), state("second"));
    }
  });

  test("the first ranks of two machines share the tokenizing", async (place) => {
    await Deno.mkdir(`${place.cwd}/corpus`);
    for (let i = 0; i < 5; i++) {
      const texts = Array.from({ length: 8 }, (_, j) => ({ text: `${i} of ${j} and `.repeat(9) }));
      place.write(`corpus/${i}.jsonl`, jsonLines(...texts));
    }
    const model = new URL("../../fixtures/models/tiny-qwen2", import.meta.url).pathname;
    const line = `--model ${model} --streams 2 --data corpus --seq-len 32 --batch 4 --steps 3`;
    // Every rank takes itself for the first of its machine.
    const alone = mpi.name === "MPICH"
      ? ["MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"]
      : ["OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1"];
    const program = ["env", ...alone, ...programLine(place.args(`${line} --out two -q`))];
    const launch = [mpi.launcher!, ...mpi.options, "-n", "2", ...program];
    const env = { ...place.env, ...AS_ROOT };
    const { code, stderr } = await runCommand(launch, { cwd: place.cwd, env });
    assertEquals([code, stderr], [0, ""]);
    assertEquals(place.names("cache/tokens").length, 5, "one store for each file");
    await place.trained(`${line} --out solo`);
    await assertEqualRuns(place, "two", "solo");
  });

  const other = MPIS.find(({ name }) => name !== mpi.name)!;
  if (other.launcher !== undefined) {
    test("ranks that load another MPI are refused", async (place) => {
      const PARSCALE_MPI = mpi.name === "Open MPI" ? "libmpich.so.12" : "libmpi.so.40";
      const foreign = await runCommand(
        mpiLine(mpi, 2, place.args(`${MODES.full} ${RUN} --out no`)),
        { cwd: place.cwd, env: { ...place.env, ...AS_ROOT, PARSCALE_MPI } },
      );
      assertEquals(foreign.code, 4, foreign.stderr);
      assertStringIncludes(foreign.stderr, `started 2 ranks, but ${other.name} sees 1`);
    });
  }

  if (mpi !== FIRST) continue;

  test("a run of 2, 1 and 4 ranks equals an unbroken one", async (place) => {
    const common = `${MODES.full} ${RUN} --eval-data uneven.jsonl --eval-every 10`;
    await place.trained(`${common} --out solo`);
    await trained(mpi, 2, place, `${common} --out parts --save-every 6`);
    stopAfter(place, "parts", 6);
    await place.trained(`--resume --save-every 6 --out parts`);
    stopAfter(place, "parts", 12);
    await trained(mpi, 4, place, "--resume --out parts");
    await assertEqualRuns(place, "parts", "solo");
    const worlds = place.metrics("parts").map(({ world }) => world);
    assertEquals(worlds, [...Array(7).fill(2), ...Array(6).fill(1), ...Array(8).fill(4)]);
    const evals = (run: string) => place.metrics(run).map(({ eval_loss }) => eval_loss);
    evals("parts").forEach((loss, i) => {
      const other = evals("solo")[i];
      assert(loss === other || Math.abs(loss / other - 1) < 1e-6);
    });
  });

  test("ranks that cannot share a step or have other flags are refused", async (place) => {
    const options = { cwd: place.cwd, env: { ...place.env, ...AS_ROOT } };
    const line = place.args(`${MODES.full} ${RUN} --out no`);
    const uneven = await runCommand(mpiLine(mpi, 3, line), options);
    assertEquals(uneven.code, 2);
    assertStringIncludes(uneven.stderr, "3 ranks cannot share the 4 micro-batches of a step");
    const both = [...mpiLine(mpi, 1, line), ":", "-n", "1"];
    const second = programLine([...line, "--seed", "1"]);
    const differing = await runCommand([...both, ...second], options);
    assertEquals(differing.code, 3, differing.stderr);
    assertMatch(differing.stderr, /error: rank 1 differs from rank 0 in its flags\n/);
  });
}

/** Makes a finished run one that was stopped after a step. */
function stopAfter(place: Workplace, run: string, step: number): void {
  place.write(`${run}/last`, `checkpoint-${String(step).padStart(6, "0")}\n`);
}
