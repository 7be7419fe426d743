/**
 * PIQA, 5 shots, accuracy per character: which solution reaches the goal?
 *
 *     {"goal": "How do I ready a guinea pig cage for it's new occupants?",
 *      "sol1": "Provide the guinea pig with a cage full of a few inches of bedding ...",
 *      "sol2": "Provide the guinea pig with a cage full of a few inches of bedding ...", "label": 0}
 *
 * The official files keep the labels apart, one a line in valid-labels.lst.
 */
import { choiceQuestion, type ChoiceTask } from "../harness/task.ts";

export const piqa: ChoiceTask = {
  kind: "choice",
  name: "piqa",
  title: "PIQA",
  version: 1,
  source: "physicaliqa (train.jsonl, valid.jsonl, *-labels.lst), or baber/piqa",
  folder: "piqa",
  rows: ["valid", "plain_text/validation", "validation", "piqa_validation"],
  size: { rows: 1838, pool: 16113 },
  metrics: ["acc_norm", "acc"],
  shots: {
    count: 5,
    pool: ["train", "plain_text/train", "piqa_train"],
    order: "random",
    spare: true,
  },
  read(row) {
    const choices = [row.text("sol1"), row.text("sol2")];
    const text = `Question: ${row.text("goal")}\nAnswer:`;
    return choiceQuestion(text, choices, row.index("label", 2));
  },
};
