/** Prefixes made from text stand for that text: rotary positions are relative. */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { prefixesFromText } from "../../../core/generate/prefix_init.ts";
import { cutSegments, ownSegments } from "../../../core/session/text_start.ts";
import { introducedValues } from "../../../core/model/init.ts";
import { parameterSpecs } from "../../../core/model/parameters.ts";
import type { FileTensor, HostTensor } from "../../../core/runtime/device.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { logitsOf } from "../../device/engines.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { maxDifference, modelFolder, TOLERANCE } from "../../device/goldens.ts";

for (const name of ["qwen2-p1-tied-f32", "qwen3-p1-tied-f32", "qwen35-p1-tied-f32"]) {
  Deno.test(`${name}: a text prefix acts like the text itself, put before`, async () => {
    const device = new CpuDevice();
    const { config, tensors } = await openCheckpoint(modelFolder(name));
    const plain = new Engine(device, config, tensors);
    const segment = [5, 17, 100, 42, 8, 300, 77];
    const text = [9, 12, 200, 31, 64];
    const M = segment.length;

    const streams = { ...config, streams: 2, prefix: true, prefixTokens: M, smoothing: 0.1 };
    const prefixes = await prefixesFromText(plain, [segment, segment]);
    const weights = new Map<string, HostTensor | FileTensor>(tensors);
    for (const spec of parameterSpecs(streams).filter((spec) => spec.introduced)) {
      const data = prefixes.get(spec.name) ?? introducedValues(spec, 0);
      weights.set(spec.name, { dtype: "f32", shape: spec.shape, data });
    }
    const actual = await logitsOf(new Engine(device, streams, weights), [text]);
    const expected = await logitsOf(plain, [[...segment, ...text]], text.map((_, t) => M + t));
    const difference = maxDifference(actual, expected);
    assert(difference <= TOLERANCE.logits, `logits differ by ${difference}`);
  });
}

Deno.test("segments are spread over the text, to ends of lines, the last to its end", () => {
  const tokens = Array.from({ length: 10 }, (_, i) => i), never = () => false;
  assertEquals(cutSegments(tokens, 3, 2, never), [[0, 1], [4, 5], [8, 9]]);
  assertEquals(cutSegments(tokens, 3, 2, (token) => token % 3 === 0), [[2, 3], [5, 6], [8, 9]]);
  assertEquals(cutSegments(tokens, 2, 10, never), [tokens, tokens]);
  assertEquals(cutSegments(tokens, 1, 4, never), [[6, 7, 8, 9]]);
});

Deno.test("every stream starts from another text, which is not broken off", async () => {
  const tokenizer = await openTokenizer(modelFolder("tiny-qwen2"));
  const segments = ownSegments(tokenizer, 64, 48);
  assertEquals(new Set(segments.map(String)).size, 64);
  assert(segments.slice(0, 25).every((ids) => tokenizer.decode(ids).endsWith("\n\n")));
});
