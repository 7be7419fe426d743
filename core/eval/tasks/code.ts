/**
 * HumanEval and MBPP with the tests of EvalPlus: does the program pass? Base models complete the
 * prompt; chat models are asked for a script, and continue its open code block.
 *
 *     {"task_id": "HumanEval/53", "prompt": "def add(x: int, y: int): ...", "entry_point": "add",
 *      "canonical_solution": "    return x + y", "base_input": [[0, 1], ...], "plus_input": ...}
 *
 * Base tests are those of the original benchmark; plus adds EvalPlus' own. Where a row has a greedy
 * answer, pass@1 is its; larger k are estimated from the sampled ones. MBPP is the 378 problems of
 * MBPP+ v0.2.0. Plain HumanEval.jsonl gives base results only.
 */
import type { CodeResult } from "../grading/code/grade.ts";
import { type Benchmark, type CodeProblem, parseProblems } from "../grading/code/problems.ts";
import { strip } from "../python/text.ts";
import { Row } from "../harness/row.ts";
import type {
  GenerationTask,
  Metrics,
  OpenQuestion,
  Response,
  Scorer,
  ScoringTools,
} from "../harness/task.ts";

const STOPS = [
  "<|endoftext|>",
  "<|endofmask|>",
  "</s>",
  "\nif __name__",
  "\ndef main(",
  "\nprint(",
];

const OWN_STOPS: Readonly<Record<Benchmark, readonly string[]>> = {
  humaneval: ["\ndef ", "\nclass ", "\nimport ", "\nfrom ", "\nassert "],
  mbpp: ['\n"""', "\nassert"],
};

/** Most new tokens of an answer. */
export const CODE_TOKENS = 768;

/** Returns the text that a model is to complete, without a chat template. */
export function codePrompt({ prompt }: Pick<CodeProblem, "prompt">): string {
  return `${strip(prompt)}\n`;
}

/** Texts that end a direct completion. */
export function codeStops(benchmark: Benchmark): readonly string[] {
  return [...STOPS, ...OWN_STOPS[benchmark]];
}

const INSTRUCTION = "Please provide a self-contained Python script that solves the following " +
  "problem in a markdown code block:";

const ANSWER_START = "Below is a Python script with a self-contained function that solves the " +
  "problem and passes corresponding tests:\n```python\n";

/** Characters of an answer that count at most. */
const LONGEST = 10000;

/** An answer up to the earliest stop, its tabs as four spaces. */
export function truncate(text: string, stops: readonly string[]): string {
  const ends = stops.map((stop) => text.indexOf(stop)).filter((index) => index >= 0);
  const kept = text.slice(0, Math.min(text.length, ...ends));
  // Characters, not UTF-16 units.
  const cut = kept.length > LONGEST ? [...kept].slice(0, LONGEST).join("") : kept;
  return cut.replaceAll("\t", "    ");
}

/** Values of k in pass@k. */
const KS = [1, 10, 100];

/** Names of a benchmark of programs, and where its rows lie. */
type About =
  & Pick<GenerationTask, "name" | "title" | "source" | "rows">
  & Partial<Pick<GenerationTask, "size" | "file" | "metrics" | "parse" | "arrange">>;

/** A benchmark of programs; direct completions end at `directStops`. */
export function codeTask(directStops: readonly string[], about: About): GenerationTask {
  const direct: GenerationTask = {
    kind: "generation",
    version: 1,
    folder: ".",
    metrics: KS.flatMap((k) => [`pass@${k}`, `plus_pass@${k}`]),
    ...about,
    shots: { count: 0 },
    isCode: true,
    stops: directStops,
    maxTokens: CODE_TOKENS,
    nameOf: (question) => (question.target as CodeProblem).taskId,
    read(row) {
      const problem = row.fields.problem as CodeProblem;
      const prompt = row.text("prompt");
      return { text: codePrompt({ prompt }), answer: "", target: problem };
    },
    openScorer: (tools) =>
      openScorer(tools, ({ text }, answer) => text + truncate(answer, directStops)),
  };
  const stops = [...STOPS, "\n```\n"];
  const inChat: GenerationTask = {
    ...direct,
    stops,
    answerStart: ANSWER_START,
    read(row) {
      const question = direct.read(row);
      return { ...question, text: `${INSTRUCTION}\n\`\`\`\n${question.text}\`\`\`\n` };
    },
    openScorer: (tools) => openScorer(tools, (_, answer) => truncate(answer, stops)),
  };
  return { ...direct, inChat };
}

async function openScorer(
  tools: ScoringTools,
  programOf: (question: OpenQuestion, answer: string) => string,
): Promise<Scorer> {
  const grader = await tools.grader();
  return async (question, responses) => {
    const problem = question.target as CodeProblem;
    const results = await Promise.all(responses.map(async (response) => {
      const own = response.solution === undefined ? programOf(question, response.text) : undefined;
      const program = own !== undefined && tools.sanitize
        ? await grader.sanitize(own, problem.own?.needed ?? problem.entryPoint)
        : own ?? response.solution!;
      return await grader.grade(problem, program + (problem.own?.suffix ?? ""));
    }));
    return codeMetrics(responses, results);
  };
}

/** pass@k of base tests and of all tests, for every k there are enough answers for. */
export function codeMetrics(
  responses: readonly Response[],
  results: readonly CodeResult[],
): Metrics {
  const isGreedy = responses.map(({ temperature }) => temperature === 0);
  const greedy = results.filter((_, i) => isGreedy[i]);
  const sampled = results.filter((_, i) => !isGreedy[i]);
  const metrics: Record<string, number> = {
    unavailable: results.filter(({ base }) => base === "unavailable").length,
  };
  for (const k of KS) {
    const used = k === 1 && greedy.length > 0 ? greedy : sampled;
    if (used.length < k) continue;
    for (const [prefix, part] of [["", "base"], ["plus_", "plus"]] as const) {
      if (used.some((result) => result[part] === null)) continue;
      const correct = used.filter((result) => result[part] === "pass").length;
      metrics[`${prefix}pass@${k}`] = passAtK(used.length, correct, k);
    }
  }
  return metrics;
}

/** A published benchmark, whose problems are read from the text of its file. */
function publishedTask(name: Benchmark, about: Omit<About, "name">): GenerationTask {
  const parse = (text: string, path: string) =>
    parseProblems(text, path, name)
      .map((problem) =>
        new Row({ prompt: problem.prompt, problem }, `${problem.taskId} in "${path}"`)
      );
  return codeTask(codeStops(name), { ...about, name, parse });
}

export const humaneval = publishedTask("humaneval", {
  title: "HumanEval",
  source: "evalplus/humanevalplus_release v0.1.10 (HumanEvalPlus.jsonl.gz), or openai/human-eval",
  rows: ["humaneval_plus/HumanEvalPlus", "humaneval/HumanEvalPlus", "humaneval/HumanEval"],
  size: { rows: 164 },
});

export const mbpp = publishedTask("mbpp", {
  title: "MBPP",
  source: "evalplus/mbppplus_release v0.2.0 (MbppPlus.jsonl.gz)",
  rows: ["mbpp_plus/MbppPlus", "mbpp/MbppPlus"],
  size: { rows: 378 },
});

/**
 * pass@k: the chance that of k samples at least one is correct, where `c` of `n` are (Chen et al. 2021,
 * "Evaluating large language models trained on code"): 1 − C(n−c, k) / C(n, k), as a product that
 * neither overflows nor loses digits. Defined for k up to n.
 */
export function passAtK(n: number, c: number, k: number): number {
  if (n - c < k) return 1;
  let allWrong = 1;
  for (let i = n - c + 1; i <= n; i++) allWrong *= 1 - k / i;
  return 1 - allWrong;
}
