/** All benchmarks, in the order in which they are listed, and names for several at once. */
import type { Task } from "../harness/task.ts";
import { arcChallenge, arcEasy } from "./arc.ts";
import { humaneval, mbpp } from "./code.ts";
import { gsm8k, gsm8kCot } from "./gsm8k.ts";
import { hellaswag } from "./hellaswag.ts";
import { ifeval } from "./ifeval.ts";
import { minervaMath } from "./minerva_math.ts";
import { mmlu } from "./mmlu.ts";
import { openbookqa } from "./openbookqa.ts";
import { perplexity } from "./perplexity.ts";
import { piqa } from "./piqa.ts";
import { race } from "./race.ts";
import { sciq } from "./sciq.ts";
import { winogrande } from "./winogrande.ts";

export { SUITES } from "./names.ts";

export const TASKS: readonly Task[] = [
  winogrande,
  hellaswag,
  openbookqa,
  piqa,
  arcEasy,
  arcChallenge,
  sciq,
  mmlu,
  race,
  gsm8k,
  gsm8kCot,
  minervaMath,
  ifeval,
  humaneval,
  mbpp,
  perplexity,
];

/** Task of a name; undefined for an unknown one. */
export function taskOf(name: string): Task | undefined {
  return TASKS.find((task) => task.name === name);
}
