/**
 * Benchmarks of the user's own: a file of rows in one of three forms, told apart by their columns.
 *
 *     {"prompt": "Q: What is 12 * 12?\nA:", "answer": "144"}
 *     {"prompt": "The sky is", "choices": ["blue", "green"], "answer": 0}
 *     {"prompt": "Write a function double(x).", "tests": ["assert double(2) == 4"], "entry_point": "double"}
 *
 * Prompts are asked as they stand, and answers scored by the rules of the public benchmarks: GSM8K's for
 * free answers, the likeliest choice, HumanEval's pass@k for programs.
 */
import { basename } from "node:path";
import { DataError } from "../../base/errors.ts";
import { exactMatch, flexibleExtract } from "../grading/math/gsm8k.ts";
import { readTaskData } from "../harness/data_folder.ts";
import { Row } from "../harness/row.ts";
import {
  choiceQuestion,
  type ChoiceTask,
  eachResponse,
  type GenerationTask,
} from "../harness/task.ts";
import type { CodeProblem } from "../grading/code/problems.ts";
import { codeStops, codeTask } from "./code.ts";

/** Names of files that hold tasks. */
const FILE = /\.(jsonl|ndjson|json|parquet)(\.(gz|zst))?$/i;

const FORMS = 'a row is {"prompt": ..., "answer": ...}, {"prompt": ..., "choices": [...], ' +
  '"answer": ...} or {"prompt": ..., "tests": ...}; see docs/evaluation.md';

type OwnTask = ChoiceTask | GenerationTask;
type Form = "choices" | "tests" | "answer";
type About = Omit<OwnTask, "kind" | "metrics" | "read">;

/**
 * Opens the task in a file, which is named after it; undefined for a name that is not that of a file.
 * @throws {DataError} for a file that cannot be read, and the first row that cannot be used
 */
export async function openOwnTask(path: string): Promise<OwnTask | undefined> {
  if (!FILE.test(path)) return undefined;
  const name = basename(path).replace(FILE, "").replace(/\W+/g, "_");
  const place = { source: path, file: path, folder: ".", rows: [path] };
  const about: About = { name, title: name, version: 1, ...place, shots: { count: 0 } };
  const { rows } = await readTaskData(freeAnswers(about), path, 0);
  try {
    const form = formOf(rows[0]!);
    for (const row of rows) {
      const own = formOf(row);
      if (own !== form) throw row.error(`has "${own}", expected "${form}" like the rows before`);
    }
    const task = TASKS[form](about, rows), arranged = task.arrange?.([...rows]) ?? rows;
    arranged.forEach((row) => task.read(row));
    return task;
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    throw new DataError(error.message, { hints: [FORMS], cause: error });
  }
}

function formOf(row: Row): Form {
  const form = (["choices", "tests", "answer"] as const).find((column) => row.has(column));
  if (form !== undefined) return form;
  throw row.error('has none of the columns "answer", "choices" and "tests"');
}

const TASKS: Readonly<Record<Form, (about: About, rows: readonly Row[]) => OwnTask>> = {
  answer: freeAnswers,
  choices: (about) => ({
    ...about,
    kind: "choice",
    metrics: ["acc", "acc_norm"],
    read(row) {
      const choices = row.texts("choices");
      if (choices.length < 2 || choices.includes("")) {
        throw row.wrong("choices", "at least two texts, none of them empty");
      }
      return choiceQuestion(row.text("prompt"), choices, rightChoice(row, choices));
    },
  }),
  tests: (about, rows) =>
    codeTask(codeStops(rows.every(beginsFunction) ? "humaneval" : "mbpp"), {
      ...about,
      metrics: ["pass@1", "pass@10", "pass@100"],
      arrange: (rows) => rows.map(problemRow),
    }),
};

/** Exact match, and for numbers also that of the last number in the answer. */
function freeAnswers(about: About): GenerationTask {
  const direct: GenerationTask = {
    ...about,
    kind: "generation",
    metrics: ["exact_match", "flexible_extract"],
    // Without a template nothing but an empty line tells that an answer is over.
    stops: ["\n\n"],
    maxTokens: 256,
    read(row) {
      const { answer } = row.fields;
      const target = typeof answer === "number" ? String(answer) : row.text("answer");
      return { text: row.text("prompt"), answer: target, target };
    },
    openScorer: eachResponse(({ answer }, text) => {
      const matches = (found: string) => Number(exactMatch(found.trim(), answer.trim()));
      const isNumber = /^[-$\d.,\s]*\d\s*$/.test(answer);
      const last = isNumber && { flexible_extract: matches(flexibleExtract(text)) };
      return { exact_match: matches(text), ...last };
    }),
  };
  return { ...direct, inChat: { ...direct, stops: [] } };
}

/** The place of the right choice: its number from 0, its text, or its letter. */
function rightChoice(row: Row, choices: readonly string[]): number {
  const { answer } = row.fields;
  if (typeof answer === "number") return row.index("answer", choices.length);
  const text = row.text("answer"), place = choices.indexOf(text);
  const letter = /^[A-Z]$/.test(text) ? text.charCodeAt(0) - 65 : -1;
  if (place < 0 && choices[letter] === undefined) {
    throw row.wrong("answer", "the number of a choice from 0, its letter or its text");
  }
  return place < 0 ? letter : place;
}

/** Returns whether the prompt is the head of the function that is asked for, so that the next one ends it. */
function beginsFunction(row: Row): boolean {
  const name = row.has("entry_point") ? row.text("entry_point") : "";
  return name !== "" &&
    row.text("prompt").split("\n").some((line) => line.startsWith(`def ${name}(`));
}

/** A row whose tests are inputs of a function that runs them; right is what its reference returns, nothing. */
function problemRow(row: Row): Row {
  const given = row.fields.tests, needed = row.has("entry_point") ? row.text("entry_point") : "";
  const tests = typeof given === "string" ? [given] : row.texts("tests");
  if (tests.every((test) => test.trim() === "")) throw row.wrong("tests", "Python text");
  if (!/^([\p{L}_][\p{L}\p{N}_]*)?$/u.test(needed)) {
    throw row.wrong("entry_point", "the name of a function");
  }
  // As in HumanEval, a check is a function that is given the one to test.
  const check = tests.some((test) => /^def check\(/m.test(test));
  if (check && needed === "") throw row.error('has a "check" function and no "entry_point"');
  const inputs = [...tests, ...check ? [`check(${needed})`] : []];
  const runner = (does: string) => `\ndef _parscale_test(test):\n    ${does}\n`;
  const problem: CodeProblem = {
    taskId: row.place,
    benchmark: "humaneval",
    prompt: "",
    entryPoint: "_parscale_test",
    canonicalSolution: runner("pass"),
    tests: { kind: "inputs", base: inputs.map((one) => JSON.stringify([one])), plus: [], atol: 0 },
    own: { suffix: runner("exec(test, globals())"), needed },
  };
  return new Row({ prompt: row.text("prompt"), problem }, row.place);
}
