/** Protects the blocks of GGUF files: equal bits with the Python package, repacking without loss. */
import { assert, assertEquals } from "@std/assert";
import { BLOCKS, type BlockType, decodeBlocks } from "../../../core/quant/blocks.ts";
import { formatOf } from "../../../core/quant/stored.ts";
import { dequantize, packing, repack, roomFor } from "../../../core/quant/codes.ts";

const GOLDEN: Readonly<Record<string, { blocks: string; values: string }>> = JSON.parse(
  Deno.readTextFileSync(new URL("../../../fixtures/golden/gguf/blocks.json", import.meta.url)),
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
    if (type === "Q4_1") continue; // becomes f32
    const { blocks, values } = decoded(type);
    const shape = [blocks.length / BLOCKS[type].bytes, BLOCKS[type].elements];
    const format = formatOf({
      ...WEIGHT,
      shape,
      encoding: { type, byteLength: 0 },
    })!;
    const quantized = roomFor(shape, format), { rows, columns, bits } = packing(shape, format);
    repack(blocks, type, quantized);
    const repacked = dequantize(quantized, rows, columns, bits, format.block);
    if (!format.offsets) assertEquals(repacked, values, type);
    const error = Math.max(...repacked.map((x, i) => Math.abs(x - values[i]!)));
    assert(error <= 2 ** -22 * Math.max(...values.map(Math.abs)), `${type}: ${error}`);
  }
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
  repack(blocks, "Q4_0", quantized);
  assertEquals(quantized.scales, Float32Array.from(new Float16Array(halves.buffer)));
});
