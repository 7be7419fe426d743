/**
 * RACE (high), 4 shots, accuracy: one article, several questions, of which only the last is scored.
 *
 *     {"article": "Mina moved to the harbour town when she was nine. ...",
 *      "problems": "[{'question': 'What did Mina carry?', 'answer': 'B', 'options': ['...', ...]}, ...]"}
 *
 * There is no training split: shots are drawn from the evaluated articles, and the evaluated one is not
 * left out, as in the reference, unless it is asked for. The official files have one article each, with
 * lists of questions, options and answers.
 */
import { isObject } from "../../base/files.ts";
import { parsePythonLiteral } from "../python/literal.ts";
import { Row } from "../harness/row.ts";
import { choiceQuestion, type ChoiceTask } from "../harness/task.ts";

const LETTERS = ["A", "B", "C", "D"];

/** End of a question that is a sentence with a gap. */
const GAP = "  _  .";

interface Problem {
  readonly question: string;
  readonly options: readonly string[];
  readonly gold: number;
}

export const race: ChoiceTask = {
  kind: "choice",
  name: "race",
  title: "RACE",
  version: 1,
  source: "RACE (test/high/*.txt), or EleutherAI/race, high",
  folder: "race",
  rows: ["test/high/*", "high/test", "test", "race_high_test", "race_high_sample"],
  size: { rows: 1045 },
  metrics: ["acc"],
  shots: { count: 4, pool: "evaluated rows", order: "random" },
  read(row) {
    const problems = readProblems(row);
    const last = problems.pop();
    if (!last) throw row.error("has no problems");
    const before = problems.map(({ question, options, gold }) =>
      question.endsWith(GAP)
        ? `${question.slice(0, -5)}${options[gold]}\n`
        : `Question: ${question}\nAnswer: ${options[gold]}\n`
    );
    const text = `Article: ${row.text("article")}\n\n${before.join("")}${last.question}`;
    return choiceQuestion(text, last.options, last.gold);
  },
};

function readProblems(row: Row): Problem[] {
  if (row.has("questions")) {
    const answers = row.texts("answers");
    return row.texts("questions").map((question, i) => {
      const options = (row.fields.options as unknown[])?.[i];
      return readProblem(new Row({ question, options, answer: answers[i] }, row.place));
    });
  }
  // The hub has the file twice: with a list, and with the text of a list as Python writes it.
  if (Array.isArray(row.fields.problems)) return row.objects("problems").map(readProblem);
  let parsed: unknown;
  try {
    parsed = parsePythonLiteral(row.text("problems"));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw row.error(`has no Python list in "problems": ${error.message}`);
  }
  if (!Array.isArray(parsed) || !parsed.every(isObject)) {
    throw row.error(`has no list of dicts in "problems"`);
  }
  return parsed.map((fields) => readProblem(new Row(fields, row.place)));
}

function readProblem(row: Row): Problem {
  const gold = LETTERS.indexOf(row.text("answer"));
  if (gold < 0) throw row.wrong("answer", "A, B, C or D");
  return { question: row.text("question"), options: row.texts("options", 4), gold };
}
