/** Protects readers of GGUF files from damage: truncation and flipped bits are bad data, nothing else. */
import { assert } from "@std/assert";
import { DataError } from "../../core/base/errors.ts";
import { RandomStream } from "../../core/base/random.ts";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { readGgufHead } from "../../core/checkpoint/gguf/head.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { ggufBytes, ggufOf, writeTinyFolder } from "../gguf_model.ts";
import { withScratch } from "../unit/checkpoint/testing.ts";

/** A file of a small model, and where its data begins. */
async function withFile(
  body: (path: string, bytes: Uint8Array<ArrayBuffer>, head: number) => Promise<void>,
): Promise<void> {
  await withScratch(async (scratch) => {
    await writeTinyFolder(`${scratch}/folder`, "llama");
    const bytes = ggufBytes(await ggufOf(`${scratch}/folder`, { type: "Q8_0" }));
    const path = `${scratch}/model.gguf`;
    await Deno.writeFile(path, bytes);
    const { tensors } = readGgufHead(path);
    await body(path, bytes, Math.min(...[...tensors.values()].map(({ offset }) => offset)));
  });
}

/** Opens what can be opened of a file. Returns whether that is a model. */
async function opens(path: string): Promise<boolean> {
  let whole = true;
  for (const open of [openCheckpoint, openTokenizer]) {
    try {
      await open(path);
    } catch (error) {
      if (!(error instanceof DataError)) throw error;
      whole = false;
    }
  }
  return whole;
}

Deno.test("a file cut off at any of 2,000 places is bad data", () =>
  withFile(async (path, bytes, head) => {
    const stream = new RandomStream(1, "offsets");
    for (let i = 0; i < 2000; i++) {
      const end = i < 1500 ? Math.floor(i * head / 1500) : stream.integer(bytes.length);
      await Deno.writeFile(path, bytes.subarray(0, end));
      try {
        await openCheckpoint(path);
      } catch (error) {
        assert(error instanceof DataError, String(error));
        continue;
      }
      throw new Error(`a file cut off at ${end} of ${bytes.length} was opened`);
    }
  }));

Deno.test("5,000 flipped bits in the head open or are bad data", () =>
  withFile(async (path, bytes, head) => {
    const stream = new RandomStream(2, "bits");
    let opened = 0;
    for (let i = 0; i < 5000; i++) {
      const at = stream.integer(head), bit = 1 << stream.integer(8);
      bytes[at]! ^= bit;
      using file = await Deno.open(path, { write: true });
      await file.write(bytes.subarray(0, head));
      if (await opens(path)) opened++;
      bytes[at]! ^= bit;
    }
    assert(opened > 0 && opened < 5000, `${opened}`);
  }));
