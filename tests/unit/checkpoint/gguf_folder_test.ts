/** Folders made from GGUF files have the fields of the official folders of Qwen. */
import { assertEquals } from "@std/assert";
import { convert } from "../../../core/convert/convert.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { planConversion } from "../../../core/convert/plan.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { writeGguf, writeTinyFolder } from "../../gguf_model.ts";
import { withScratch } from "../../scratch.ts";

/** Converts a model of a family to a GGUF file and that to a folder; reads fields of its JSON files. */
const withFolders = (
  family: "llama" | "qwen2" | "qwen3",
  work: (place: {
    readonly path: string;
    readonly out: string;
    readonly json: (name: string) => Promise<Record<string, unknown>>;
  }) => Promise<void>,
) =>
  withScratch(async (scratch) => {
    const folder = `${scratch}/folder`, path = `${scratch}/model.gguf`, out = `${scratch}/out`;
    await writeTinyFolder(folder, family);
    await writeGguf(path, folder);
    await convert(await planConversion({ model: path, out }));
    const json = async (name: string) => JSON.parse(await Deno.readTextFile(`${out}/${name}`));
    await work({ path, out, json });
  });

Deno.test("config.json has the end token that the file names, generation_config.json all of them", () =>
  withFolders("qwen2", async ({ path, out, json }) => {
    assertEquals((await json("config.json")).eos_token_id, 490);
    assertEquals((await json("generation_config.json")).eos_token_id, [490, 492]);
    for (const model of [path, out]) {
      assertEquals((await openCheckpoint(model)).config.eosTokenIds, [490, 492]);
    }
  }));

for (
  const [family, expected] of [["qwen2", false], ["qwen3", false], ["llama", undefined]] as const
) {
  Deno.test(`a ${family} folder states the model's length, and use_sliding_window where Qwen does`, () =>
    withFolders(family, async ({ json }) => {
      assertEquals((await json("tokenizer_config.json")).model_max_length, 256);
      assertEquals((await json("config.json")).use_sliding_window, expected);
    }));
}

Deno.test("tokens of Qwen for code are not special, though converters type them CONTROL", () =>
  withFolders("qwen2", async ({ path, out }) => {
    const text = "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>c<|fim_pad|>" +
      "<|repo_name|>d<|file_sep|>e<tool_call></tool_call>";
    for (const model of [path, out]) {
      const tokenizer = await openTokenizer(model);
      const ids = tokenizer.encode(`${text}<|im_end|><|vision_pad|>`);
      assertEquals(ids.length, 15);
      assertEquals(tokenizer.decode(ids, { skipSpecial: true }), text);
    }
  }));
