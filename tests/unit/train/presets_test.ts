/** The presets of `parscale train` hold the numbers of the paper, and the flags' defaults agree. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { flagsOf } from "../../../cli/framework/command.ts";
import { command } from "../../../cli/commands/train/flags.ts";
import { parse } from "../../../cli/framework/parse.ts";
import { type Resolution, resolve } from "../../../cli/framework/resolve.ts";
import type { ValuesOf } from "../../../cli/framework/command.ts";
import { microBatchOf, stepsOf } from "../../../cli/commands/train/prepare.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { learningRateFactor } from "../../../core/train/schedule.ts";

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

const BATCH: readonly Sourced[] = [
  ["batch", 1024, "appendix C"],
  ["seq-len", 2048, "appendix C"],
];

const ADAM: readonly Sourced[] = [
  ["beta1", 0.9, "appendix C"],
  ["beta2", 0.95, "appendix C"],
  ["adam-epsilon", 1e-8, "ours"],
  ["weight-decay", 0.1, "appendix C"],
  ["clip", 1, "ours"],
];

const COSINE: readonly Sourced[] = [
  ["schedule", "cosine", "appendix C"],
  ["lr", 3e-4, "appendix C"],
  ["lr-min", 1e-5, "appendix C"],
  ["warmup", 2000, "appendix C"],
];

const NEW_MODEL: readonly Sourced[] = [
  ["init", "scratch", "section 3.1"],
  ["init-std", 0.02, "appendix C"],
  ["rope-theta", 10_000, "appendix C"],
  ["save-dtype", "bf16", "appendix C"],
  ["train-params", "all", "section 3.1"],
];

const STREAMS: readonly Sourced[] = [
  ["prefix-tokens", 48, "appendix A"],
  ["prefix-init", "normal", "the authors' initialization"],
  ["smoothing", 0.1, "appendix A"],
];

const OPEN: readonly Sourced[] = ["steps", "tokens", "epochs"].map((flag) => [flag, null, "ours"]);

const PRESETS: Readonly<Record<string, readonly Sourced[]>> = {
  "paper-scratch": [...BATCH, ...ADAM, ...COSINE, ...NEW_MODEL, ...OPEN],
  "paper-stage1": [
    ...BATCH,
    ...ADAM,
    ...NEW_MODEL,
    ...OPEN,
    ["schedule", "constant", "section 4.1"],
    ["lr", 3e-4, "section 4.1"],
    ["warmup", 2000, "section 4.1"],
  ],
  "paper-stage2": [
    ...BATCH,
    ...ADAM,
    ...STREAMS,
    ...OPEN,
    ["schedule", "cosine", "ours: section 4.1 says that it anneals"],
    ["lr", 3e-4, "section 4.1"],
    ["lr-min", 1e-5, "section 4.1"],
    ["warmup", 0, "section 4.1"],
    ["train-params", "all", "section 4.1"],
  ],
  "paper-cpt": [
    ...BATCH,
    ...ADAM,
    ...COSINE,
    ...STREAMS,
    ...OPEN,
    ["train-params", "all", "section 4.2"],
  ],
  "paper-peft": [
    ...BATCH,
    ...ADAM,
    ...COSINE,
    ...STREAMS,
    ...OPEN,
    ["train-params", "introduced", "section 4.2"],
  ],
  "paper-instruct": [
    ["batch", 1024, "ours"],
    ["seq-len", 8192, "section 4.1"],
    ["context", 8192, "section 4.1"],
    ["rope-theta", 100_000, "section 4.1"],
    ["epochs", 2, "section 4.1"],
    ...ADAM,
    ...COSINE.map(([flag, value]): Sourced => [flag, value, "ours: that of pre-training"]),
    ["train-params", "all", "section 4.1"],
    ["long-rows", "truncate", "ours"],
  ],
  "paper-openwebtext": [
    ...BATCH,
    ...ADAM,
    ...COSINE,
    ...NEW_MODEL,
    ...OPEN,
    ["eval-split", 0.005, "ours: appendix D has a validation loss"],
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

Deno.test("stage two begins where stage one ends and anneals to 1e-5", async () => {
  const rate = async (preset: string, step: number) => {
    const { values } = await resolved(`--preset ${preset}`);
    const { schedule: kind, warmup = NaN, lr, lrMin } = values as unknown as ValuesOf<
      typeof command
    >;
    return lr * learningRateFactor({ kind, steps: 9000, warmup, minFactor: lrMin / lr }, step);
  };
  const near = (a: number, b: number) => assert(Math.abs(a / b - 1) < 1e-6, `${a}, not ${b}`);
  near(await rate("paper-stage1", 2000), 3e-4);
  near(await rate("paper-stage1", 9000), 3e-4);
  near(await rate("paper-stage2", 1), 3e-4);
  near(await rate("paper-stage2", 9000), 1e-5);
});

Deno.test("the paper's cosine: up over 2,000 steps to 3e-4, down to 1e-5", async () => {
  const { config } = await resolved("--preset paper-cpt --model m");
  const rate = (step: number) =>
    3e-4 * learningRateFactor({
      kind: "cosine",
      steps: 10_000,
      warmup: config.warmup as number,
      minFactor: (config["lr-min"] as number) / (config.lr as number),
    }, step);
  const near = (a: number, b: number) => assert(Math.abs(a / b - 1) < 1e-9, `${a}, not ${b}`);
  near(rate(1), 1.5e-7);
  near(rate(1000), 1.5e-4);
  near(rate(2000), 3e-4);
  near(rate(6000), (3e-4 + 1e-5) / 2);
  near(rate(10_000), 1e-5);
});

Deno.test("the shortest length counts, in whole steps", async () => {
  const steps = async (line: string, microBatches?: number) => {
    const { values } = await resolved(`--model m --batch 8 --micro-batch 2 ${line}`);
    const length = values as unknown as ValuesOf<typeof command>;
    return stepsOf(length, { rowTokens: 100, microBatch: 2, microBatches });
  };
  assertEquals(await steps("--steps 7"), 7);
  assertEquals(await steps("--tokens 1601"), 3);
  assertEquals(await steps("--tokens 1.6k --steps 5"), 2);
  assertEquals(await steps("--epochs 1 --steps 5", 13), 4);
  assertEquals(await steps("--epochs 1 --steps 3", 13), 3);
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
