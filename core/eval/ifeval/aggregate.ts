/**
 * The four figures of IFEval and their mean.
 *
 * Verdicts of all rows come in. Of a row all instructions together count once in the prompt-level
 * figures, each by itself in the instruction-level ones, so that long lists weigh more there.
 */
import type { Verdict } from "./mod.ts";

/** Shares of prompts and instructions followed. */
export interface Means {
  readonly prompt_level_strict_acc: number;
  readonly inst_level_strict_acc: number;
  readonly prompt_level_loose_acc: number;
  readonly inst_level_loose_acc: number;
  /** The mean of the four, as the paper reports. */
  readonly average_of_four: number;
}

/** Means over rows; not a number where there are none. */
export function aggregate(verdicts: readonly Verdict[]): Means {
  const prompts = (kind: keyof Verdict) =>
    share(verdicts.map((verdict) => verdict[kind].every(Boolean)));
  const pooled = (kind: keyof Verdict) => share(verdicts.flatMap((verdict) => verdict[kind]));
  const means = {
    prompt_level_strict_acc: prompts("strict"),
    inst_level_strict_acc: pooled("strict"),
    prompt_level_loose_acc: prompts("loose"),
    inst_level_loose_acc: pooled("loose"),
  };
  const four = Object.values(means);
  return { ...means, average_of_four: four.reduce((sum, mean) => sum + mean, 0) / four.length };
}

function share(verdicts: readonly boolean[]): number {
  return verdicts.filter(Boolean).length / verdicts.length;
}
