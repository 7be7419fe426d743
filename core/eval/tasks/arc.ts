/**
 * ARC-Easy and ARC-Challenge, 25 shots, accuracy per character.
 *
 *     {"id": "Mercury_7175875", "question": "An astronomer observes that a planet rotates faster after
 *      a meteorite impact. ...", "choices": {"text": ["Planetary density will decrease.", ...],
 *      "label": ["A", ...]}, "answerKey": "C"}
 *
 * Questions have three to five choices, with letters or digits as labels; the official files nest them.
 */
import { goldOf, labelledChoices, type Row } from "../harness/row.ts";
import { type ChoiceQuestion, choiceQuestion, type ChoiceTask } from "../harness/task.ts";

function arc(set: "Easy" | "Challenge"): ChoiceTask {
  const split = (name: string, official: string) => [
    `ARC-${set}_${name}`,
    `ARC-${set}-${official}`,
    `ARC-${set}/${name}`,
    `ARC-${set}/ARC-${set}-${official}`,
  ];
  return {
    kind: "choice",
    name: `arc_${set.toLowerCase()}`,
    title: `ARC-${set}`,
    version: 1,
    source: `ARC-V1-Feb2018 (ARC-${set}-Train.jsonl, ARC-${set}-Test.jsonl), or allenai/ai2_arc`,
    folder: "arc",
    rows: split("test", "Test"),
    size: set === "Easy" ? { rows: 2376, pool: 2251 } : { rows: 1172, pool: 1119 },
    metrics: ["acc_norm", "acc"],
    shots: { count: 25, pool: split("train", "Train"), order: "random" },
    uniqueColumn: "id",
    read,
  };
}

function read(row: Row): ChoiceQuestion {
  const isNested = typeof row.fields.question === "object";
  const inner = isNested ? row.object("question") : row;
  const { texts, labels } = labelledChoices(inner);
  const text = `Question: ${inner.text(isNested ? "stem" : "question")}\nAnswer:`;
  return choiceQuestion(text, texts, goldOf(row, "answerKey", labels));
}

export const arcEasy = arc("Easy");
export const arcChallenge = arc("Challenge");
