/** Output matrices of files whose config ties them to the embedding table. */
import { assertEquals } from "@std/assert";
import { configToJson } from "../../../core/checkpoint/config.ts";
import { openCheckpoint, tellReading } from "../../../core/checkpoint/open.ts";
import { copyModel, readRaw, withScratch, writeRaw } from "./testing.ts";

/** Adds an output matrix to a model: the embedding table, with one element of another value or none. */
function addHead(folder: string, isOther: boolean): void {
  const path = `${folder}/model.safetensors`, { header, data } = readRaw(path);
  const name = Object.keys(header).find((name) => name.endsWith("embed_tokens.weight"))!;
  const { dtype, shape, data_offsets: [from, to] } = header[name];
  const table = new Float32Array(data.slice(from, to).buffer);
  if (isOther) table[table.length - 1]! += 1;
  const data_offsets = [data.length, data.length + table.byteLength];
  const all = new Uint8Array([...data, ...new Uint8Array(table.buffer)]);
  writeRaw(path, { ...header, "lm_head.weight": { dtype, shape, data_offsets } }, all);
}

Deno.test("an output matrix that differs from the table is used, though the config ties them", () =>
  withScratch(async (scratch) => {
    for (const isOther of [true, false]) {
      const folder = `${scratch}/${isOther}`, warnings: string[] = [];
      copyModel("qwen2-p1-tied-f32", folder);
      addHead(folder, isOther);
      const checkpoint = await openCheckpoint(folder);
      assertEquals(checkpoint.config.tieWordEmbeddings, !isOther);
      assertEquals(checkpoint.tensors.has("lm_head.weight"), isOther);
      const json = configToJson(checkpoint.config, checkpoint.configJson);
      assertEquals(json.tie_word_embeddings, !isOther);
      tellReading(checkpoint, { note: () => {}, warn: (text) => warnings.push(text) });
      assertEquals(warnings.length, isOther ? 1 : 0);
    }
  }));

Deno.test("the text model's tie_word_embeddings counts in a config for images too", () =>
  withScratch(async (scratch) => {
    // Loaded by AutoModelForCausalLM of transformers 5.24 from the same files.
    const cases: [outer: unknown, inner: unknown, hasHead: boolean, ties: boolean][] = [
      [true, true, false, true],
      [false, true, false, true],
      [undefined, true, false, true],
      [true, true, true, false],
      [true, false, true, false],
      [false, true, true, false],
      [true, undefined, true, false],
      [undefined, undefined, true, false],
    ];
    for (const [i, [outer, inner, hasHead, ties]] of cases.entries()) {
      const folder = `${scratch}/${i}`;
      copyModel("qwen35-p1-tied-f32", folder);
      const { tie_word_embeddings: _, ...own } = JSON.parse(
        Deno.readTextFileSync(`${folder}/config.json`),
      );
      const text_config = { ...own, tie_word_embeddings: inner };
      const config = { model_type: "qwen3_5", tie_word_embeddings: outer, text_config };
      Deno.writeTextFileSync(`${folder}/config.json`, JSON.stringify(config));
      if (hasHead) addHead(folder, true);
      const checkpoint = await openCheckpoint(folder);
      assertEquals(checkpoint.config.tieWordEmbeddings, ties, `${outer} ${inner} ${hasHead}`);
      const json = configToJson(checkpoint.config, checkpoint.configJson);
      assertEquals(json.tie_word_embeddings ?? false, ties);
    }
  }));
