/**
 * SciQ, 3 shots, accuracy per character. The right answer is always the last choice.
 *
 *     {"question": "Who proposed the theory of evolution by natural selection?", "distractor3":
 *      "Scopes", "distractor1": "Linnaeus", "distractor2": "shaw", "correct_answer": "darwin",
 *      "support": ""}
 */
import { lstrip } from "../python/text.ts";
import { choiceQuestion, type ChoiceTask } from "../harness/task.ts";

export const sciq: ChoiceTask = {
  kind: "choice",
  name: "sciq",
  title: "SciQ",
  version: 1,
  source: "SciQ dataset (train.json, test.json), or allenai/sciq",
  folder: "sciq",
  rows: ["test", "data/test"],
  size: { rows: 1000, pool: 11679 },
  metrics: ["acc_norm", "acc"],
  shots: { count: 3, pool: ["train", "data/train"], order: "random" },
  read(row) {
    const support = typeof row.fields.support === "string" ? row.fields.support : "";
    const names = ["distractor1", "distractor2", "distractor3", "correct_answer"];
    const text = `${lstrip(support)}\nQuestion: ${row.text("question")}\nAnswer:`;
    return choiceQuestion(text, names.map((name) => row.text(name)), 3);
  },
};
