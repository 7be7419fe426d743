/** Protects the blocks of GGUF files: equal bits with the Python package, repacking without loss. */
import { assertEquals } from "@std/assert";
import { BLOCKS, type BlockType, decodeBlocks } from "../../../core/base/blocks.ts";
import { dequantize, repack } from "../../../core/base/quantize.ts";

const GOLDEN: Readonly<Record<string, { blocks: string; values: string }>> = JSON.parse(
  Deno.readTextFileSync(new URL("../../../fixtures/golden/gguf/blocks.json", import.meta.url)),
);

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

Deno.test("repacked codes of Q8_0, Q4_0 and Q6_K stand for the same values", () => {
  for (const [type, bits, block] of [["Q8_0", 8, 32], ["Q4_0", 4, 32], ["Q6_K", 8, 16]] as const) {
    const { blocks, values } = decoded(type);
    const count = values.length / block;
    const quantized = {
      codes: new Uint8Array(values.length * bits / 8),
      scales: new Float32Array(count),
    };
    repack(blocks, type, quantized);
    assertEquals(dequantize(quantized, count, block, bits, block), values, type);
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
