/**
 * The six sizes the ParScale paper trains, with the losses it observes on Stack-V2-Python.
 *
 * All have 36 layers, 16 heads, 2 key/value heads, one table of 151,936 tokens, and are named as the
 * paper names them. The figure of `parscale cost` and the laws of `parscale fit` stand on these numbers.
 */
import type { CostShape } from "./cost.ts";
import { findPaperShape, PAPER_CONSTANTS, PAPER_SHAPES } from "../model/paper_shapes.ts";
import type { Law } from "./law.ts";

/** A model of the paper's figure. */
export interface ModelSize {
  readonly name: string;
  readonly shape: CostShape;
  /** Observed loss by streams. */
  readonly losses: ReadonlyMap<number, number>;
}

/** A shape with the constants of the paper's family, for sizes given by hand. */
export function familyShape(sizes: Partial<CostShape> & FamilySizes): CostShape {
  return {
    numLayers: PAPER_CONSTANTS.numHiddenLayers,
    numHeads: PAPER_CONSTANTS.numAttentionHeads,
    numKvHeads: PAPER_CONSTANTS.numKeyValueHeads,
    headDim: sizes.hiddenSize / (sizes.numHeads ?? PAPER_CONSTANTS.numAttentionHeads),
    vocabSize: PAPER_CONSTANTS.vocabSize,
    tied: true,
    attentionBias: true,
    outputBias: false,
    headNorms: false,
    ...sizes,
  };
}

/** What tells members of the family apart. */
export type FamilySizes = Pick<CostShape, "hiddenSize" | "intermediateSize">;

/** Streams of the columns below. */
const STREAMS = [1, 2, 4, 8];

/** Observed losses; one row per shape. */
const LOSSES: readonly (readonly number[])[] = [
  [1.1722, 1.1507, 1.1354, 1.1231],
  [1.1496, 1.1262, 1.1124, 1.0997],
  [1.1131, 1.0940, 1.0808, 1.0688],
  [1.0817, 1.0623, 1.0490, 1.0383],
  [1.0451, 1.0244, 1.0126, 1.0016],
  [1.0213, 1.0025, 0.9906, 0.9794],
];

/** From the smallest to the largest. */
export const PAPER_FAMILY: readonly ModelSize[] = PAPER_SHAPES.map(
  ({ size, hiddenSize, intermediateSize }, row) => ({
    name: size,
    shape: familyShape({ hiddenSize, intermediateSize }),
    losses: new Map(STREAMS.map((P, column) => [P, LOSSES[row]![column]!])),
  }),
);

/** The size the paper's headline is about. */
export const HEADLINE_SIZE = "1.6B";

/** The law the paper prints for these losses. */
export const STACK_LAW: Law = {
  kind: "log",
  E: 0.691237,
  A: 1.130616e7,
  alpha: 0.189371,
  stream: 0.393463,
};

/** The member called `1.6B` or `paper-1.6b`, in any case. */
export function findSize(name: string): ModelSize | undefined {
  const size = findPaperShape(name)?.size;
  return PAPER_FAMILY.find((member) => member.name === size);
}

/** The member of exactly this shape. */
export function memberOf(shape: CostShape): ModelSize | undefined {
  const keys = Object.keys(shape) as (keyof CostShape)[];
  return PAPER_FAMILY.find((member) => keys.every((key) => member.shape[key] === shape[key]));
}

/** Widths above the base's that `widened` makes. */
const WIDTHS = Array.from({ length: 14 }, (_, i) => 1 + i / 10);

/** Models like this one, up to 2.3 times as wide: over five times its parameters. */
export function widened(base: CostShape): ModelSize[] {
  const even = (size: number) => 2 * Math.round(size / 2);
  return WIDTHS.map((factor) => {
    const headDim = even(base.headDim * factor);
    const shape: CostShape = {
      ...base,
      headDim,
      hiddenSize: base.headDim * base.numHeads === base.hiddenSize
        ? headDim * base.numHeads
        : even(base.hiddenSize * factor),
      intermediateSize: even(base.intermediateSize * factor),
    };
    return { name: `${factor.toFixed(1)}x width`, shape, losses: new Map() };
  });
}
