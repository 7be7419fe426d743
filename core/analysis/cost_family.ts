/**
 * The six sizes the ParScale paper trains, with the losses it observes on Stack-V2-Python.
 *
 * All have 36 layers, 16 heads, 2 key/value heads, one table of 151,936 tokens, and are named as the
 * paper names them. Equal-loss comparison and the figure of `parscale cost` stand on these numbers.
 */
import { type CostShape, countShape } from "./cost.ts";
import type { Law } from "./law.ts";

/** A dense model that a loss or a count of parameters can be placed between. */
export interface Rung {
  readonly name: string;
  readonly shape: CostShape;
  /** N with one stream, without embeddings. */
  readonly n: number;
  /** Observed loss by streams. */
  readonly losses: ReadonlyMap<number, number>;
}

/** A shape with the constants of the paper's family, for sizes given by hand. */
export function familyShape(sizes: Partial<CostShape> & FamilySizes): CostShape {
  return {
    numLayers: 36,
    numHeads: 16,
    numKvHeads: 2,
    headDim: sizes.hiddenSize / (sizes.numHeads ?? 16),
    vocabSize: 151_936,
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

const SIZES: readonly (readonly [string, number, number, readonly number[]])[] = [
  ["0.5B", 896, 4864, [1.1722, 1.1507, 1.1354, 1.1231]],
  ["0.7B", 1024, 5504, [1.1496, 1.1262, 1.1124, 1.0997]],
  ["1.1B", 1280, 6912, [1.1131, 1.0940, 1.0808, 1.0688]],
  ["1.6B", 1536, 8320, [1.0817, 1.0623, 1.0490, 1.0383]],
  ["2.8B", 2048, 11008, [1.0451, 1.0244, 1.0126, 1.0016]],
  ["4.4B", 2560, 13824, [1.0213, 1.0025, 0.9906, 0.9794]],
];

/** From the smallest to the largest. */
export const PAPER_FAMILY: readonly Rung[] = SIZES.map(([name, hidden, mlp, losses]) =>
  rung(
    name,
    familyShape({ hiddenSize: hidden, intermediateSize: mlp }),
    new Map(STREAMS.map((P, column) => [P, losses[column]!])),
  )
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

/** The member of this name, in any case. */
export function findSize(name: string): Rung | undefined {
  return PAPER_FAMILY.find((member) => member.name.toLowerCase() === name.toLowerCase());
}

/** The member of exactly this shape. */
export function memberOf(shape: CostShape): Rung | undefined {
  const keys = Object.keys(shape) as (keyof CostShape)[];
  return PAPER_FAMILY.find((member) => keys.every((key) => member.shape[key] === shape[key]));
}

/** Widths above the base's that `widened` makes. */
const WIDTHS = Array.from({ length: 14 }, (_, i) => 1 + i / 10);

/** Models like this one, up to 2.3 times as wide: over five times its parameters. */
export function widened(base: CostShape): Rung[] {
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
    return rung(`${factor.toFixed(1)}x width`, shape, new Map());
  });
}

function rung(name: string, shape: CostShape, losses: ReadonlyMap<number, number>): Rung {
  return { name, shape, n: countShape(shape, 1, 0).nonEmbedding, losses };
}
