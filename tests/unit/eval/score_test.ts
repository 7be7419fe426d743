/** Selection of scored samples: those that answer the prompts of the run. */
import { assertEquals, assertRejects } from "@std/assert";
import type { CodeProblem } from "../../../core/eval/grading/code/problems.ts";
import type { Document } from "../../../core/eval/harness/documents.ts";
import type { EvalFolder } from "../../../core/eval/harness/eval_folder.ts";
import type { DocumentScore } from "../../../core/eval/harness/results.ts";
import { Row } from "../../../core/eval/harness/row.ts";
import type { Sample } from "../../../core/eval/harness/samples.ts";
import { scoreSamples, type Watch } from "../../../core/eval/harness/score.ts";
import { choiceQuestion, type ScoringTools, taskAsAsked } from "../../../core/eval/harness/task.ts";
import { taskOf } from "../../../core/eval/tasks/mod.ts";
import { PROBLEM } from "./sandbox_problem.ts";

const TASK = taskOf("sciq")!;
const ROW = new Row({}, "row 1");

function watchWith(interruption: AbortSignal, warnings: string[] = []): Watch {
  return {
    interruption,
    warn: (text) => warnings.push(text),
    progress: () => ({ update() {}, [Symbol.dispose]() {} }),
  };
}

/** Scores samples of two rows whose second choice is right; what was warned of comes last. */
async function scored(samples: readonly Partial<Sample>[]): Promise<unknown[]> {
  const warnings: string[] = [];
  const question = choiceQuestion("Which?", ["a", "b"], 1);
  const documents = [0, 1].map((id) => {
    const document: Document = { task: TASK, id, group: "", row: ROW, question, shots: [] };
    return { document, requests: [], hash: `prompt ${id}` };
  });
  const scores = await scoreSamples(
    [{ task: TASK, shots: 0, promptFormat: "completion", documents, files: [], rows: 2 }],
    samples.map((sample) => ({ task: "sciq", doc_id: 0, sample: 0, ...sample })),
    {} as ScoringTools,
    watchWith(new AbortController().signal, warnings),
  );
  return [...scores.map(({ doc_id, metrics }) => [doc_id, metrics.acc]), ...warnings];
}

Deno.test("rows without an answer are said and not counted as wrong", async () => {
  const right = { loglikelihood: [-2, -1], doc_id: 1, request: "prompt 1" };
  const [score, warning, ...others] = await scored([right]);
  assertEquals([score, others], [[1, 1], []]);
  assertEquals(/no answers to 1 of 2 rows, row 0 first/.test(String(warning)), true);
});

const PASS = { base: "pass", plus: "pass" };

interface Grading {
  readonly signal?: AbortSignal;
  readonly folder?: EvalFolder;
  readonly sanitize?: boolean;
  readonly chat?: boolean;
  readonly target?: CodeProblem;
}

/** Scores one answer to a problem of HumanEval, with another grader in place of the sandbox. */
function scoreCode(grader: () => unknown, sample: Partial<Sample>, grading: Grading = {}) {
  const { signal = new AbortController().signal, folder, sanitize = false } = grading;
  const { chat = false, target = PROBLEM } = grading;
  const task = taskAsAsked(taskOf("humaneval")!, chat), promptFormat = chat ? "chat" : "completion";
  const question = { text: "Please write it", answer: "", target };
  const document: Document = { task, id: 0, group: "", row: ROW, question, shots: [] };
  const documents = [{ document, requests: [], hash: "" }];
  return scoreSamples(
    [{ task, shots: 0, promptFormat, documents, files: [], rows: 1 }],
    [{ task: "humaneval", doc_id: 0, sample: 0, ...sample }],
    { sanitize, grader: () => Promise.resolve(grader()) } as unknown as ScoringTools,
    watchWith(signal),
    folder,
  );
}

Deno.test("code that a chat model wrote is graded without the prompt, up to the end of its block", async () => {
  const programs: string[] = [];
  const grader = {
    sanitize: (text: string) => Promise.resolve(text),
    grade: (_: CodeProblem, program: string) => {
      programs.push(program);
      return Promise.resolve(PASS);
    },
  };
  const text = "import math\n\ndef f():\n\tpass\n```\nIt passes.";
  await scoreCode(() => grader, { text }, { chat: true, sanitize: true });
  assertEquals(programs, ["import math\n\ndef f():\n    pass"]);
});

Deno.test("scores are kept while the samples, their question and the way of scoring stay the same", async () => {
  const scores: DocumentScore[] = [];
  const folder = {
    readScores: () => Promise.resolve(scores),
    appendScore: (score: DocumentScore) => void scores.push(score),
  } as unknown as EvalFolder;
  let graded = 0;
  const grader = { grade: () => Promise.resolve({ ...PASS, graded: graded++ }) };
  const run = async (grading: Grading) => {
    await scoreCode(() => grader, { solution: "pass" }, { ...grading, folder });
    return graded;
  };
  assertEquals([await run({}), await run({})], [1, 1]);
  assertEquals(await run({ sanitize: true }), 2);
  const target = { ...PROBLEM, entryPoint: "g" };
  assertEquals(await run({ sanitize: true, target }), 3);
});

Deno.test("an interruption while the sandbox is being opened ends grading before any program runs", async () => {
  const controller = new AbortController();
  let graded = 0;
  const open = () => {
    controller.abort(new Error("SIGINT"));
    return { grade: () => Promise.resolve({ ...PASS, graded: graded++ }) };
  };
  const { signal } = controller;
  await assertRejects(() => scoreCode(open, { solution: "pass" }, { signal }), Error, "SIGINT");
  assertEquals(graded, 0);
});
