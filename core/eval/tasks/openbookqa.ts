/**
 * OpenBookQA (main), 5 shots, accuracy per character.
 *
 *     {"id": "8-343", "question_stem": "A person wants to start saving money so that they can afford a
 *      nice vacation at the end of the year. ...", "choices": {"text": ["make more phone calls", ...],
 *      "label": ["A", ...]}, "answerKey": "B"}
 *
 * The question stands bare in the prompt; the official files nest it.
 */
import { goldOf, labelledChoices } from "../harness/row.ts";
import { choiceQuestion, type ChoiceTask } from "../harness/task.ts";

export const openbookqa: ChoiceTask = {
  kind: "choice",
  name: "openbookqa",
  title: "OpenBookQA",
  version: 1,
  source: "OpenBookQA-V1-Sep2018 (Main/train.jsonl, Main/test.jsonl), or allenai/openbookqa, main",
  folder: "openbookqa",
  rows: ["test", "main/test"],
  size: { rows: 500, pool: 4957 },
  metrics: ["acc_norm", "acc"],
  shots: { count: 5, pool: ["train", "main/train"], order: "random" },
  uniqueColumn: "id",
  read(row) {
    const isNested = row.has("question");
    const inner = isNested ? row.object("question") : row;
    const { texts, labels } = labelledChoices(inner);
    const text = inner.text(isNested ? "stem" : "question_stem");
    return choiceQuestion(text, texts, goldOf(row, "answerKey", labels));
  },
};
