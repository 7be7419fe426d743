/** Several ranks train as one process does: losses, norms, weights, moments and the place in the data. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { NumericalError } from "../../../core/base/errors.ts";
import { BatchStream } from "../../../core/data/batches.ts";
import { ALONE, type Collective } from "../../../core/collective/collective.ts";
import type { DataParallel } from "../../../core/collective/data_parallel.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { type LoopOptions, type StepReport, train } from "../../../core/train/loop.ts";
import type { Trainer } from "../../../core/train/trainer.ts";
import { loadState, saveState, type TrainingState } from "../../../core/train/training_state.ts";
import { withScratch } from "../../scratch.ts";
import { asRanks, collectiveOf, memoryGroups } from "../../unit/collective/memory_group.ts";
import { tokensInMemory } from "../../unit/data/testing.ts";
import { distance } from "../goldens.ts";
import { oneRate, openTrainer } from "./golden_runs.ts";

const device = new ReferenceDevice("f32");

/** Rows of a step, of which every micro-batch has one; all of 1 to 4 ranks divide it. */
const BATCH = 12;

/** 38 rows, so that the fourth step has two: with four ranks, two have none. */
const DOCUMENTS = Array.from({ length: 38 }, (_, i) =>
  Array.from({ length: 3 + i % 6 }, (_, t) => {
    const id = (i * 31 + t * 7) % 400;
    return t > 1 && i % 3 === 0 ? ~id : id; // of every third, one token alone is trained
  }));

interface Options {
  readonly mode?: "full" | "peft";
  readonly steps?: number;
  /** Folder of a checkpoint to continue from, and one to write at the end. */
  readonly resume?: string;
  readonly save?: string;
  readonly onStep?: (step: number) => void;
}

interface Result {
  readonly reports: StepReport[];
  readonly state: TrainingState;
  readonly trainer: Trainer;
  /** Values of all trained tensors. */
  readonly weights: Float32Array[];
}

function openRank(collective: Collective, { mode = "full" }: Options): Promise<Trainer> {
  const options = { mode, rows: 1, tokens: 8, clip: 0.5, accumulates: true, collective };
  return openTrainer(device, "qwen2-p2-tied-f32", options);
}

async function trainAs(ranks: Collective | DataParallel, options: Options = {}): Promise<Result> {
  const { rank, world, signal } = "rank" in ranks
    ? ranks
    : { rank: 0, world: 1, signal: new AbortController().signal };
  const trainer = await openRank(ranks, options);
  const stores = [tokensInMemory(DOCUMENTS, "tokens")];
  const held = [tokensInMemory(DOCUMENTS.slice(0, 5), "tokens")];
  const longRows = "error" as const;
  const rows = { tokens: 8, batch: 1, seed: 3, pack: false, shuffle: true, epochs: 1, longRows };
  const stream = new BatchStream([{ stores }], rows);
  const none = { lossEma: undefined, emaTokens: 0, firstLoss: undefined };
  let start: TrainingState = { step: 0, tokens: 0, ...none, cursor: stream.cursor };
  if (options.resume) {
    start = await loadState(options.resume, trainer);
    stream.seek(start.cursor as typeof stream.cursor);
  }
  const reports: StepReport[] = [];
  const loop: LoopOptions = {
    schedule: { kind: "constant", steps: options.steps ?? 4, warmup: 0, decay: 1, minFactor: 1 },
    rates: { backbone: 1e-3, prefix: 1e-2, aggregator: 1e-3 },
    microBatches: BATCH / world,
    evalEvery: 3,
    saveEvery: 100,
    evalFeed: () => ranks.share(new BatchStream([{ stores: held }], { ...rows, shuffle: false })),
  };
  const state = await train(trainer, ranks.share(stream), start, loop, {
    signal,
    onStart: () => {},
    onStep: (report) => {
      reports.push(report);
      options.onStep?.(report.step);
    },
    async save(state) {
      if (options.save) await saveState(rank === 0 ? options.save : undefined, trainer, state);
    },
  });
  const weights = trainer.groups.map(({ group, values }) =>
    device.read(values).slice(0, group.count) as Float32Array
  );
  return { reports, state, trainer, weights };
}

function assertClose(found: Result, expected: Result): void {
  assertEquals(found.reports.length, expected.reports.length);
  found.reports.forEach((report, i) => {
    const other = expected.reports[i]!;
    const relative = (key: "loss" | "gradNorm") => Math.abs(report[key] / other[key] - 1);
    assertEquals([report.step, report.tokens], [other.step, other.tokens]);
    assert(relative("loss") < 1e-6, `step ${report.step}: loss ${report.loss}, ${other.loss}`);
    assert(relative("gradNorm") < 1e-5, `step ${report.step}: norm ${report.gradNorm}`);
    if (other.validation) {
      assert(Math.abs(report.validation!.loss / other.validation.loss - 1) < 1e-6);
    }
    report.streamWeights!.forEach((weight, p) =>
      assert(Math.abs(weight / other.streamWeights![p]! - 1) < 1e-5)
    );
  });
  assertEquals(found.state.cursor, expected.state.cursor);
  found.weights.forEach((values, i) => assert(distance(values, expected.weights[i]!) < 1e-5));
}

const SOLO = {
  full: await trainAs(ALONE, { mode: "full" }),
  peft: await trainAs(ALONE, { mode: "peft" }),
};

for (const mode of ["full", "peft"] as const) {
  const runs = mode === "full"
    ? [[2, false], [2, true], [3, true], [4, true]] as const
    : [[2, false], [4, true]] as const;
  for (const [world, shards] of runs) {
    const name = `${world} ranks equal one: ${mode}, ${shards ? "sharded" : "replicated"}`;
    Deno.test(name, async () => {
      const work = (ranks: DataParallel) => trainAs(ranks, { mode });
      const run = () => asRanks(world, device, work, () => ({ shards }));
      const all = await run();
      if (mode === "peft" && shards) {
        assertEquals(
          (await run())[0]!.weights,
          all[0]!.weights,
          "a repeated run has the same bits",
        );
      }
      all.forEach((result) => assertClose(result, SOLO[mode]));
      for (const { weights, reports, trainer } of all) {
        assertEquals(weights, all[0]!.weights, "weights are the same bits on every rank");
        assertEquals(reports.map(({ loss }) => loss), all[0]!.reports.map(({ loss }) => loss));
        for (const { group, slice, m } of trainer.groups) {
          assertEquals(m.shape, [slice.count]);
          assert(shards ? slice.count <= group.count / world + 64 : slice.count === group.count);
        }
      }
    });
  }
}

Deno.test("a step exchanges every gradient and every value once", async () => {
  const groups = memoryGroups(2);
  const trainers = await Promise.all(groups.map(async (group) => {
    const { trainer } = await trainAs(collectiveOf(group, device), { steps: 3 });
    return trainer;
  }));
  const padded = trainers[0]!.groups.map(({ gradients }) => gradients.shape[0]!);
  const values = padded.reduce((sum, count) => sum + count);
  // What goes into a reduce-scatter is all gradients, into an all-gather the own slice of the values.
  for (const { bytes } of groups) assertEquals(bytes, 3 * 4 * (values + values / 2));
});

Deno.test("a state of any number of ranks is read by any other", async () => {
  const solo = SOLO.full;
  await withScratch(async (folder) => {
    const at = (name: string) => `${folder}/${name}`;
    for (const name of ["one", "two", "three", "whole"]) await Deno.mkdir(at(name));
    await asRanks(3, device, (ranks) => trainAs(ranks, { steps: 1, save: at("one") }));
    await trainAs(ALONE, { steps: 2, resume: at("one"), save: at("two") });
    const parts = await asRanks(
      4,
      device,
      (ranks) => trainAs(ranks, { steps: 4, resume: at("two"), save: at("three") }),
    );
    for (const { reports, weights, state } of parts) {
      assertEquals(reports.map(({ step }) => step), [3, 4]);
      assert(Math.abs(reports[1]!.loss / solo.reports[3]!.loss - 1) < 1e-6);
      assertEquals(state.cursor, solo.state.cursor);
      weights.forEach((values, i) => assert(distance(values, solo.weights[i]!) < 1e-5));
    }
    // What was gathered from slices is what replicas hold.
    const name = "training_state.safetensors";
    const whole = { steps: 1, save: at("whole") };
    await asRanks(3, device, (ranks) => trainAs(ranks, whole), () => ({ shards: false }));
    const [sliced, replicated] = await Promise.all(
      ["one", "whole"].map((each) => Deno.readFile(`${at(each)}/${name}`)),
    );
    assertEquals(sliced, replicated);
  });
});

Deno.test("an abort of one rank stops all after the same step", async () => {
  const abort = new AbortController();
  const onStep = (step: number) => step === 1 && abort.abort();
  const all = await asRanks(
    3,
    device,
    (ranks) => trainAs(ranks, ranks.rank === 2 ? { onStep } : {}),
    (rank) => rank === 2 ? { interruption: abort.signal } : {},
  );
  assertEquals(all.map(({ state }) => state.step), [2, 2, 2]);
});

Deno.test("a loss that is not finite on one rank ends all with the same error", async () => {
  await asRanks(2, device, async (ranks) => {
    const trainer = await openRank(ranks, {});
    const weights = [1, 1, ranks.rank ? NaN : 1, 0, 0, 0, 0, 0];
    const zeros = new Array(8).fill(0);
    const rows = { ids: zeros, positions: zeros, targets: zeros };
    await trainer.accumulate({ ...rows, weights, predicted: 3 });
    await trainer.exchangeSums();
    const message = "training diverged at step 1: loss is NaN";
    await assertRejects(() => trainer.update(1, oneRate(1)), NumericalError, message);
  });
});
