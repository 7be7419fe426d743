/** Qwen3.5 as its users have it: folders of transformers, presets. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { readHeader } from "../../core/checkpoint/safetensors.ts";
import { modelFolder } from "../device/goldens.ts";
import { withScratch } from "../scratch.ts";
import { runParscale } from "./run.ts";

const PLAIN = modelFolder("qwen35-p1-tied-f32");

/** Writes the model as transformers saves one that is for images too. */
async function writeWhole(folder: string): Promise<void> {
  const config = JSON.parse(await Deno.readTextFile(`${PLAIN}/config.json`));
  const { architectures: _, model_type: _type, tie_word_embeddings, dtype, ...text } = config;
  const whole = {
    architectures: ["Qwen3_5ForConditionalGeneration"],
    model_type: "qwen3_5",
    image_token_id: 500,
    text_config: { model_type: "qwen3_5_text", attn_output_gate: true, ...text },
    ...{ tie_word_embeddings, dtype, vision_config: { model_type: "qwen3_5_vision", depth: 1 } },
  };
  await Deno.writeTextFile(`${folder}/config.json`, JSON.stringify(whole));
  const path = `${PLAIN}/model.safetensors`, bytes = await Deno.readFile(path);
  const extra = ["model.visual.blocks.0.norm1.weight", "mtp.fc.weight"];
  const entries = await readHeader(path);
  const first = Math.min(...entries.map(({ offset }) => offset));
  const data = bytes.subarray(first);
  const header = Object.fromEntries([
    ...entries.map(({ name, dtype, shape, offset, byteLength }) => [
      name.replace(/^model\./, "model.language_model."),
      { dtype, shape, data_offsets: [offset - first, offset - first + byteLength] },
    ]),
    ...extra.map((name, i) => [name, {
      dtype: "F32",
      shape: [1],
      data_offsets: [data.length + 4 * i, data.length + 4 * (i + 1)],
    }]),
  ]);
  const json = new TextEncoder().encode(JSON.stringify(header));
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(json.length), true);
  const parts = [length, json, data, new Uint8Array(4 * extra.length)];
  await Deno.writeFile(`${folder}/model.safetensors`, await new Blob(parts).bytes());
  for (const name of ["tokenizer.json", "tokenizer_config.json"]) {
    await Deno.copyFile(`${PLAIN}/${name}`, `${folder}/${name}`);
  }
}

Deno.test("a Qwen3.5 folder for text and images opens as its text model, and says so once", () =>
  withScratch(async (scratch) => {
    const folder = `${scratch}/whole`, converted = `${scratch}/p2`;
    await Deno.mkdir(folder);
    await writeWhole(folder);
    const asked = "--prompt cat --max-tokens 6 --json";
    const [whole, plain] = [
      await runParscale(`generate --model ${folder} ${asked}`),
      await runParscale(`generate --model ${PLAIN} ${asked}`),
    ];
    assertEquals(whole.code, 0, whole.stderr);
    const tokens = ({ stdout }: typeof whole) => JSON.parse(stdout).results[0].tokens;
    assertEquals(tokens(whole), tokens(plain));
    const note = "the text model is read; 2 tensors for images and multi-token prediction are not";
    assertEquals(whole.stderr.split(note).length, 2, whole.stderr);

    const made = await runParscale(
      `convert ${folder} --streams 2 --prefix-tokens 8 --out ${converted}`,
    );
    assertEquals(made.code, 0, made.stderr);
    assertStringIncludes(made.stderr, note);
    const config = JSON.parse(await Deno.readTextFile(`${converted}/config.json`));
    assertEquals([config.model_type, config.parscale_n], ["qwen3_5_parscale", 2]);
    assertEquals([config.text_config, config.vision_config], [undefined, undefined]);
    assertEquals(config.architectures, ["Qwen3_5ParScaleForCausalLM"]);
  }));

/** Parameters of the text models, as transformers 5.24 counts them. */
const PARAMETERS = {
  "qwen3.5-0.8b": 752_393_024,
  "qwen3.5-2b": 1_881_825_088,
  "qwen3.5-4b": 4_205_751_296,
  "qwen3.5-9b": 8_953_803_264,
};

Deno.test("the shapes of Qwen3.5 are presets of cost, with the parameters that transformers counts", async () => {
  for (const [name, params] of Object.entries(PARAMETERS)) {
    const { code, stdout, stderr } = await runParscale(`cost ${name} --weight-bits 8 --json`);
    assertEquals(code, 0, stderr);
    const [row] = JSON.parse(stdout).results;
    assert(Math.abs(row.weight_bytes - params) < 1, `${name}: ${row.weight_bytes}`);
  }
});
