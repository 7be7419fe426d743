/**
 * Minerva MATH, 7 subjects, 4 fixed shots: is the final expression equal to the boxed one?
 *
 *     {"problem": "How many vertical asymptotes does the graph of $y=\\frac{2}{x^2+x-6}$ have?",
 *      "level": "Level 3", "type": "Algebra", "solution": "The denominator of the rational function
 *      factors into $x^2+x-6=(x-2)(x+3)$. ... the graph has $\\boxed{2}$ vertical asymptotes."}
 *
 * Answers longer than 256 tokens are cut, and wrong.
 */
import { isEquivalent } from "../grading/math/equivalence.ts";
import { boxedAnswer, extractAnswer, normalizeAnswer } from "../grading/math/minerva.ts";
import { eachResponse, type GenerationTask } from "../harness/task.ts";
import shots from "./minerva_math_shots.json" with { type: "json" };

const ask = (problem: string) => `Problem:\n${problem}\n\nSolution:`;

/** Of types and of the folders of the official files. */
const subjectOf = (type: string) => type.toLowerCase().replaceAll("&", "and").replaceAll(" ", "_");

export const minervaMath: GenerationTask = {
  kind: "generation",
  name: "minerva_math",
  title: "Minerva MATH",
  version: 2,
  source: "hendrycks/math (MATH/test/*/*.json), or EleutherAI/hendrycks_math, all seven",
  folder: "math",
  rows: ["test", "*/test", "test/*/*"],
  size: { rows: 5000 },
  metrics: ["exact_match"],
  shots: {
    count: 4,
    fixed: shots.map(({ problem, solution }) => ({ text: ask(problem), answer: solution })),
  },
  groupOf: (row) => subjectOf(row.text("type")),
  stops: ["Problem:"],
  maxTokens: 256,
  read(row) {
    const solution = row.text("solution");
    let target: string;
    try {
      target = boxedAnswer(solution);
    } catch (cause) {
      throw row.error(`has no answer in its solution: ${(cause as Error).message}`);
    }
    return { text: ask(row.text("problem")), answer: solution, target };
  },
  openScorer: eachResponse(({ target }, text) => {
    const found = normalizeAnswer(extractAnswer(text));
    return { exact_match: Number(isEquivalent(found, target as string)) };
  }),
};
