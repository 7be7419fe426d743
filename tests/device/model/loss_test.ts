/** The loss program and all its gradients against the goldens; packing; recomputation. */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { differentiate, gradientName } from "../../../core/graph/differentiate.ts";
import type { Program } from "../../../core/graph/program.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { buildLoss } from "../../../core/model/loss.ts";
import { parameterSpecs } from "../../../core/model/parameters.ts";
import type { Device, Weights } from "../../../core/runtime/device.ts";
import { weightValues } from "../../../core/runtime/weights.ts";
import { prepare } from "../../../core/graph/rewrite.ts";
import { devices, reference } from "../devices.ts";
import { runOn } from "../programs.ts";
import {
  GOLDEN_NAMES,
  maxDifference,
  modelFolder,
  readExpected,
  readTensors,
  relativeDifference,
  takesGolden,
} from "../goldens.ts";

/** Rows of tokens as the loss program takes them; `labels` of −100 do not count. */
function inputsOf(rows: readonly number[][], labels: readonly number[][] = rows) {
  const targets = rows.map((row, b) => row.map((_, t) => labels[b]![t + 1] ?? -100));
  return new Map([
    ["ids", rows.flat()],
    ["positions", rows.flatMap((row) => row.map((_, t) => t))],
    ["targets", targets.flat().map((label) => Math.max(0, label))],
    ["predicted", targets.flat().map((label) => label < 0 ? 0 : 1)],
  ]);
}

/** Runs a loss program, whose parameters are bound to these weights. */
function run(device: Device, program: Program, weights: Weights, data: Data) {
  const parameters = [...program.parameters.keys()].map((name) =>
    [name, weightValues(weights.get(name)!)] as const
  );
  return runOn(device, program, new Map<string, ArrayLike<number>>([...data, ...parameters]));
}

type Data = ReturnType<typeof inputsOf>;

function names(config: ModelConfig, mode: "full" | "peft"): string[] {
  const specs = parameterSpecs(config).filter((spec) => mode === "full" || spec.introduced);
  return specs.map(({ name }) => name);
}

const count = (data: ReadonlyMap<string, number[]>) =>
  data.get("predicted")!.reduce((total, one) => total + one);

for (const name of GOLDEN_NAMES) {
  for (const { name: deviceName, device } of devices) {
    if (!takesGolden(deviceName, name)) continue;
    for (const mode of ["full", "peft"] as const) {
      Deno.test(`${deviceName} computes the ${mode} gradients of ${name}`, async () => {
        const { config, tensors } = await openCheckpoint(modelFolder(name));
        const { gradients } = readExpected(name);
        const expected = gradients[mode];
        if (!expected) return assertEquals(config.streams, 1);
        const data = inputsOf(gradients.ids, gradients.labels);
        const sizes = { batch: gradients.ids.length, tokens: gradients.ids[0]!.length };
        const by = names(config, mode);
        const program = differentiate(buildLoss(config, sizes), { of: "loss", by });
        const found = await run(device, program, tensors, data);
        const tokens = count(data);
        const loss = found.get("loss")![0]! / tokens;
        assert(Math.abs(loss - expected.loss) < 1e-5, `loss ${loss}, expected ${expected.loss}`);
        const golden = await readTensors(name, "grads_full");
        for (const parameter of by) {
          const actual = Float64Array.from(found.get(gradientName(parameter))!, (x) => x / tokens);
          const wanted = golden.get(parameter)!;
          const largest = Math.max(...Array.from(wanted, Math.abs));
          const error = maxDifference(actual, wanted) / largest;
          assert(error <= 1e-4, `${parameter}: relative error ${error}`);
        }
      });
    }
  }
}

const [P4, HYBRID] = ["qwen2-p4-untied-f32", "qwen35-p4-untied-f32"];
const { config, tensors } = await openCheckpoint(modelFolder(P4));

Deno.test("PEFT builds only the backward work that reaches prefixes and aggregator", () => {
  const loss = buildLoss(config, { batch: 2, tokens: 16 });
  const products = (by: string[] | undefined) => {
    const program = by ? differentiate(loss, { of: "loss", by }) : loss;
    const { nodes } = prepare(program, (op) => !op.decompose);
    return nodes.filter((node) => node.op.name === "matmul").length;
  };
  const forward = products(undefined);
  const [peft, full] = (["peft", "full"] as const).map((mode) => products(names(config, mode)));
  // Per layer 7 linear layers and 2 products of attention, the aggregator 3 with the mixture, 1 for the
  // sums of weights, and the head.
  assertEquals(forward, 2 * 9 + 5);
  // No product for a weight of the backbone, and in layer 0 nothing that leads to its input: not the
  // 3 of q, k, v, nor the 3 of attention that lead to q and to k and v of the text.
  assert(peft! - forward < (full! - forward) * 0.65, `${forward}, ${peft}, ${full}`);
});

/** A model of attention alone, and one with delta nets. */
const hybrid = await openCheckpoint(modelFolder(HYBRID));
const onEach = devices.flatMap((device) => [
  { ...device, model: P4, config, tensors },
  ...(device.name.startsWith("cpu") ? [{ ...device, model: HYBRID, ...hybrid }] : []),
]);

for (const { name: deviceName, device, model, config, tensors } of onEach) {
  Deno.test(`${deviceName}: recomputed activations give the same gradients of ${model} bit for bit`, async () => {
    const { gradients: { ids, labels } } = readExpected(model);
    const loss = buildLoss(config, { batch: ids.length, tokens: ids[0]!.length });
    const by = names(config, "full");
    const results = await Promise.all([false, true].map(async (recompute) => {
      const program = differentiate(loss, { of: "loss", by, recompute });
      const found = await run(device, program, tensors, inputsOf(ids, labels));
      return by.map((name) => found.get(gradientName(name))!);
    }));
    results[0]!.forEach((kept, i) => assertEquals(results[1]![i], kept, by[i]));
  });
}

for (const { name: deviceName, device, model, config, tensors } of onEach) {
  Deno.test(`${deviceName}: documents of a packed row of ${model} do not see each other`, async () => {
    const documents = [[5, 9, 12, 7, 30], [8, 8, 2], [40, 41, 42, 43, 3, 1]];
    const packed = [...documents.flat(), 0, 0]; // two slots of padding
    const fill = (row: number[]) => [...row, ...Array(packed.length - row.length).fill(0)];
    const positions = documents.flatMap((document) => document.map((_, t) => t));
    const targets = documents.flatMap((document) => [...document.slice(1), -100]);
    const program = differentiate(buildLoss(config, { batch: 1, tokens: packed.length }), {
      of: "loss",
      by: names(config, "full"),
    });
    const one = new Map([
      ["ids", packed],
      ["positions", fill(positions)],
      ["targets", fill(targets.map((label) => Math.max(0, label)))],
      ["predicted", fill(targets.map((label) => label < 0 ? 0 : 1))],
    ]);
    const together = await run(device, program, tensors, one);
    const alone = await Promise.all(documents.map((document) => {
      const label = [...document, ...Array(packed.length - document.length).fill(-100)];
      return run(device, program, tensors, inputsOf([fill(document)], [label]));
    }));
    for (const name of program.outputs.keys()) {
      const sum = together.get(name)!.map((_, i) =>
        alone.reduce((total, found) => total + found.get(name)![i]!, 0)
      );
      const error = relativeDifference(together.get(name)!, sum);
      assert(error < (model === HYBRID ? 1e-5 : 2e-6), `${name}: ${error}`);
    }
  });
}

for (const { name: deviceName, device, model, config, tensors } of onEach) {
  Deno.test(`${deviceName}: tokens of ${model} that do not count cost no head and change nothing`, async () => {
    const rows = [[5, 9, 12, 7, 30, 2], [8, 8, 2, 1, 4, 40]];
    const labels = [[-100, -100, 12, -100, -100, 2], [-100, 8, -100, -100, 4, -100]];
    const data = inputsOf(rows, labels), by = names(config, "full");
    const slots = [1, 4, 6, 9, 11]; // four that count, and one more
    const pick = (name: string) => slots.map((slot) => data.get(name)![slot]!);
    const few = ["targets", "predicted"].map((name) => [name, pick(name)] as const);
    const picked: Data = new Map([...data, ...few, ["slots", slots]]);
    const [whole, part] = await Promise.all(
      ([[undefined, data], [5, picked]] as const).map(([counted, inputs]) => {
        const loss = buildLoss(config, { batch: 2, tokens: 6, counted });
        const program = differentiate(loss, { of: "loss", by });
        const head = prepare(program, (op) => !op.decompose).nodes
          .filter(({ outputs: [type] }) => type!.shape.join() === `12,${config.vocabSize}`);
        assertEquals(head.length > 0, counted === undefined);
        return run(device, program, tensors, inputs);
      }),
    );
    for (const name of ["loss", "weight_sums", ...by.map(gradientName)]) {
      const error = relativeDifference(part!.get(name)!, whole!.get(name)!);
      assert(error < (model === HYBRID ? 1e-5 : 2e-6), `${name}: ${error}`);
    }
  });
}

Deno.test("the sum of aggregation weights counts predicted tokens only", async () => {
  const data = inputsOf([[5, 9, 12, 7], [8, 8, 2, 1]], [[5, 9, -100, 7], [-100, -100, 2, 1]]);
  const found = await run(reference, buildLoss(config, { batch: 2, tokens: 4 }), tensors, data);
  const total = Array.from(found.get("weight_sums")!).reduce((sum, x) => sum + x);
  assert(Math.abs(total - count(data)) < 1e-9, `${total}`);
});
