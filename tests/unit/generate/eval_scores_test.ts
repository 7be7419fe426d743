/** Scores and greedy texts of benchmark rows equal those of lm-evaluation-harness. */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { readTaskData } from "../../../core/eval/harness/data_folder.ts";
import {
  documentsOf,
  type LikelihoodRequest,
  requestsOf,
} from "../../../core/eval/harness/documents.ts";
import { RequestEncoder } from "../../../core/eval/harness/encode.ts";
import { taskOf } from "../../../core/eval/tasks/mod.ts";
import { Engine } from "../../../core/generate/engine.ts";
import { type Score, scoreBatch, type ScoreRequest } from "../../../core/generate/score.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { type ChatMessage, renderChat } from "../../../core/tokenizer/chat.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { request, scoresOf, tokensOf } from "../../device/engines.ts";
import { openGolden } from "../../device/goldens.ts";
import { fixtureRows, FIXTURES } from "../../fixtures.ts";

const MODEL = `${FIXTURES}models/tiny-qwen2`;

const golden = (name: string) => fixtureRows(`golden/eval/requests_${name}.jsonl`);

const tokenizer = await openTokenizer(MODEL);
const checkpoint = await openCheckpoint(MODEL);
const device = new CpuDevice({ threads: 1 });
const engine = new Engine(device, checkpoint.config, checkpoint.tensors);
const chat = (messages: readonly ChatMessage[]) => renderChat(tokenizer, messages);

const NAMES = [
  ..."winogrande hellaswag openbookqa piqa arc_easy arc_challenge sciq mmlu race".split(" "),
  "mmlu_chat",
  "arc_challenge_maxlen256",
];

for (const name of NAMES) {
  Deno.test(`${name}: log-likelihoods`, async () => {
    const cases = golden(name);
    const task = taskOf(name.replace(/_chat|_maxlen256/, ""))!;
    const shots = cases[0].num_fewshot;
    const data = await readTaskData(task, `${FIXTURES}eval/data`, shots);
    const limit = Math.min(12, data.rows.length);
    const documents = [...documentsOf(task, data, { shots, limit })];
    const maxLength = cases[0].max_length ?? checkpoint.config.maxPositionEmbeddings;
    const encoder = new RequestEncoder({ tokenizer, maxLength, startToken: undefined });
    const sets = await Promise.all(documents.map(async (document) => {
      const requests = await requestsOf(document, name.endsWith("_chat") ? chat : undefined);
      return encoder.pairs(requests as LikelihoodRequest[]);
    }));
    const scores = await scoresOf(engine, sets, { batch: 8 });
    const counts = new Map<string, number>();
    documents.forEach(({ group }, i) => {
      const at = counts.get(group) ?? 0;
      counts.set(group, at + 1);
      const full = group === "" ? task.name : `${task.name}_${group}`;
      const expected = cases.find((c) => c.task === full && c.doc_index === at);
      if (!expected) return;
      expected.loglikelihood.forEach((value: number, choice: number) => {
        const { loglikelihood, isGreedy } = scores[i]![choice]!;
        assert(Math.abs(loglikelihood - value) < 1e-3, `${full} ${at}: ${loglikelihood} ${value}`);
        assertEquals(isGreedy, expected.is_greedy[choice]);
      });
    });
    assertEquals(encoder.truncated > 0, name.endsWith("_maxlen256"));
  });
}

for (const name of ["gsm8k", "gsm8k_cot", "minerva_math", "ifeval", "gsm8k_chat"]) {
  Deno.test(`${name}: greedy tokens`, async () => {
    const cases = golden(name).filter((c) => c.tiny_model_min_top2_logit_margin > 1e-3).slice(0, 6);
    const requests = cases.map(({ prompt, tiny_model_max_gen_toks: maxTokens }) =>
      request(tokenizer.encode(prompt), { maxTokens })
    );
    const expected = cases.map((c) => c.tiny_model_greedy_token_ids_no_stop);
    assertEquals(await tokensOf(engine, requests, 3), expected);
  });
}

/** Sets like those of benchmarks: a shared prefix or none, one leaf or several, all lengths. */
function madeSets(): ScoreRequest[][] {
  const random = new RandomStream(7, "sets");
  const text = (length: number) => Array.from({ length }, () => random.integer(500));
  const prefixes = [text(0), text(40), text(150), text(300)];
  const sets = Array.from({ length: 17 }, (_, i): ScoreRequest[] => {
    const stem = [...prefixes[i % 4]!, ...text(1 + i * 5)];
    const from = stem.length;
    if (i % 5 === 0) return [1, 2, 3].map((last) => ({ tokens: [...stem, last], from }));
    if (i % 5 === 1) return [{ tokens: [...stem, ...text(9)], from }];
    // As in WinoGrande: they part before what is scored.
    const ending = text(6);
    if (i % 5 === 2) {
      return [2, 3].map((n) => ({ tokens: [...stem, ...text(n), ...ending], from: from + n }));
    }
    return [4, 9, 1, 17].map((n) => ({ tokens: [...stem, ...text(n)], from }));
  });
  return [...sets, sets[3]!, [{ tokens: [4, 5], from: 1 }], [{ tokens: text(290), from: 260 }]];
}

for (const golden of ["qwen2-p1-tied-f32", "qwen2-p4-untied-f32"]) {
  Deno.test(`${golden}: sets with shared prefixes score as each sequence alone`, async () => {
    const engine = await openGolden(golden, new CpuDevice({ threads: 1 }));
    const sets = madeSets(), alone: Score[][] = [];
    for (const set of sets) alone.push(await scoreBatch(engine, set));
    for (const batch of [1, 4, 64]) {
      const scores = await scoresOf(engine, sets, { batch });
      assertEquals(Object.keys(scores).length, sets.length);
      for (const [i, set] of sets.entries()) {
        set.forEach((_, j) => {
          const [a, b] = [scores[i]![j]!, alone[i]![j]!];
          const apart = Math.abs(a.loglikelihood - b.loglikelihood);
          assert(apart < 1e-4, `batch ${batch}, set ${i}, ${j}: ${apart}`);
          assertEquals([a.isGreedy, a.tokenLogprobs.length], [b.isGreedy, b.tokenLogprobs.length]);
        });
      }
    }
  });
}

Deno.test("sets that are skipped change nothing for the others", async () => {
  const engine = await openGolden("qwen2-p2-tied-f32", new CpuDevice({ threads: 1 }));
  const sets = madeSets();
  const all = await scoresOf(engine, sets, { batch: 8 });
  const told: [done: number, total: number][] = [];
  const some = await scoresOf(engine, sets, {
    batch: 8,
    skip: (i) => i % 3 !== 1,
    onRead: (...tokens) => told.push(tokens),
  });
  const [, total] = told[0]!;
  assertEquals(told.map(([, all]) => all), told.map(() => total));
  assertEquals(told.at(-1), [total, total], "all tokens are told of, those of skipped sets aside");
  assertEquals(Object.keys(some).map(Number), [...sets.keys()].filter((i) => i % 3 === 1));
  for (const i of Object.keys(some).map(Number)) {
    assertEquals(some[i]!.map((s) => s.loglikelihood), all[i]!.map((s) => s.loglikelihood));
  }
});
