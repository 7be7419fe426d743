/** Llama models and YaRN against transformers: logits, greedy tokens, encodings, streams. */
import { assert, assertEquals } from "@std/assert";
import { convert } from "../../../core/convert/convert.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { planConversion } from "../../../core/convert/plan.ts";
import { RequestEncoder } from "../../../core/eval/harness/encode.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { scoreBatch } from "../../../core/generate/score.ts";
import { countParameters, elementCount, parameterSpecs } from "../../../core/model/parameters.ts";
import type { FileTensor, HostTensor } from "../../../core/runtime/device.ts";
import { encodePair, startTokenOf } from "../../../core/tokenizer/pair.ts";
import { openTokenizer, renderChat } from "../../../core/tokenizer/tokenizer.ts";
import { devices, reference } from "../devices.ts";
import { logitsOf, request, tokensOf } from "../engines.ts";
import { maxDifference, modelFolder, openGolden } from "../goldens.ts";
import { withScratch } from "../../scratch.ts";
import { readFixture } from "../../fixtures.ts";

const GOLDEN = readFixture("golden/llama.json");
const LLAMA3 = "llama-p1-llama3-tied-f32", BIASED = "llama-p1-untied-bias-f32";
const NAMES = Object.keys(GOLDEN.models);

const logitsAt = (engine: Engine) => logitsOf(engine, [GOLDEN.ids], GOLDEN.positions);

for (const { name: at, device } of [{ name: "reference", device: reference }, ...devices]) {
  for (const name of NAMES) {
    Deno.test(`${name} on ${at}: logits beyond the original context, and greedy tokens`, async () => {
      const engine = await openGolden(name, device);
      const golden = GOLDEN.models[name];
      const worst = maxDifference(await logitsAt(engine), golden.logits.flat());
      assert(worst < 1e-4, `${worst}`);
      for (const { prompt, tokens } of golden.greedy) {
        const greedy = request(prompt, { maxTokens: tokens.length });
        assertEquals(await tokensOf(engine, [greedy]), [tokens]);
      }
    });
  }
}

Deno.test("without its scaling a model computes something else", async () => {
  for (const name of [LLAMA3, "qwen2-p1-yarn-f32"]) {
    const { config, tensors } = await openCheckpoint(modelFolder(name));
    assert(config.ropeScaling !== undefined);
    const { ropeScaling: _, ...unscaled } = config;
    const found = await logitsAt(new Engine(reference, unscaled, tensors));
    assert(maxDifference(found, GOLDEN.models[name].logits.flat()) > 0.1);
  }
});

Deno.test("a Llama model with streams computes what a Qwen2 model without biases does", () =>
  withScratch(async (folder) => {
    const options = { model: modelFolder(LLAMA3), out: `${folder}/p2`, streams: 2, seed: 3 };
    await convert(await planConversion(options));
    const { config, tensors } = await openCheckpoint(options.out);
    const qwen = { ...config, family: "qwen2", attentionBias: true } as const;
    const biases = parameterSpecs(qwen).filter(({ name }) => !tensors.has(name));
    assertEquals(biases.length, 3 * config.numHiddenLayers);
    const zeros = biases.map(({ name, shape }) => {
      const data = new Float32Array(elementCount(shape));
      return [name, { dtype: "f32", shape, data }] as const;
    });
    const found = await logitsAt(new Engine(reference, config, tensors));
    const weights = new Map<string, FileTensor | HostTensor>([...tensors, ...zeros]);
    assertEquals(found, await logitsAt(new Engine(reference, qwen, weights)));
    const single = await logitsAt(await openGolden(LLAMA3, reference));
    assert(maxDifference(found, single) > 1e-3, "the streams have no effect");
  }));

Deno.test("Llama parameters are counted as transformers counts them", async () => {
  for (const name of NAMES) {
    const { config } = await openCheckpoint(modelFolder(name));
    assertEquals(countParameters(config).total, GOLDEN.models[name].parameters);
  }
});

Deno.test("tokenizers of Llama 3 and SmolLM encode and decode as in transformers", async () => {
  for (const name of [LLAMA3, BIASED]) {
    const tokenizer = await openTokenizer(modelFolder(name));
    assertEquals(tokenizer.kind, "byte-level-bpe");
    for (const { text, ids, plain, decoded } of GOLDEN.models[name].encodings) {
      if (!text.startsWith("<|begin|>")) assertEquals(tokenizer.encode(text), ids, text);
      assertEquals(tokenizer.encode(text, { frame: true }), ids, text);
      assertEquals(tokenizer.encode(text, { frame: false }), plain, text);
      assertEquals(tokenizer.decode(ids), decoded, text);
    }
  }
});

Deno.test("a chat prompt has one beginning-of-text token, as in transformers", async () => {
  const tokenizer = await openTokenizer(modelFolder(LLAMA3));
  const { messages, ids } = GOLDEN.models[LLAMA3].chat;
  const text = await renderChat(tokenizer, messages);
  assertEquals(tokenizer.encode(text, { frame: false }), ids);
  assertEquals(tokenizer.encode(text), ids);
});

Deno.test("scores and answers of lm-evaluation-harness, with a beginning-of-text token", async () => {
  for (const name of [LLAMA3, BIASED]) {
    const { pairs, rolling, generation, max_length } = GOLDEN.models[name].scores;
    const tokenizer = await openTokenizer(modelFolder(name));
    const engine = await openGolden(name, reference);
    const startToken = startTokenOf(tokenizer, engine.config.eosTokenIds);
    const encoder = new RequestEncoder({ tokenizer, maxLength: max_length, startToken });
    const requests = pairs.map((pair: { context: string; continuation: string }) =>
      encodePair(tokenizer, pair.context, pair.continuation, startToken)
    );
    const whole = { kind: "loglikelihood", context: "", continuation: rolling.text } as const;
    const windows = encoder.windows(whole);
    const scores = await scoreBatch(engine, [...requests, ...windows]);
    const found = scores.map(({ loglikelihood }) => loglikelihood);
    found.push(found.splice(pairs.length).reduce((sum, part) => sum + part, 0));
    const expected = pairs.map((pair: { loglikelihood: number }) => pair.loglikelihood);
    const worst = maxDifference(found, [...expected, rolling.loglikelihood]);
    assert(worst < 1e-3, `${name}: ${found} ${expected} ${rolling.loglikelihood}`);
    const prompt = encoder.prompt({ kind: "text", stop: [], maxTokens: 8, ...generation });
    const greedy = request(prompt, { maxTokens: generation.max_tokens });
    const [answer] = await tokensOf(engine, [greedy]);
    assertEquals(tokenizer.decode(answer!, { skipSpecial: true }), generation.text);
  }
});
