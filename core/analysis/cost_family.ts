/**
 * The six sizes the ParScale paper trains, the losses it observes on its two corpora, and the laws it
 * prints for them.
 *
 * All have 36 layers, 16 heads, 2 key/value heads, one table of 151,936 tokens, and are named as the
 * paper names them. The figure of `parscale cost` and the laws of `parscale fit` stand on these numbers.
 */
import { type CostShape, countShape } from "./cost.ts";
import { findPaperShape, PAPER_CONSTANTS, PAPER_SHAPES } from "../model/paper_shapes.ts";
import type { Law, Observation } from "./law.ts";

/** A model of the paper's figure. */
export interface ModelSize {
  readonly name: string;
  readonly shape: CostShape;
  /** Loss observed on Stack-V2-Python by streams. */
  readonly losses: ReadonlyMap<number, number>;
}

/** A shape with the constants of the paper's family, for sizes given by hand. */
export function familyShape(sizes: Partial<CostShape> & FamilySizes): CostShape {
  const { numAttentionHeads = PAPER_CONSTANTS.numAttentionHeads } = sizes;
  return {
    family: "qwen2",
    ...PAPER_CONSTANTS,
    headDim: sizes.hiddenSize / numAttentionHeads,
    tieWordEmbeddings: true,
    attentionBias: true,
    outputBias: false,
    mlpBias: false,
    aggregator: "dynamic",
    ...sizes,
  };
}

/** Sizes that differ between members of the family. */
type FamilySizes = Pick<CostShape, "hiddenSize" | "intermediateSize">;

/** Streams of the columns below. */
const STREAMS = [1, 2, 4, 8];
/** Prefix tokens of the models in the paper. */
const PREFIX_TOKENS = 48;

/** Observed losses; one row per shape. */
type LossTable = readonly (readonly number[])[];

const STACK_LOSSES: LossTable = [
  [1.1722, 1.1507, 1.1354, 1.1231],
  [1.1496, 1.1262, 1.1124, 1.0997],
  [1.1131, 1.0940, 1.0808, 1.0688],
  [1.0817, 1.0623, 1.0490, 1.0383],
  [1.0451, 1.0244, 1.0126, 1.0016],
  [1.0213, 1.0025, 0.9906, 0.9794],
];

const PILE_LOSSES: LossTable = [
  [2.1113, 2.0772, 2.0544, 2.0364],
  [2.0671, 2.0363, 2.0128, 1.9933],
  [2.0027, 1.9730, 1.9509, 1.9318],
  [1.9539, 1.9266, 1.9040, 1.8856],
  [1.8876, 1.8610, 1.8394, 1.8218],
  [1.8451, 1.8137, 1.7938, 1.7772],
];

/** From the smallest to the largest. */
export const PAPER_FAMILY: readonly ModelSize[] = PAPER_SHAPES.map(
  ({ size, hiddenSize, intermediateSize }, row) => ({
    name: size,
    shape: familyShape({ hiddenSize, intermediateSize }),
    losses: new Map(STREAMS.map((P, column) => [P, STACK_LOSSES[row]![column]!])),
  }),
);

/** The size the paper's headline is about. */
export const HEADLINE_SIZE = "1.6B";

/** A corpus; the printed laws lie near, not at, the optimum: the paper's optimiser stops early. */
interface DataSet {
  readonly observations: readonly Observation[];
  readonly laws: { readonly log: Law; readonly theoretical: Law };
}

/** By P, then by size, as the paper's tables go. */
function observationsOf(losses: LossTable): Observation[] {
  return STREAMS.flatMap((p, column) =>
    PAPER_FAMILY.map(({ shape }, row) => ({
      n: countShape(shape, p, PREFIX_TOKENS).nonEmbedding,
      p,
      loss: losses[row]![column]!,
    }))
  );
}

/** The corpora by the names that `fit --data-set` takes. */
export const DATA_SETS: Readonly<Record<"stack-v2-python" | "pile", DataSet>> = {
  "stack-v2-python": {
    observations: observationsOf(STACK_LOSSES),
    laws: {
      log: { kind: "log", E: 0.691237, A: 1.130616e7, alpha: 0.189371, stream: 0.393463 },
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
    observations: observationsOf(PILE_LOSSES),
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

/** The member called `1.6B` or `paper-1.6b`, in any case. */
export function findSize(name: string): ModelSize | undefined {
  const size = findPaperShape(name)?.size;
  return PAPER_FAMILY.find((member) => member.name === size);
}

/** The member of exactly this shape. */
export function memberOf(shape: CostShape): ModelSize | undefined {
  return PAPER_FAMILY.find(({ shape: own }) =>
    Object.keys(own).every((key) => own[key as keyof CostShape] === shape[key as keyof CostShape])
  );
}

/** Widths above the base's that `widerSizes` makes. */
const WIDTHS = Array.from({ length: 14 }, (_, i) => 1 + i / 10);

/** Models like this one, up to 2.3 times as wide: over five times its parameters. */
export function widerSizes(base: CostShape): ModelSize[] {
  const even = (size: number) => 2 * Math.round(size / 2);
  return WIDTHS.map((factor) => {
    const headDim = even(base.headDim * factor);
    const shape: CostShape = {
      ...base,
      headDim,
      hiddenSize: base.headDim * base.numAttentionHeads === base.hiddenSize
        ? headDim * base.numAttentionHeads
        : even(base.hiddenSize * factor),
      intermediateSize: even(base.intermediateSize * factor),
    };
    return { name: `${factor.toFixed(1)}x width`, shape, losses: new Map() };
  });
}
