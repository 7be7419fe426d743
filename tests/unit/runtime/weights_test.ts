/** Weights on the cpu device: every way they may be stored, in 8 and 4 bits. */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { elementCount, tensorBytes } from "../../../core/graph/types.ts";
import { embedding } from "../../../core/ops/embedding.ts";
import { linear } from "../../../core/ops/linear.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { FileTensor, HostArray, HostTensor, Weights } from "../../../core/runtime/device.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { fromF32, type WeightType } from "../../../core/base/dtype.ts";
import { dequantize, quantize, roomFor } from "../../../core/quant/codes.ts";
import { weightValues } from "../../../core/runtime/weights.ts";
import { withScratch } from "../../scratch.ts";
import { logitsOf } from "../../device/engines.ts";
import { distance, maxDifference, modelFolder } from "../../device/goldens.ts";
import { f32, programOf, runOn } from "../../device/programs.ts";

function normal(count: number, stream: number): Float32Array<ArrayBuffer> {
  const random = new RandomStream(6, stream);
  return Float32Array.from({ length: count }, () => random.normal());
}

/** The bits of numbers in a stored type. */
function stored(values: Float32Array<ArrayBuffer>, dtype: WeightType): Float32Array | Uint16Array {
  const { buffer } = fromF32(values, dtype);
  return dtype === "f32" ? new Float32Array(buffer) : new Uint16Array(buffer);
}

/** y = W table[ids] + b: a weight of each kind the device treats differently. */
async function runTiny(device: CpuDevice, weights: Weights): Promise<HostArray> {
  const [V, C, N] = [9, 40, 7];
  const program = programOf("tiny", { ids: { i32: [3] } }, ({ ids }, g) => {
    const x = embedding({ table: g.parameter("table", f32(V, C)), ids });
    const [weight, bias] = [g.parameter("matrix", f32(N, C)), g.parameter("bias", f32(N))];
    return linear({ x, weight, bias });
  });
  return (await runOn(device, program, { ids: [8, 0, 3] }, weights)).get("result")!;
}

const SHAPES = { table: [9, 40], matrix: [7, 40], bias: [7] };

function hostWeights(dtype: WeightType): Map<string, HostTensor> {
  return new Map(
    Object.entries(SHAPES).map(([name, shape], i) => [
      name,
      { dtype, shape, data: stored(normal(elementCount(shape), i), dtype) },
    ]),
  );
}

/** The same weights in f32, as the plain definition would have them. */
function expectedTiny(weights: Weights): Float32Array {
  const [table, matrix, bias] = Object.keys(SHAPES).map((name) => weightValues(weights.get(name)!));
  return Float32Array.from({ length: 21 }, (_, i) => {
    const [row, n] = [[8, 0, 3][Math.floor(i / 7)]!, i % 7];
    let sum = bias![n]!;
    for (let c = 0; c < 40; c++) sum += table![row * 40 + c]! * matrix![n * 40 + c]!;
    return sum;
  });
}

for (const dtype of ["f32", "bf16", "f16"] as const) {
  Deno.test(`${dtype} weights from arrays, files and odd offsets`, () =>
    withScratch(async (folder) => {
      const host = hostWeights(dtype);
      const expected = expectedTiny(host);
      const variants: Weights[] = [host];
      for (const shift of [0, 1, 2, 7]) {
        const path = `${folder}/blob${shift}`;
        const files = new Map<string, FileTensor>();
        Deno.writeFileSync(path, new Uint8Array(shift));
        for (const [name, { shape, data }] of host) {
          files.set(name, { dtype, shape, path, offset: Deno.statSync(path).size });
          Deno.writeFileSync(path, new Uint8Array(data.buffer), { append: true });
        }
        variants.push(files);
      }
      for (const weights of variants) {
        const device = new CpuDevice({ threads: 1 });
        assert(maxDifference(await runTiny(device, weights), expected) < 1e-4);
        device.close();
      }
    }));
}

/** A text of 24 tokens. */
const TEXT = [Array.from({ length: 24 }, (_, i) => i * 19 % 480)];

/** All matrices of linear layers replaced by what their codes stand for. */
function rounded(weights: Weights, bits: 8 | 4, block: number): Weights {
  return new Map([...weights].map(([name, weight]) => {
    const linear = /proj\.weight|lm_head|aggregate_layer\.\d\.weight/.test(name);
    if (!linear) return [name, weight];
    const { shape } = weight, format = { kind: bits === 8 ? "q8" : "q4", block } as const;
    const quantized = roomFor(shape, format);
    const stored = fromF32(weightValues(weight) as Float32Array<ArrayBuffer>, "f32");
    quantize(stored, "f32", shape, format, quantized);
    return [name, { dtype: "f32" as const, shape, data: dequantize(quantized, shape, format) }];
  }));
}

for (const [kind, bits] of [["q8", 8], ["q4", 4]] as const) {
  Deno.test(`${kind}: the model equals the exact one on dequantised weights`, async () => {
    for (const block of [16, 32, 128]) { // 96 columns do not divide by the last
      const { config, tensors } = await openCheckpoint(modelFolder("qwen2-p4-untied-f32"));
      const device = new CpuDevice({ threads: 1, matrices: { kind, block } });
      const exact = new CpuDevice({ threads: 1 });
      const actual = await logitsOf(new Engine(device, config, tensors), TEXT);
      const same = new Engine(exact, config, rounded(tensors, bits, block));
      const expected = await logitsOf(same, TEXT);
      const plain = await logitsOf(new Engine(exact, config, tensors), TEXT);
      // The device also rounds activations to 8 bits a block, half a step of 1/127 of the largest:
      // 0.3 to 0.7 % of noise per product (next test), 1.4 to 2.0 % of the logits after all of them.
      const noise = distance(actual, expected);
      assert(noise < 0.03, `${kind}, block ${block}: ${noise} from rounded weights`);
      // The test can fail: with other weights the difference is far larger.
      if (bits === 4) assert(distance(plain, expected) > 2 * noise, `block ${block}`);
      device.close();
      exact.close();
    }
  });

  Deno.test(`${kind}: rows that end inside a block, with and without a bias`, async () => {
    for (const K of [1, 15, 16, 17, 33, 40, 65]) {
      const [M, N, block] = [3, 5, 16];
      const matrix = { dtype: "f32" as const, shape: [N, K], data: normal(N * K, K) };
      const bias = { dtype: "f32" as const, shape: [N], data: normal(N, 99) };
      const program = programOf("linear", { x: [M, K] }, ({ x }, g) => {
        const weight = g.parameter("proj.weight", matrix);
        const shifted = linear({ x, weight, bias: g.parameter("bias", bias) });
        return { plain: linear({ x, weight }), shifted };
      });
      const weights = new Map([["proj.weight", matrix], ["bias", bias]]);
      const results = await Promise.all([
        [new CpuDevice({ threads: 1, matrices: { kind, block } }), weights] as const,
        [new CpuDevice({ threads: 1 }), rounded(weights, bits, block)] as const,
      ].map(async ([device, given]) => {
        const found = await runOn(device, program, { x: normal(M * K, 1) }, given);
        return [...found.get("plain")!, ...found.get("shifted")!];
      }));
      const error = distance(results[0]!, results[1]!);
      assert(error < 0.02, `${K} columns: ${error}`);
    }
  });
}

Deno.test("the plan counts parameters, state and everything to the byte", async () => {
  const { config, tensors } = await openCheckpoint(modelFolder("qwen2-p2-tied-f32"));
  const sizes = { batch: 3, tokens: 5, capacity: 128, selected: 4 };
  const device = new CpuDevice();
  const { sections, totalBytes } = new Engine(device, config, tensors).plan(sizes);
  const all = [...tensors.values()].reduce((sum, tensor) => sum + tensorBytes(tensor), 0);
  // The table of a tied model is packed as the output matrix; rows to look up are read from the file.
  assertEquals(sections.parameters, all);
  const [B, P, K, S, D] = [3, 2, 2, 128, 16];
  assertEquals(sections.state, 2 * (B + P * B) * K * S * D * 4); // layer 0 and layer 1
  const inputs = [5 * B, B, 5 * B, 4]; // ids, start, positions, select, on multiples of 64 bytes
  const align = (bytes: number) => Math.ceil(bytes / 64) * 64;
  assertEquals(sections.inputs, inputs.reduce((sum, count) => sum + align(4 * count), 0));
  assertEquals(sections.outputs, align(4 * 4 * 512) + align(4 * 4 * P));
  assertEquals(totalBytes, Object.values(sections).reduce((sum, bytes) => sum + bytes, 0));
});
