/** Prompts, continuations, stops and token pairs equal those of lm-evaluation-harness, exactly. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { createHash } from "node:crypto";
import { UsageError } from "../../../core/base/errors.ts";
import { readTaskData } from "../../../core/eval/harness/data_folder.ts";
import {
  type Document,
  documentsOf,
  type LikelihoodRequest,
  type Request,
  requestsOf,
  type TextRequest,
} from "../../../core/eval/harness/documents.ts";
import { parsePythonLiteral } from "../../../core/eval/python/literal.ts";
import { Row } from "../../../core/eval/harness/row.ts";
import { PythonRandom } from "../../../core/eval/harness/sampler.ts";
import {
  type ChoiceQuestion,
  type GenerationTask,
  type OpenQuestion,
  taskAsAsked,
} from "../../../core/eval/harness/task.ts";
import { taskOf } from "../../../core/eval/tasks/mod.ts";
import { type ChatMessage, renderPrompt } from "../../../core/tokenizer/chat.ts";
import { encodePair } from "../../../core/tokenizer/pair.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { fixtureRows, FIXTURES } from "../../fixtures.ts";

const DATA = `${FIXTURES}eval/data`;

const GOLDEN = `${FIXTURES}golden/eval/`;
const golden = (name: string) => fixtureRows(`golden/eval/${name}.jsonl`);

const tokenizer = await openTokenizer(`${FIXTURES}models/tiny-qwen2`);
const chat = (messages: readonly ChatMessage[]) => renderPrompt(tokenizer, messages);
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** The subject as the harness spells it in a task's name. */
const HARNESS_NAMES: Readonly<Record<string, string>> = {
  counting_and_probability: "counting_and_prob",
  number_theory: "num_theory",
  precalculus: "precalc",
};

/** Documents by the harness's name of their task and their place in it. */
async function documents(name: string, shots: number): Promise<Map<string, Document>> {
  const task = taskOf(name)!;
  const data = await readTaskData(task, DATA, shots);
  const limit = Math.min(12, data.rows.length);
  const found = new Map<string, Document>();
  const counts = new Map<string, number>();
  const all = documentsOf(task, data, { shots, limit: task.groupOf ? undefined : limit });
  for (const document of all) {
    const { group } = document;
    const full = group === "" ? name : `${name}_${HARNESS_NAMES[group] ?? group}`;
    const at = counts.get(full) ?? 0;
    counts.set(full, at + 1);
    found.set(`${full}/${at}`, document);
  }
  return found;
}

function checkPairs(requests: readonly Request[], expected: Record<string, unknown>) {
  const pairs = (requests as LikelihoodRequest[]).map(({ context, continuation }) =>
    encodePair(tokenizer, context, continuation, undefined)
  );
  const contexts = pairs.map(({ tokens, from }) => tokens.slice(0, from));
  assertEquals(pairs.map(({ tokens, from }) => tokens.slice(from)), expected.continuation_tokens);
  assertEquals(contexts.map((ids) => ids.length), expected.context_token_count);
  assertEquals(contexts.map((ids) => sha256(ids.join(","))), expected.context_token_sha256);
}

const CHOICES =
  "winogrande hellaswag openbookqa piqa arc_easy arc_challenge sciq mmlu mmlu_chat race".split(" ");

for (const name of CHOICES) {
  Deno.test(`${name}: contexts and continuations`, async () => {
    const cases = golden(`requests_${name}`);
    const found = await documents(name.replace("_chat", ""), cases[0].num_fewshot);
    for (const expected of cases) {
      const document = found.get(`${expected.task}/${expected.doc_index}`)!;
      const question = document.question as ChoiceQuestion;
      const requests = await requestsOf(document, name.endsWith("_chat") ? chat : undefined);
      const contexts = requests.map(({ context }) => context);
      const one = expected.contexts ?? expected.continuations.map(() => expected.context);
      assertEquals(contexts, one, `${expected.task} ${expected.doc_index}`);
      const endings = requests.map((request) => "continuation" in request && request.continuation);
      assertEquals(endings, expected.continuations);
      assertEquals(question.gold, expected.gold);
      checkPairs(requests, expected);
    }
  });
}

const TEXTS = "gsm8k gsm8k_chat gsm8k_cot minerva_math ifeval ifeval_chat".split(" ");

for (const name of TEXTS) {
  Deno.test(`${name}: prompts, stops and targets`, async () => {
    const cases = golden(`requests_${name}`);
    const found = await documents(name.replace("_chat", ""), cases[0].num_fewshot);
    for (const expected of cases) {
      const document = found.get(`${expected.task}/${expected.doc_index}`)!;
      const requests = await requestsOf(document, name.endsWith("_chat") ? chat : undefined);
      const [{ context, stop, maxTokens }] = requests as [TextRequest];
      assertEquals(context, expected.prompt);
      assertEquals(stop, expected.generation_kwargs.until);
      assertEquals(maxTokens, expected.generation_kwargs.max_gen_toks ?? 256);
      const ids = tokenizer.encode(context);
      assertEquals(ids.length, expected.prompt_token_count);
      assertEquals(sha256(ids.join(",")), expected.prompt_token_sha256);
      const { target } = document.question as unknown as { target: unknown };
      if (!name.startsWith("ifeval")) assertEquals(target, expected.target);
    }
  });
}

Deno.test("humaneval and mbpp ask chat models as EvalPlus does", async () => {
  const chatTemplate = await Deno.readTextFile(`${GOLDEN}qwen2.5-coder_chat_template.jinja`);
  const qwen = { directory: "qwen", chatTemplate, namedTokens: {} };
  const byTask = Map.groupBy(golden("cases_evalplus_chat"), ({ dataset }) => dataset);
  assertEquals([...byTask].map(([name, cases]) => [name, cases.length]), [
    ["humaneval", 20],
    ["mbpp", 20],
  ]);
  for (const [name, cases] of byTask) {
    const task = taskAsAsked(taskOf(name)!, true) as GenerationTask;
    const all = [...documentsOf(task, await readTaskData(task, DATA, 0))];
    const byId = new Map(all.map((one) => [task.nameOf!(one.question as OpenQuestion), one]));
    for (const { task_id, prompt, stop, max_new_tokens: maxTokens } of cases) {
      const requests = await requestsOf(byId.get(task_id)!, (asked) => renderPrompt(qwen, asked));
      assertEquals(requests, [{ kind: "generate_until", context: prompt, stop, maxTokens }]);
    }
  }
});

Deno.test("shots are drawn as CPython draws them", () => {
  const [seed, ...cases] = golden("cases_fewshot_sampler").reverse();
  assertEquals(seed.seed, 1234);
  assertEquals(cases.length, 10);
  for (const { pool_size, draws_per_doc, docs, drawn_indices } of cases) {
    const random = new PythonRandom(1234);
    const drawn = Array.from({ length: docs }, () => random.sample(pool_size, draws_per_doc));
    assertEquals(drawn, drawn_indices);
  }
});

for (const name of ["hellaswag", "race"]) {
  Deno.test(`${name}: rows as the reference reads them`, () => {
    for (const { doc, query, text, choices, gold } of golden(`cases_${name}_preprocess`)) {
      const question = taskOf(name)!.read(new Row(doc, "a row")) as ChoiceQuestion;
      assertEquals(question.text, query ?? text);
      assertEquals(question.options.map(({ ending }) => ending), choices);
      assertEquals(question.gold, gold);
    }
  });
}

Deno.test("a row evaluated alone has the prompt it has among all", async () => {
  const task = taskOf("arc_easy")!;
  const data = await readTaskData(task, DATA, 25);
  const all = [...documentsOf(task, data, { limit: 12 })];
  const alone = [...documentsOf(task, data, { ids: [7] })];
  assertEquals(alone.map(({ id }) => id), [7]);
  assertEquals(await requestsOf(alone[0]!), await requestsOf(all[7]!));
});

Deno.test("RACE may leave the evaluated article out of its own shots", async () => {
  const task = taskOf("race")!;
  const data = await readTaskData(task, DATA, 4);
  const own = (excludeSelf: boolean) =>
    [...documentsOf(task, data, { excludeSelf })]
      .filter(({ shots, question }) => shots.some(({ text }) => text === question.text)).length;
  assert(own(false) > 0);
  assertEquals(own(true), 0);
});

Deno.test("prompts with shots of another split are the same with and without --exclude-self", async () => {
  const task = taskOf("gsm8k")!;
  const data = await readTaskData(task, DATA, 5);
  const [plain, other] = [false, true].map((excludeSelf) =>
    [...documentsOf(task, data, { excludeSelf })].map(({ shots }) => shots)
  );
  assertEquals(other, plain);
});

Deno.test("official layouts give the rows that the hub's give", () => {
  const arc = taskOf("arc_easy")!;
  const choices = [["A", "one"], ["B", "two"]].map(([label, text]) => ({ label, text }));
  const nested = { id: "1", question: { stem: "Which?", choices }, answerKey: "B" };
  const lettered = { text: ["one", "two"], label: ["A", "B"] };
  const flat = { id: "1", question: "Which?", choices: lettered, answerKey: "B" };
  assertEquals(arc.read(new Row(nested, "")), arc.read(new Row(flat, "")));
  const openbookqa = taskOf("openbookqa")!;
  const { question, ...rest } = flat;
  const stem = new Row({ ...rest, question_stem: question }, "");
  assertEquals(openbookqa.read(new Row(nested, "")), openbookqa.read(stem));
  const race = taskOf("race")!;
  const problems = "[{'question': 'Q?', 'answer': 'B', 'options': ['a', 'b', 'c', 'd']}]";
  const lists = { questions: ["Q?"], options: [["a", "b", "c", "d"]], answers: ["B"] };
  const list = [{ question: "Q?", answer: "B", options: ["a", "b", "c", "d"] }];
  for (const other of [lists, { problems: list }]) {
    const text = new Row({ article: "A", problems }, "");
    assertEquals(race.read(new Row({ article: "A", ...other }, "")), race.read(text));
  }
  const mmlu = taskOf("mmlu")!;
  const cells = ['Q, "x"', "1", "2", "3", "4", "C"];
  const [row] = mmlu.arrange!([new Row({ cells, file: "high_school_physics_test" }, "")]);
  const { question: text, subject, choices: listed, answer } = row!.fields;
  assertEquals([text, subject, answer], ['Q, "x"', "high_school_physics", 2]);
  assertEquals(listed, ["1", "2", "3", "4"]);
});

Deno.test("Python literals", () => {
  const text = `[{'a': "it's", "b": 'x\\'y\\n\\u00e9\\x41' 'z', 'c': (1, -2.5, True, None,)}]`;
  assertEquals(parsePythonLiteral(text), [
    { a: "it's", b: "x'y\né" + "Az", c: [1, -2.5, true, null] },
  ]);
  for (const bad of ["", "[1, 2", "{'a' 1}", "__import__('os')", "'a", "[1] 2"]) {
    assertThrows(() => parsePythonLiteral(bad), SyntaxError);
  }
});

Deno.test("shots that are not there are refused", async () => {
  const task = taskOf("minerva_math")!;
  const data = await readTaskData(task, DATA, 4);
  const asked = () => [...documentsOf(task, data, { shots: 5 })];
  assertThrows(asked, UsageError, "has at most 4 shots, not 5");
});
