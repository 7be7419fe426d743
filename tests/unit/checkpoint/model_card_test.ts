/** Model cards: what they tell, and that no path of this machine is in them. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { modelCard } from "../../../core/checkpoint/model_card.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { MODELS } from "./testing.ts";

const { config } = await openCheckpoint(`${MODELS}/qwen2-p2-tied-f32`);
const FACTS = { folder: "/home/ann/out/mine", config, source: "/home/ann/base" };

Deno.test("a card has sizes, commands and the names of folders, but no paths", () => {
  const card = modelCard({ ...FACTS, backboneSha256: "ab".repeat(32) });
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

Deno.test("names with blanks are quoted in commands", () => {
  const card = modelCard({ ...FACTS, folder: "/out/ann's model" });
  assertStringIncludes(card, "parscale serve --model 'ann'\\''s model'\n");
  assertStringIncludes(card, "parscale export --model 'ann'\\''s model' --out onnx");
  const adapter = modelCard({ ...FACTS, folder: "/out/p 4", source: "/a base", isAdapter: true });
  assertStringIncludes(adapter, "--model 'a base' --adapter 'p 4'");
  assertStringIncludes(adapter, "--model 'a base' --adapter p='p 4'");
});

Deno.test("a base from the hub is named as there, for adapters too", () => {
  const source = "/x/models--Qwen--Qwen2.5-0.5B/snapshots/0123/";
  assertStringIncludes(modelCard({ ...FACTS, source }), "base_model: Qwen/Qwen2.5-0.5B\n");
  const adapter = modelCard({ ...FACTS, source, isAdapter: true });
  assertStringIncludes(adapter, "--model Qwen/Qwen2.5-0.5B --adapter mine");
  assertEquals(adapter.includes("transformers"), false);
  const gguf = { ...FACTS, source: `${source}sub/qwen-Q8_0.gguf`, isAdapter: true };
  assertStringIncludes(modelCard(gguf), "base_model: Qwen/Qwen2.5-0.5B\n");
  const file = "Qwen/Qwen2.5-0.5B:sub/qwen-Q8_0.gguf";
  assertStringIncludes(modelCard(gguf), `generate --model ${file} --adapter mine`);
});

Deno.test("training and evaluation are lists, and quantized weights are named", () => {
  const training = ["60 steps of 16 rows"], evaluation = ["loss 1.2"];
  const card = modelCard({ ...FACTS, training, evaluation });
  assertStringIncludes(card, "## Training\n\n- 60 steps of 16 rows\n\n## Evaluation\n\n- loss 1.2");
  const quantized = modelCard({ ...FACTS, quantization: { kind: "q8", block: 64 } });
  assertStringIncludes(quantized, "| weights | 8 bits, block size 64 |");
});
