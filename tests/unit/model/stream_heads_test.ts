/** The `streams` head: what each stream predicts alone, on every device and against direct sums. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { scoreBatch } from "../../../core/generate/score.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { weightValues } from "../../../core/runtime/weights.ts";
import { pass, prompt } from "../../device/engines.ts";
import { maxDifference, modelFolder, openGolden } from "../../device/goldens.ts";

const CLOSE = 2e-5;

const text = (length: number) => prompt(length, length);
const flat = (rows: readonly Float32Array[]) => rows.flatMap((row) => Array.from(row));

const opened = await openCheckpoint(modelFolder("qwen2-p4-untied-f32"));
const P = opened.config.streams;

/** The same model with an aggregator that gives one stream everything: scores of its last bias. */
function forced(stream: number): Engine {
  const config = { ...opened.config, smoothing: 0 };
  const tensors = new Map(opened.tensors as ConstructorParameters<typeof Engine>[2]);
  const at = "model.aggregate_layer.2";
  const zeros = weightValues(tensors.get(`${at}.weight`)!).map(() => 0);
  const { shape } = tensors.get(`${at}.weight`)!;
  tensors.set(`${at}.weight`, { dtype: "f32", shape, data: Float32Array.from(zeros) });
  const bias = Float32Array.from({ length: P }, (_, p) => p === stream ? 200 : -200);
  tensors.set(`${at}.bias`, { dtype: "f32", shape: [P], data: bias });
  return new Engine(new ReferenceDevice("f64"), config, tensors);
}

const scoreStreams = (engine: Engine, sequences: readonly (readonly number[])[]) =>
  scoreBatch(engine, sequences.map((tokens) => ({ tokens, from: 1 })), { streams: true });

Deno.test("a stream alone is the model whose weights are forced to that stream", async () => {
  const tokens = text(11);
  const engine = await openGolden("qwen2-p4-untied-f32", new ReferenceDevice("f64"));
  const [score] = await scoreStreams(engine, [tokens]);
  for (let stream = 0; stream < P; stream++) {
    const [alone] = await scoreBatch(forced(stream), [{ tokens, from: 1 }], { weights: true });
    assert(alone!.weights!.every((row) => row[stream] === 1));
    const own = score!.streamLogprobs!.map((row) => row[stream]!);
    assert(maxDifference(own, alone!.tokenLogprobs) < CLOSE, `stream ${stream}`);
  }
  const differ = score!.streamLogprobs!.some((row) => Math.abs(row[0]! - row[1]!) > 1e-3);
  assert(differ, "the streams must not all predict the same");
});

for (const name of ["qwen2-p2-tied-f32", "qwen2-p4-untied-f32", "qwen3-p2-untied-f32"]) {
  Deno.test(`${name}: cpu and reference agree; weights and model are those of score`, async () => {
    const sequences = [text(20), text(7)];
    const cpu = await openGolden(name, new CpuDevice());
    const reference = await openGolden(name, new ReferenceDevice("f64"));
    const [a, b] = [await scoreStreams(cpu, sequences), await scoreStreams(reference, sequences)];
    const requests = sequences.map((tokens) => ({ tokens, from: 1 }));
    const scores = await scoreBatch(cpu, requests, { weights: true });
    sequences.forEach(({ length }, i) => {
      assertEquals([a[i]!.weights!.length, a[i]!.streamLogprobs!.length], [length, length - 1]);
      assert(maxDifference(flat(a[i]!.streamLogprobs!), flat(b[i]!.streamLogprobs!)) < CLOSE);
      assert(maxDifference(a[i]!.tokenLogprobs, scores[i]!.tokenLogprobs) < CLOSE);
      assert(maxDifference(flat(a[i]!.weights!), flat(scores[i]!.weights!)) < CLOSE);
    });
    cpu.device.close();
  });
}

Deno.test("texts of several chunks equal one pass; one stream is the model itself", async () => {
  const engine = await openGolden("qwen2-p2-tied-f32", new CpuDevice());
  const tokens = text(300);
  const [long] = await scoreStreams(engine, [tokens]);
  const targets = [...tokens.slice(1), 0];
  const outputs = await pass(engine, [tokens], { targets }, { head: "streams" });
  const whole = outputs.get("stream_logprobs")!.subarray(0, 299 * 2);
  assert(maxDifference(flat(long!.streamLogprobs!), whole) < CLOSE);
  const plain = await openGolden("qwen2-p1-tied-f32", new CpuDevice());
  const [alone] = await scoreStreams(plain, [tokens.slice(0, 9)]);
  assert(maxDifference(flat(alone!.streamLogprobs!), alone!.tokenLogprobs) < CLOSE);
  assertEquals(alone!.weights!.map((row) => [...row]), new Array(9).fill([1]));
  for (const { device } of [engine, plain]) device.close();
});

Deno.test("a single token has weights and nothing predicted; bad tokens are refused", async () => {
  const engine = await openGolden("qwen2-p2-tied-f32", new CpuDevice());
  const [one] = await scoreStreams(engine, [[5]]);
  assertEquals([one!.weights!.length, one!.streamLogprobs!.length], [1, 0]);
  const message = "cannot score a sequence: token id 600";
  await assertRejects(() => scoreStreams(engine, [[600]]), DataError, message);
  engine.device.close();
});
