/** Headers of safetensors files that contradict themselves or their file. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { readHeader } from "../../../core/checkpoint/safetensors.ts";
import { userError, withScratch, writeRaw } from "./testing.ts";

const A = { dtype: "F32", shape: [2], data_offsets: [0, 8] };
const B = { dtype: "U8", shape: [4], data_offsets: [8, 12] };

/** Headers over 12 bytes of data, and the complaint about each. */
const WRONG: readonly (readonly [string, unknown, string])[] = [
  ["bytes behind the last tensor", { A }, "bytes, expected"],
  ["a gap", { A: { ...A, shape: [1], data_offsets: [0, 4] }, B }, "starts at byte"],
  ["tensors that overlap", { A, B: { ...B, shape: [8], data_offsets: [4, 12] } }, "starts at byte"],
  ["a tensor beyond the end", { A, B: { ...B, shape: [5], data_offsets: [8, 13] } }, "truncated"],
  ["more bytes than the shape has", { A: { ...A, shape: [1] }, B }, "has 8 bytes, expected 4"],
  ["fewer bytes than the shape has", { A, B: { ...B, shape: [5] } }, "has 4 bytes, expected 5"],
  ["an unknown type", { A: { ...A, dtype: "F31" }, B }, 'dtype "F31"'],
  ["offsets that go back", { A: { ...A, data_offsets: [8, 0] }, B }, "data_offsets [8,0]"],
  ["metadata that is not text", { __metadata__: { a: 1 }, A, B }, "must map strings"],
];

Deno.test("a header must cover its file exactly", () =>
  withScratch(async (folder) => {
    const path = `${folder}/model.safetensors`;
    writeRaw(path, { B, A }, new Uint8Array(12));
    const data = Deno.statSync(path).size - 12;
    const places = (await readHeader(path)).map(({ name, offset }) => [name, offset - data]);
    assertEquals(places, [["A", 0], ["B", 8]]);
    for (const [name, header, complaint] of WRONG) {
      writeRaw(path, header, new Uint8Array(12));
      const { message } = await userError(() => readHeader(path));
      assertStringIncludes(message, complaint, name);
    }
  }));
