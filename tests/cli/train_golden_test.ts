/** `parscale train` against the golden runs: losses, norms and trained parameters. */
import { existsSync } from "node:fs";
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import {
  type ExpectedRun,
  maxDifference,
  modelFolder,
  readExpected,
  readTensors,
} from "../device/goldens.ts";
import { jsonLines } from "./models.ts";
import { ROWS, withWorkplace, type Workplace } from "./train_testing.ts";
import { linkSync } from "../links.ts";

const STEADY = "--no-shuffle --schedule constant --warmup 0";

/** Trains as a golden run does and compares; the last batch is validation data, for `loss_after`. */
async function follow(place: Workplace, name: string, run: ExpectedRun): Promise<void> {
  const { mode, lr, batches, steps, loss_noise, loss_after } = run;
  const out = `${mode}-${run.run}`;
  const rows = (some: number[][]) => jsonLines(...some.map((tokens) => ({ tokens })));
  place.write(`${out}.jsonl`, rows(batches.flat()));
  place.write(`${out}-last.jsonl`, rows(batches.at(-1)!));
  const model = `${place.cwd}/${name}`;
  if (!existsSync(model)) linkSync(modelFolder(name), model);
  const metrics = await place.trained(
    `--model ${name} --data ${out}.jsonl --eval-data ${out}-last.jsonl --no-pack --batch 4 ` +
      `--seq-len 16 ${STEADY} --lr ${lr} --steps ${steps.length} ` +
      `--train-params ${mode === "peft" ? "introduced" : "all"} --out ${out}`,
  );
  const tolerance = Math.max(2e-5, 20 * loss_noise);
  assertEquals(metrics.map(({ step }) => step), steps.map((_, i) => i + 1));
  for (const [i, expected] of steps.entries()) {
    const { loss, grad_norm, clip_scale, tokens } = metrics[i];
    assertAlmostEquals(loss, expected.loss, tolerance, `${name} ${out} step ${i + 1}`);
    assertAlmostEquals(grad_norm / expected.grad_norm, 1, 1e-3);
    assertAlmostEquals(clip_scale, expected.clip_scale, 1e-3);
    assertEquals(tokens, 64 * (i + 1));
  }
  assertAlmostEquals(metrics.at(-1).eval_loss, loss_after, tolerance);
  if (!run.final_file) return;
  const file = mode === "peft" ? "introduced.safetensors" : "model.safetensors";
  const trained = await place.weights(out, file);
  const bound = Math.max(2e-5, 20 * run.final_param_noise);
  const final = await readTensors(name, run.final_file.replace(".safetensors", ""));
  assertEquals([...trained.keys()].sort(), [...final.keys()].sort());
  for (const [parameter, expected] of final) {
    const error = maxDifference(trained.get(parameter)!, expected);
    assert(error <= bound, `${name} ${parameter}: ${error}`);
  }
}

// All models follow their runs in tests/device/train.
Deno.test("a model trains as the golden runs do", () =>
  withWorkplace(async (place) => {
    const name = "qwen2-p2-untied-bf16", { train } = readExpected(name);
    await Promise.all(train.map((run) => follow(place, name, run)));
  }));

Deno.test("micro-batches and recomputed activations change nothing", () =>
  withWorkplace(async (place) => {
    const line = `--model p2 ${ROWS} ${STEADY} --lr 1e-3 --steps 5`;
    const whole = await place.trained(`${line} --out whole`);
    const parts = await place.trained(`${line} --micro-batch 1 --out parts`);
    parts.forEach(({ loss, tokens, stream_weights }, i) => {
      assertAlmostEquals(loss, whole[i].loss, 1e-5);
      assertEquals(tokens, whole[i].tokens);
      assertAlmostEquals(stream_weights[0], whole[i].stream_weights[0], 1e-5);
    });
    await place.trained(`${line} --checkpoint-activations --out recomputed`);
    assertEquals(place.metrics("recomputed").length, 5);
    assertEquals(place.steady("recomputed"), place.steady("whole"));
  }));
