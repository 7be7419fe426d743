/**
 * WinoGrande (xl), 5 shots, accuracy: which of two names belongs into the gap?
 *
 *     {"sentence": "Sarah was a much better surgeon than Maria so _ always got the easier cases.",
 *      "option1": "Sarah", "option2": "Maria", "answer": "2"}
 *
 * What is compared surprises: not the two options, but how likely each makes the rest of the sentence.
 */
import { strip } from "../python/text.ts";
import type { ChoiceTask } from "../harness/task.ts";

export const winogrande: ChoiceTask = {
  kind: "choice",
  name: "winogrande",
  title: "WinoGrande",
  version: 1,
  source: "winogrande_1.1 (train_xl.jsonl, dev.jsonl), or allenai/winogrande, winogrande_xl",
  folder: "winogrande",
  rows: ["dev", "winogrande_xl/validation", "validation"],
  size: { rows: 1267, pool: 40398 },
  metrics: ["acc"],
  shots: {
    count: 5,
    pool: ["train_xl", "winogrande_xl/train", "train"],
    order: "random",
    spare: true,
  },
  read(row) {
    const sentence = row.text("sentence");
    const gap = sentence.indexOf("_");
    if (gap < 0) throw row.error("has no gap _ in its sentence");
    const ending = strip(sentence.slice(gap + 1));
    const texts = ["option1", "option2"].map((name) => sentence.slice(0, gap) + row.text(name));
    const answer = row.text("answer");
    const gold = ["1", "2"].indexOf(answer);
    if (gold < 0) throw row.wrong("answer", '"1" or "2"');
    const options = texts.map((text) => ({ text, ending }));
    return { text: texts[gold]!, answer: ending, options, gold };
  },
};
