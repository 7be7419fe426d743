/** The presets of `parscale train` hold the numbers of the paper, and the flags' defaults agree. */
import { assert, assertEquals } from "@std/assert";
import { flagsOf } from "../../cli/commands/define.ts";
import { command } from "../../cli/commands/train.ts";
import { parse } from "../../cli/flags/parse.ts";
import { type Resolution, resolve } from "../../cli/flags/resolve.ts";
import { stepsOf, type TrainValues } from "../../cli/train/values.ts";
import { learningRateFactor } from "../../core/train/schedule.ts";

function resolved(line: string): Promise<Resolution> {
  const table = flagsOf(command);
  return resolve(parse(`${line} --out run`.split(" "), table), table, command, () => undefined);
}

/** Section 3.1 and the appendix: what all runs share. */
const SHARED = {
  batch: 1024,
  "seq-len": 2048,
  lr: 3e-4,
  "lr-min": 1e-5,
  warmup: 2000,
  beta1: 0.9,
  beta2: 0.95,
  "adam-epsilon": 1e-8,
  "weight-decay": 0.1,
  clip: 1,
  "init-std": 0.02,
};

const STREAMS = { "prefix-tokens": 48, smoothing: 0.1 };

const OWN: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  "paper-scratch": { schedule: "wsd", init: "scratch", "train-params": "all" },
  "paper-stage2": { ...STREAMS, schedule: "cosine", "train-params": "all" },
  "paper-cpt": { ...STREAMS, schedule: "cosine", "train-params": "all" },
  "paper-peft": { ...STREAMS, schedule: "cosine", "train-params": "introduced" },
  "paper-instruct": { schedule: "cosine", "train-params": "all" },
};

Deno.test("there are no other presets than those below", () => {
  assertEquals(Object.keys(command.presets ?? {}).sort(), Object.keys(OWN).sort());
});

for (const [preset, own] of Object.entries(OWN)) {
  Deno.test(`${preset} resolves to the paper's values`, async () => {
    const { config, origins } = await resolved(`--preset ${preset} --model m`);
    for (const [flag, value] of Object.entries({ ...SHARED, ...own })) {
      assertEquals(config[flag], value as never, flag);
      if (flag !== "init-std") assertEquals(origins[flag], "preset", flag);
    }
    for (const length of ["steps", "tokens", "epochs"]) assertEquals(config[length], null);
    const flagged = await resolved(`--preset ${preset} --model m --lr 1 --batch 2`);
    assertEquals([flagged.config.lr, flagged.config.batch], [1, 2]);
  });
}

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
    return stepsOf(values as unknown as TrainValues, 100, microBatches);
  };
  assertEquals(await steps("--steps 7"), 7);
  assertEquals(await steps("--tokens 1601"), 3);
  assertEquals(await steps("--tokens 1.6k --steps 5"), 2);
  assertEquals(await steps("--epochs 1 --steps 5", 13), 4);
  assertEquals(await steps("--epochs 1 --steps 3", 13), 3);
});
