/** Model cards: what they tell, and that no path of this machine is in them. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { modelCard } from "../../../core/convert/model_card.ts";
import { filesOf, openModelFiles } from "../../../core/checkpoint/model_files.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { type Entry, writeGguf, writeTinyFolder } from "../../gguf_model.ts";
import { MODELS, withScratch } from "../checkpoint/testing.ts";

const { config } = await openCheckpoint(`${MODELS}/qwen2-p2-tied-f32`);
const FACTS = { folder: "/home/ann/out/mine", config, source: filesOf("/home/ann/base") };

Deno.test("a card has sizes, commands and the names of folders, but no paths", async () => {
  const card = await modelCard({ ...FACTS, backboneSha256: "ab".repeat(32) });
  for (
    const part of [
      "# mine\n",
      "| parallel streams (P) | 2 |",
      "| made from | `base` |",
      "`abababab",
      "parscale generate --model mine ",
      'from_pretrained("mine", trust_remote_code=True)',
      "parscale export --model mine",
    ]
  ) assertStringIncludes(card, part);
  assertEquals(card.includes("/home"), false);
});

Deno.test("names with blanks are quoted in commands", async () => {
  const card = await modelCard({ ...FACTS, folder: "/out/ann's model" });
  assertStringIncludes(card, "parscale serve --model 'ann'\\''s model'\n");
  assertStringIncludes(card, "parscale export --model 'ann'\\''s model' --out onnx");
  const adapter = await modelCard({
    ...FACTS,
    folder: "/out/p 4",
    source: filesOf("/a base"),
    isAdapter: true,
  });
  assertStringIncludes(adapter, "for `a base`");
  assertStringIncludes(adapter, "parscale generate --model 'p 4' --prompt");
});

Deno.test("a base from the hub is named as there, for adapters too", async () => {
  const folder = "/x/models--Qwen--Qwen2.5-0.5B/snapshots/0123/", source = filesOf(folder);
  assertStringIncludes(await modelCard({ ...FACTS, source }), "base_model: Qwen/Qwen2.5-0.5B\n");
  const adapter = await modelCard({ ...FACTS, source, isAdapter: true });
  assertStringIncludes(adapter, "parameters for `Qwen/Qwen2.5-0.5B`");
  assertEquals(adapter.includes("transformers"), false);
  const gguf = { ...FACTS, source: filesOf(`${folder}sub/qwen-Q8_0.gguf`), isAdapter: true };
  assertStringIncludes(await modelCard(gguf), "base_model: Qwen/Qwen2.5-0.5B\n");
  assertStringIncludes(await modelCard(gguf), "for `Qwen/Qwen2.5-0.5B:sub/qwen-Q8_0.gguf`");
});

Deno.test("a card names the licence that the source's card or GGUF file names", () =>
  withScratch(async (source) => {
    const licence = async (model: string) => {
      const source = await openModelFiles(model);
      return /^---\n(.*)tags:/s.exec(await modelCard({ ...FACTS, source }))![1];
    };
    assertEquals(await licence(source), "");
    const card = "---\r\nlicense: other\r\nlicense_name: own\r\n---\r\n# Model\r\nlicense: no\r\n";
    Deno.writeTextFileSync(`${source}/README.md`, card);
    assertEquals(await licence(source), "license: other\nlicense_name: own\n");
    await writeTinyFolder(`${source}/folder`, "llama");
    const metadata: Record<string, Entry> = { "general.license": ["string", "apache-2.0"] };
    await writeGguf(`${source}/model.gguf`, `${source}/folder`, { metadata });
    assertEquals(await licence(`${source}/model.gguf`), "license: apache-2.0\n");
  }));

Deno.test("training and evaluation are lists, and quantized weights are named", async () => {
  const training = ["60 steps of 16 rows"], evaluation = ["loss 1.2"];
  const card = await modelCard({ ...FACTS, training, evaluation });
  assertStringIncludes(card, "## Training\n\n- 60 steps of 16 rows\n\n## Evaluation\n\n- loss 1.2");
  const quantized = await modelCard({ ...FACTS, quantization: { kind: "q8", block: 64 } });
  assertStringIncludes(quantized, "| weights | 8 bits, block size 64 |");
});
