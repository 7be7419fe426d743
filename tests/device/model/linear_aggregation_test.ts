/**
 * Linear aggregation on every device: logits against direct sums over the streams, gradients against
 * finite differences, decoding against whole passes.
 */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { differentiate, gradientName } from "../../../core/graph/differentiate.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { generate } from "../../../core/generate/generate.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { introducedValues } from "../../../core/model/init.ts";
import { buildLoss } from "../../../core/model/loss.ts";
import { parameterSpecs } from "../../../core/model/parameters.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { Device, Weights } from "../../../core/runtime/device.ts";
import { weightValues } from "../../../core/runtime/weights.ts";
import { GREEDY } from "../../../core/base/sampling.ts";
import { devices, reference } from "../devices.ts";
import { maxDifference, modelFolder } from "../goldens.ts";

const AT = "model.aggregate_layer";
const IDS = [5, 9, 12, 7, 30, 8, 8, 2];

const opened = await openCheckpoint(modelFolder("qwen2-p4-untied-f32"));
const config: ModelConfig = { ...opened.config, aggregator: "linear" };
const { streams: P, hiddenSize: C, vocabSize: V } = config;

/** The model with these values in its aggregator. */
function weightsWith(valuesOf: (name: string, shape: readonly number[]) => Float32Array): Weights {
  const weights = new Map(opened.tensors as Weights);
  for (const { name, shape } of parameterSpecs(config)) {
    if (!name.startsWith(AT)) continue;
    weights.set(name, { dtype: "f32", shape, data: valuesOf(name, shape) });
  }
  return weights;
}

/** Large random values, so that nothing is near zero by chance. */
function random(name: string, shape: readonly number[]): Float32Array {
  const values = new Float32Array(shape.reduce((a, b) => a * b));
  new RandomStream(3, name).fillNormal(values, name.endsWith("bias") ? 0.5 : 0.1, 0);
  return values;
}

const weights = weightsWith(random);

async function traced(device: Device, model: ModelConfig, tensors: Weights) {
  const engine = new Engine(device, model, tensors);
  using cache = engine.createCache(1, IDS.length);
  const select = IDS.map((_, t) => t);
  const options = { head: "logits", trace: true } as const;
  const outputs = await engine.forward(cache, { ids: [IDS], start: [0], select }, options);
  return (name: string) => Float64Array.from(outputs.get(name)!);
}

for (const { name, device } of devices) {
  Deno.test(`${name}: logits are the output matrix times W [h_1 … h_P] + b`, async () => {
    const output = await traced(device, config, weights);
    const normed = output("trace.final_norm"); // [P, N, C]
    const [W, b, head] = [`${AT}.weight`, `${AT}.bias`, "lm_head.weight"].map((name) =>
      weightValues(weights.get(name)!)
    );
    const N = IDS.length;
    const logits = Float64Array.from({ length: N * V });
    for (let n = 0; n < N; n++) {
      const mixed = Array.from({ length: C }, (_, row) => {
        let sum = b![row]!;
        for (let c = 0; c < C; c++) {
          for (let p = 0; p < P; p++) {
            sum += W![row * P * C + c * P + p]! * normed[(p * N + n) * C + c]!;
          }
        }
        return sum;
      });
      for (let v = 0; v < V; v++) {
        logits[n * V + v] = mixed.reduce((sum, x, c) => sum + x * head![v * C + c]!, 0);
      }
    }
    const apart = maxDifference(output("logits"), logits);
    assert(apart < 1e-4, `logits are ${apart} apart`);
  });

  Deno.test(`${name}: gradients of a linear aggregation are the reference's`, async () => {
    const actual = await gradients(device, weights);
    const expected = await gradients(reference, weights);
    for (const [parameter, values] of expected.of) {
      const largest = Math.max(...values.map(Math.abs));
      const error = maxDifference(actual.of.get(parameter)!, values) / largest;
      assert(error <= 1e-4, `${parameter}: relative error ${error}`);
    }
  });

  Deno.test(`${name}: decoding behind linear aggregation gives the tokens of whole passes`, async () => {
    const engine = new Engine(device, config, weights);
    const request = { tokens: IDS, maxTokens: 4, sampling: GREEDY, eosTokenIds: [] };
    const tokens: number[] = [];
    const requests = [{ ...request, random: new RandomStream(0, 0) }];
    for await (const event of generate(engine, requests, { batch: 1 })) {
      if (event.kind === "token") tokens.push(event.token);
    }
    for (const [i, token] of tokens.entries()) {
      const ids = [...IDS, ...tokens.slice(0, i)];
      using cache = engine.createCache(1, ids.length);
      const step = { ids: [ids], start: [0], select: [ids.length - 1] };
      const logits = (await engine.forward(cache, step)).get("logits")!;
      assertEquals(logits.indexOf(Math.max(...Array.from(logits))), token);
    }
    assertEquals(tokens.length, 4);
  });
}

async function gradients(device: Device, tensors: Weights) {
  const by = parameterSpecs(config).filter(({ introduced }) => introduced).map(({ name }) => name);
  const loss = buildLoss(config, { batch: 1, tokens: IDS.length });
  const program = differentiate(loss, { of: "loss", by });
  const executable = await device.compile(program, new Map());
  const types = [...program.inputs, ...program.parameters, ...program.outputs];
  const bound = new Map(types.map(([name, type]) => [name, device.allocate(type)]));
  const last = IDS.length - 1;
  const data: [string, ArrayLike<number>][] = [
    ["ids", IDS],
    ["positions", IDS.map((_, t) => t)],
    ["targets", [...IDS.slice(1), 0]],
    ["predicted", IDS.map((_, t) => Number(t < last))],
    ...[...program.parameters.keys()].map((name): [string, ArrayLike<number>] => [
      name,
      weightValues(tensors.get(name)!),
    ]),
  ];
  for (const [name, values] of data) device.write(bound.get(name)!, values);
  await executable.run(bound);
  const read = (name: string) => Array.from(device.read(bound.get(name)!));
  return {
    loss: read("loss")[0]!,
    of: new Map(by.map((name) => [name, read(gradientName(name))])),
    hasWeightSums: program.outputs.has("weight_sums"),
  };
}

Deno.test("the reference's gradients of a linear aggregation are finite differences", async () => {
  const exact = await gradients(reference, weights);
  assertEquals(exact.hasWeightSums, false);
  const step = 2 ** -10;
  for (
    const [name, at] of [["weight", 0], ["weight", 5003], ["weight", 16383], ["bias", 7]] as const
  ) {
    const moved = async (by: number) => {
      const shifted = (one: string, shape: readonly number[]) => {
        const values = random(one, shape);
        if (one === `${AT}.${name}`) values[at]! += by;
        return values;
      };
      return (await gradients(reference, weightsWith(shifted))).loss;
    };
    const difference = (await moved(step) - await moved(-step)) / (2 * step);
    const gradient = exact.of.get(`${AT}.${name}`)![at]!;
    const apart = Math.abs(difference - gradient);
    assert(
      apart < 1e-3 * Math.max(1, Math.abs(gradient)),
      `${name} ${at}: ${difference} ${gradient}`,
    );
  }
});

Deno.test("linear aggregation starts as the average of the streams", async () => {
  const specs = new Map(parameterSpecs(config).map((spec) => [spec.name, spec]));
  const fresh = weightsWith((name) => introducedValues(specs.get(name)!, 0));
  const whole = introducedValues(specs.get(`${AT}.weight`)!, 0);
  assertEquals(introducedValues(specs.get(`${AT}.weight`)!, 9, 1000, 50), whole.slice(1000, 1050));
  const linear = await traced(reference, config, fresh);
  const zeros = new Map(opened.tensors as Weights);
  for (const { name, shape } of parameterSpecs(opened.config)) {
    if (!name.startsWith(AT)) continue;
    zeros.set(name, { dtype: "f32", shape, data: new Float32Array(shape.reduce((a, b) => a * b)) });
  }
  const average = await traced(reference, { ...opened.config, smoothing: 0 }, zeros);
  assert(maxDifference(linear("logits"), average("logits")) < 1e-9);
});
