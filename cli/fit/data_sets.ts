/**
 * The two corpora of the paper: the laws it prints for them, and the losses they were fitted to.
 *
 * The printed laws lie near, not at, the optimum: the paper's optimiser stops early in a flat valley.
 * Losses are built in for Stack-V2-Python only.
 */
import { countShape } from "../../core/analysis/cost.ts";
import { PAPER_FAMILY, STACK_LAW } from "../../core/analysis/cost_family.ts";
import type { Law, Observation } from "../../core/analysis/law.ts";

/** One corpus. */
export interface DataSet {
  /** Empty where the losses are not at hand. */
  readonly observations: readonly Observation[];
  readonly laws: { readonly log: Law; readonly theoretical: Law };
}

/** Prefix tokens of the models in the paper. */
const PREFIX_TOKENS = 48;
const STREAMS = [1, 2, 4, 8];

/** By P, then by size, as the paper's tables go. */
const STACK_OBSERVATIONS: readonly Observation[] = STREAMS.flatMap((p) =>
  PAPER_FAMILY.map(({ shape, losses }) => ({
    n: countShape(shape, p, PREFIX_TOKENS).nonEmbedding,
    p,
    loss: losses.get(p)!,
  }))
);

/** By the names that `--data-set` takes. */
export const DATA_SETS: Readonly<Record<"stack-v2-python" | "pile", DataSet>> = {
  "stack-v2-python": {
    observations: STACK_OBSERVATIONS,
    laws: {
      log: STACK_LAW,
      theoretical: {
        kind: "theoretical",
        E: 0.660016,
        A: 1.187646e7,
        alpha: 0.175036,
        stream: 0.891914,
      },
    },
  },
  pile: {
    observations: [],
    laws: {
      log: { kind: "log", E: 1.288766, A: 1.97352e8, alpha: 0.196333, stream: 0.334456 },
      theoretical: {
        kind: "theoretical",
        E: 1.272178,
        A: 2.15089e8,
        alpha: 0.1901,
        stream: 0.899475,
      },
    },
  },
};
