/**
 * HellaSwag, 10 shots, accuracy per character: which ending follows?
 *
 *     {"activity_label": "Finance and Business", "ctx_a": "How to apply for a marriage license in
 *      florida. Call your local courthouse. ...", "ctx_b": "", "endings": ["You will need ...", ...],
 *      "label": "2"}
 */
import { capitalize, strip } from "../python/text.ts";
import { choiceQuestion, type ChoiceTask } from "../harness/task.ts";

export const hellaswag: ChoiceTask = {
  kind: "choice",
  name: "hellaswag",
  title: "HellaSwag",
  version: 1,
  source: "rowanz/hellaswag (hellaswag_train.jsonl, hellaswag_val.jsonl), or Rowan/hellaswag",
  folder: "hellaswag",
  rows: ["hellaswag_val", "validation", "val", "data/validation", "hellaswag_val_sample"],
  size: { rows: 10042, pool: 39905 },
  metrics: ["acc_norm", "acc"],
  shots: {
    count: 10,
    pool: ["hellaswag_train", "train", "data/train"],
    order: "random",
    spare: true,
  },
  read(row) {
    const b = typeof row.fields.ctx_b === "string" ? row.fields.ctx_b : "";
    const text = `${row.text("activity_label")}: ${row.text("ctx_a")} ${capitalize(b)}`;
    return choiceQuestion(clean(text), row.texts("endings", 4).map(clean), row.index("label", 4));
  },
};

/** Removes the marks of WikiHow texts: `[title]` ends a sentence, other brackets go. */
function clean(text: string): string {
  return strip(text).replaceAll(" [title]", ". ").replace(/\[[^\n]*?\]/g, "").replaceAll("  ", " ");
}
