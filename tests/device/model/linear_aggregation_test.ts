/**
 * Linear aggregation on every device: logits against direct sums over the streams, gradients against
 * finite differences, decoding against whole passes.
 */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { differentiate, gradientName } from "../../../core/graph/differentiate.ts";
import { Engine } from "../../../core/generate/engine.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { introducedValues } from "../../../core/model/init.ts";
import { buildLoss } from "../../../core/model/loss.ts";
import { elementCount, parameterSpecs } from "../../../core/model/parameters.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { Device, Weights } from "../../../core/runtime/device.ts";
import { weightValues } from "../../../core/runtime/weights.ts";
import { devices, reference } from "../devices.ts";
import { largest, logitsOf, pass, request, tokensOf } from "../engines.ts";
import { maxDifference, modelFolder, relativeDifference } from "../goldens.ts";
import { runOn } from "../programs.ts";
import { batchOf } from "../train/golden_runs.ts";

const AT = "model.aggregate_layer";
const IDS = [5, 9, 12, 7, 30, 8, 8, 2];

const opened = await openCheckpoint(modelFolder("qwen2-p4-untied-f32"));
const config: ModelConfig = { ...opened.config, aggregator: "linear" };
const { streams: P, hiddenSize: C, vocabSize: V } = config;

/** The model with these values in its aggregator. */
function weightsWith(
  valuesOf: (name: string, shape: readonly number[]) => Float32Array,
  model = config,
): Weights {
  const weights = new Map(opened.tensors as Weights);
  for (const { name, shape } of parameterSpecs(model)) {
    if (!name.startsWith(AT)) continue;
    weights.set(name, { dtype: "f32", shape, data: valuesOf(name, shape) });
  }
  return weights;
}

/** Large random values, so that nothing is near zero by chance. */
function random(name: string, shape: readonly number[]): Float32Array {
  const values = new Float32Array(elementCount(shape));
  new RandomStream(3, name).fillNormal(values, name.endsWith("bias") ? 0.5 : 0.1, 0);
  return values;
}

const weights = weightsWith(random);

async function traced(device: Device, model: ModelConfig, tensors: Weights) {
  const options = { head: "logits", trace: true } as const;
  const outputs = await pass(new Engine(device, model, tensors), [IDS], {}, options);
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
    const [tokens] = await tokensOf(engine, [request(IDS, { maxTokens: 4 })]);
    for (const [i, token] of tokens!.entries()) {
      const ids = [...IDS, ...tokens!.slice(0, i)];
      assertEquals(largest(await logitsOf(engine, [ids], [ids.length - 1])), token);
    }
    assertEquals(tokens!.length, 4);
  });
}

async function gradients(device: Device, tensors: Weights) {
  const by = parameterSpecs(config).filter(({ introduced }) => introduced).map(({ name }) => name);
  const loss = buildLoss(config, { batch: 1, tokens: IDS.length });
  const program = differentiate(loss, { of: "loss", by });
  const { positions, targets, weights: predicted } = batchOf([IDS]);
  const data: Record<string, ArrayLike<number>> = { ids: IDS, positions, targets, predicted };
  for (const name of program.parameters.keys()) data[name] = weightValues(tensors.get(name)!);
  const found = await runOn(device, program, data);
  return {
    loss: found.get("loss")![0]!,
    of: new Map(by.map((name) => [name, Array.from(found.get(gradientName(name))!)])),
    hasWeightSums: program.outputs.has("weight_sums"),
  };
}

Deno.test("the reference's gradients of a linear aggregation are finite differences", async () => {
  const exact = await gradients(reference, weights);
  assertEquals(exact.hasWeightSums, false);
  const step = 2 ** -10;
  const places = [["weight", 0], ["weight", 5003], ["weight", 16383], ["bias", 7]] as const;
  for (const [name, at] of places) {
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
    const apart = relativeDifference([difference], [gradient]);
    assert(apart < 1e-3, `${name} ${at}: ${difference} ${gradient}`);
  }
});

Deno.test("linear aggregation starts as the average of the streams", async () => {
  const specs = new Map(parameterSpecs(config).map((spec) => [spec.name, spec]));
  const fresh = weightsWith((name) => introducedValues(specs.get(name)!, 0));
  const whole = introducedValues(specs.get(`${AT}.weight`)!, 0);
  assertEquals(introducedValues(specs.get(`${AT}.weight`)!, 9, 1000, 50), whole.slice(1000, 1050));
  const linear = await traced(reference, config, fresh);
  const zeros = weightsWith((_, shape) => new Float32Array(elementCount(shape)), opened.config);
  const average = await traced(reference, { ...opened.config, smoothing: 0 }, zeros);
  assert(maxDifference(linear("logits"), average("logits")) < 1e-9);
});
