/** End tokens of model folders. */
import { assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { copyModel, withScratch } from "./testing.ts";

Deno.test("end tokens are those of generation_config.json, config.json and the tokenizer", () =>
  withScratch(async (scratch) => {
    const listed = { added_tokens_decoder: { "7": { content: "<a>" } } };
    const cases: [files: Record<string, unknown>, ids: number[]][] = [
      [{}, [490]],
      [{ "generation_config.json": { eos_token_id: [5, 490] } }, [5, 490]],
      [{ "generation_config.json": { eos_token_id: 5 } }, [5, 490]],
      [{ "tokenizer_config.json": { eos_token: "<a>", ...listed } }, [490, 7]],
      [{ "tokenizer_config.json": { eos_token: { content: "<a>" }, ...listed } }, [490, 7]],
      [{ "special_tokens_map.json": { eos_token: "<a>" }, "tokenizer_config.json": listed }, [
        490,
        7,
      ]],
      [{ "tokenizer_config.json": { eos_token: null, ...listed } }, [490]],
      // As transformers 5 saves it: ids stand in tokenizer.json alone.
      [{
        "tokenizer_config.json": { eos_token: "<a>" },
        "tokenizer.json": {
          added_tokens: [{ id: 1, content: "<b>{" }, { id: 8, content: "<a>", special: true }],
          model: { vocab: {} },
        },
      }, [490, 8]],
      [{ "tokenizer_config.json": { eos_token: "<a>" }, "added_tokens.json": { "<a>": 9 } }, [
        490,
        9,
      ]],
    ];
    for (const [i, [files, ids]] of cases.entries()) {
      const folder = `${scratch}/${i}`;
      copyModel("qwen2-p1-tied-f32", folder, { eos_token_id: 490 });
      for (const name of ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]) {
        await Deno.remove(`${folder}/${name}`).catch(() => {});
      }
      for (const [name, json] of Object.entries(files)) {
        Deno.writeTextFileSync(`${folder}/${name}`, JSON.stringify(json));
      }
      assertEquals((await openCheckpoint(folder)).config.eosTokenIds, ids, String(i));
    }
  }));
