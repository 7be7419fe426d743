/**
 * The two corpora of the paper: the laws it prints for them, and the losses they were fitted to.
 *
 * The printed laws lie near, not at, the optimum: the paper's optimiser stops early in a flat valley.
 */
import { countShape } from "../../../core/analysis/cost.ts";
import { PAPER_FAMILY, STACK_LAW } from "../../../core/analysis/cost_family.ts";
import type { Law, Observation } from "../../../core/analysis/law.ts";

/** One corpus. */
export interface DataSet {
  readonly observations: readonly Observation[];
  readonly laws: { readonly log: Law; readonly theoretical: Law };
}

/** Prefix tokens of the models in the paper. */
const PREFIX_TOKENS = 48;
const STREAMS = [1, 2, 4, 8];

/** By P, then by size, as the paper's tables go. */
function observationsOf(lossOf: (size: number, P: number) => number): Observation[] {
  return STREAMS.flatMap((p) =>
    PAPER_FAMILY.map(({ shape }, size) => ({
      n: countShape(shape, p, PREFIX_TOKENS).nonEmbedding,
      p,
      loss: lossOf(size, p),
    }))
  );
}

/** One row per number of streams, one column per size. */
const PILE_LOSSES: Readonly<Record<number, readonly number[]>> = {
  1: [2.1113, 2.0671, 2.0027, 1.9539, 1.8876, 1.8451],
  2: [2.0772, 2.0363, 1.973, 1.9266, 1.861, 1.8137],
  4: [2.0544, 2.0128, 1.9509, 1.904, 1.8394, 1.7938],
  8: [2.0364, 1.9933, 1.9318, 1.8856, 1.8218, 1.7772],
};

/** By the names that `--data-set` takes. */
export const DATA_SETS: Readonly<Record<"stack-v2-python" | "pile", DataSet>> = {
  "stack-v2-python": {
    observations: observationsOf((size, P) => PAPER_FAMILY[size]!.losses.get(P)!),
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
    observations: observationsOf((size, P) => PILE_LOSSES[P]![size]!),
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
