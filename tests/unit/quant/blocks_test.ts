/** Protects the blocks of GGUF files: equal bits with the Python package, repacking without loss. */
import { assert, assertEquals } from "@std/assert";
import { BLOCKS, type BlockType, decodeBlocks } from "../../../core/quant/blocks.ts";
import { formatOf } from "../../../core/quant/stored.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { dequantize, type Quantized, repack, roomFor } from "../../../core/quant/codes.ts";
import { readFixture } from "../../fixtures.ts";

const GOLDEN: Readonly<Record<string, { blocks: string; values: string }>> = readFixture(
  "golden/gguf/blocks.json",
);

const WEIGHT = { dtype: "f32", path: "", offset: 0 } as const;

function decoded(type: BlockType): { blocks: Uint8Array; values: Float32Array } {
  const blocks = Uint8Array.fromBase64(GOLDEN[type]!.blocks);
  const { elements, bytes } = BLOCKS[type];
  const values = new Float32Array(blocks.length / bytes * elements);
  decodeBlocks(type, blocks, values);
  return { blocks, values };
}

Deno.test("blocks of every type decode to the bits of the Python package", () => {
  const types = Object.keys(BLOCKS).filter((type) => !/^B?F\d/.test(type));
  assertEquals(Object.keys(GOLDEN).sort(), types.sort());
  for (const type of types as BlockType[]) {
    const bits = new Uint32Array(decoded(type).values.buffer);
    const expected = Uint8Array.fromBase64(GOLDEN[type]!.values);
    assertEquals(bits, new Uint32Array(expected.buffer), type);
  }
});

Deno.test("repacked codes stand for the same values, but for roundings of offsets", () => {
  for (const type of Object.keys(GOLDEN) as BlockType[]) {
    const { blocks, values } = decoded(type);
    const shape = [blocks.length / BLOCKS[type].bytes, BLOCKS[type].elements];
    const format = formatOf({ ...WEIGHT, shape, encoding: { type, byteLength: 0 } })!;
    const quantized = roomFor(shape, format);
    repack(blocks, type, format, quantized);
    const repacked = dequantize(quantized, shape, format);
    if (!format.offsets) assertEquals(repacked, values, type);
    const error = Math.max(...repacked.map((x, i) => Math.abs(x - values[i]!)));
    assert(error <= 2 ** -22 * Math.max(...values.map(Math.abs)), `${type}: ${error}`);
  }
});

/** Blocks of random bytes: scales of all sizes, infinite ones and NaN. */
function randomBlocks(type: BlockType, count: number): Uint8Array {
  const random = new RandomStream(11, type), { bytes } = BLOCKS[type];
  return Uint8Array.from({ length: count * bytes }, () => Math.floor(random.uniform() * 256));
}

/** Codes and numbers by bits; a NaN may have any. */
const bitsOf = ({ codes, ...numbers }: Quantized) => [
  codes,
  ...Object.values(numbers).map((values) =>
    new Uint32Array(values.map((x) => x === x ? x : NaN).buffer)
  ),
];

Deno.test("vector instructions repack Q6_K and Q4_K to the bits of loops over their elements", () => {
  // More than a batch, and no whole number of them.
  const count = 600;
  const q6 = randomBlocks("Q6_K", count), of6 = { kind: "q8", block: 16 } as const;
  const expected = roomFor([count, 256], of6), found = roomFor([count, 256], of6);
  for (let i = 0; i < count; i++) BLOCKS.Q6_K.unpack!(q6, i * 210, expected, i);
  repack(q6, "Q6_K", of6, found);
  assertEquals(bitsOf(found), bitsOf(expected));

  const q4 = randomBlocks("Q4_K", count),
    format = { kind: "q4", block: 32, offsets: true } as const;
  const made = roomFor([count, 256], format), loop = roomFor([count, 256], format);
  repack(q4, "Q4_K", format, made);
  for (let n = 0; n < count; n++) {
    const b = q4.subarray(n * 144, n * 144 + 144);
    const [d, dmin] = new Float16Array(b.slice(0, 4).buffer) as unknown as [number, number];
    for (let j = 0; j < 8; j++) {
      const both = b[8 + j]!, isFirst = j < 4;
      const scale = isFirst ? b[4 + j]! & 63 : both & 15 | b[j]! >> 6 << 4;
      const min = isFirst ? both & 63 : both >> 4 | b[4 + j]! >> 6 << 4;
      loop.scales[n * 8 + j] = d * scale;
      loop.offsets![n * 8 + j] = 8 * d * scale - dmin * min;
      for (let i = 0; i < 32; i++) {
        const code = b[16 + (j >> 1) * 32 + i]! >> (j & 1) * 4 & 15;
        loop.codes[n * 128 + j * 16 + (i >> 1)]! |= code << (i & 1) * 4;
      }
    }
  }
  assertEquals(bitsOf(made), bitsOf(loop));
});

Deno.test("scales of repacked blocks are those of every f16", () => {
  const halves = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
  const blocks = new Uint8Array(halves.length * 18);
  const view = new DataView(blocks.buffer);
  halves.forEach((half, i) => view.setUint16(i * 18, half, true));
  const quantized = {
    codes: new Uint8Array(halves.length * 16),
    scales: new Float32Array(halves.length),
  };
  repack(blocks, "Q4_0", { kind: "q4", block: 32 }, quantized);
  assertEquals(quantized.scales, Float32Array.from(new Float16Array(halves.buffer)));
});
