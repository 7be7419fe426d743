/** The presets of `parscale train` hold the numbers of the paper, and the flags' defaults agree. */
import { assertEquals, assertThrows } from "@std/assert";
import { flagsOf } from "../../../cli/framework/command.ts";
import { command } from "../../../cli/commands/train/flags.ts";
import { parse } from "../../../cli/framework/parse.ts";
import { type Resolution, resolve } from "../../../cli/framework/resolve.ts";
import type { ValuesOf } from "../../../cli/framework/command.ts";
import { countedSlots, microBatchOf, stepsOf } from "../../../core/train/run_length.ts";
import { UsageError } from "../../../core/base/errors.ts";

function resolved(line: string): Promise<Resolution> {
  const table = flagsOf(command);
  const isNew = /paper-(scratch|stage1|openwebtext)/.test(line);
  const source = isNew ? "--config-from paper-1.6b" : line.includes("--model") ? "" : "--model m";
  const needed = `--data d --out run ${source}`.trim();
  const named = { name: "train", ...command };
  return resolve(parse(`${line} ${needed}`.split(" "), table), table, named, () => undefined);
}

/** A value and the place in the paper that gives it; "ours" where the paper is silent. */
type Sourced = readonly [flag: string, value: unknown, source: string];

const from = (source: string, values: Record<string, unknown>): Sourced[] =>
  Object.entries(values).map(([flag, value]) => [flag, value, source]);

const BATCH = from("appendix C", { batch: 1024, "seq-len": 2048 });
const ADAM = [
  ...from("appendix C", { beta1: 0.9, beta2: 0.95, "weight-decay": 0.1 }),
  ...from("ours", { "adam-epsilon": 1e-8, clip: 1 }),
];
const CURVE = { schedule: "cosine", lr: 3e-4, "lr-min": 1e-5, warmup: 2000 };
const COSINE = from("appendix C", CURVE);
const NEW_MODEL = [
  ...from("section 3.1", { init: "scratch", "train-params": "all" }),
  ...from("appendix C", { "init-std": 0.02, "rope-theta": 10_000, "save-dtype": "bf16" }),
];
const STREAMS = [
  ...from("appendix A", { "prefix-tokens": 48, smoothing: 0.1 }),
  ...from("the authors' initialization", { "prefix-init": "normal" }),
];
const OPEN = from("ours", { steps: null, tokens: null, epochs: null });
const LAW = [...BATCH, ...ADAM, ...COSINE, ...OPEN];

const PRESETS: Readonly<Record<string, readonly Sourced[]>> = {
  "paper-scratch": [...LAW, ...NEW_MODEL],
  "paper-stage1": [
    ...[...BATCH, ...ADAM, ...NEW_MODEL, ...OPEN],
    ...from("section 4.1", { schedule: "constant", lr: 3e-4, warmup: 2000 }),
  ],
  "paper-stage2": [
    ...[...BATCH, ...ADAM, ...STREAMS, ...OPEN],
    ...from("ours: section 4.1 says that it anneals", { schedule: "cosine" }),
    ...from("section 4.1", { lr: 3e-4, "lr-min": 1e-5, warmup: 0, "train-params": "all" }),
  ],
  "paper-cpt": [...LAW, ...STREAMS, ...from("section 4.2", { "train-params": "all" })],
  "paper-peft": [...LAW, ...STREAMS, ...from("section 4.2", { "train-params": "introduced" })],
  "paper-instruct": [
    ...from("ours", { batch: 1024, "long-rows": "truncate" }),
    ...from("section 4.1", { "seq-len": 8192, context: 8192, "rope-theta": 100_000, epochs: 2 }),
    ...from("section 4.1", { "train-params": "all" }),
    ...ADAM,
    ...from("ours: that of pre-training", CURVE),
  ],
  "paper-openwebtext": [
    ...LAW,
    ...NEW_MODEL,
    ...from("ours: appendix D has a validation loss", { "eval-split": 0.005 }),
  ],
};

Deno.test("there are no other presets than those below", () => {
  assertEquals(Object.keys(command.presets ?? {}).sort(), Object.keys(PRESETS).sort());
});

for (const [preset, rows] of Object.entries(PRESETS)) {
  Deno.test(`${preset} resolves to the paper's values`, async () => {
    const { config, origins } = await resolved(`--preset ${preset}`);
    for (const [flag, value, source] of rows) {
      assertEquals(config[flag], value as never, `--${flag}, ${source}`);
      if (value !== null) assertEquals(origins[flag], "preset", flag);
    }
    const named = new Set(rows.map(([flag]) => flag));
    const others = Object.keys(origins).filter((flag) => origins[flag] === "preset");
    assertEquals(others.filter((flag) => !named.has(flag) && flag !== "lr-min"), []);
    const flagged = await resolved(`--preset ${preset} --lr 1 --batch 2`);
    assertEquals([flagged.config.lr, flagged.config.batch], [1, 2]);
  });
}

Deno.test("the shortest length counts, in whole steps", async () => {
  const steps = async (line: string, rows?: number) => {
    const { values } = await resolved(`--model m --batch 8 --micro-batch 2 ${line}`);
    const length = values as unknown as ValuesOf<typeof command>;
    return stepsOf(length, 100, rows);
  };
  assertEquals(await steps("--steps 7"), 7);
  assertEquals(await steps("--tokens 1601"), 3);
  assertEquals(await steps("--tokens 1.6k --steps 5"), 2);
  assertEquals(await steps("--epochs 1 --steps 5", 26), 4);
  assertEquals(await steps("--epochs 1 --steps 3", 26), 3);
});

Deno.test("slots whose loss is computed are eighths of all, with room for the fullest batch", () => {
  const of = (batch: number, tokens: number, ...runs: (number[] | undefined)[]) =>
    countedSlots({ batch, tokens }, runs);
  const rows = [[1], [8], [9], [33], [56], [57], [64]];
  assertEquals(rows.map((row) => of(1, 64, row)), [8, 8, 16, 40, 56, 64, 64]);
  assertEquals([of(1, 7, [2]), of(1, 1, [1])], [3, 1]);
  // Batches are of whole rows in order; validation counts as well.
  const run = [10, 0, 20, 30, 5, 5];
  assertEquals([of(2, 64, run), of(3, 64, run), of(2, 64, run, [64])], [64, 48, 64]);
  assertEquals(of(2, 64, [1], undefined), 128);
});

Deno.test("ranks share the micro-batches of a step evenly, or are refused", () => {
  const of = (batch: number, microBatch: number | undefined, world: number) =>
    microBatchOf({ batch, microBatch }, world);
  assertEquals([of(8, undefined, 1), of(8, undefined, 4), of(8, 2, 4), of(8, 2, 2)], [8, 2, 2, 2]);
  const refused = [
    [8, 3, 1, "`--micro-batch 3` does not divide `--batch 8`"],
    [8, 8, 2, "2 ranks cannot share the 1 micro-batch of a step"],
    [8, 2, 3, "3 ranks cannot share the 4 micro-batches of a step"],
    [10, undefined, 4, "4 ranks cannot share the 1 micro-batch of a step"],
  ] as const;
  for (const [batch, micro, world, message] of refused) {
    assertThrows(() => of(batch, micro, world), UsageError, message);
  }
});
