/**
 * The six model shapes that the paper trains from scratch (appendix C).
 *
 * They differ in the width of the residual stream and of the MLP alone. Training and the cost model
 * both read this table.
 */

/** One shape of appendix C. */
export interface PaperShape {
  /** `paper-1.6b`, as `--config-from` takes it. */
  readonly name: string;
  /** `1.6B`, as the paper's tables print it. */
  readonly size: string;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
}

/** Constants of all six shapes: a Qwen2.5 block with the vocabulary of Qwen2.5. */
export const PAPER_CONSTANTS = {
  numHiddenLayers: 36,
  numAttentionHeads: 16,
  numKeyValueHeads: 2,
  vocabSize: 151_936,
} as const;

const SIZES: readonly (readonly [string, number, number])[] = [
  ["0.5B", 896, 4864],
  ["0.7B", 1024, 5504],
  ["1.1B", 1280, 6912],
  ["1.6B", 1536, 8320],
  ["2.8B", 2048, 11008],
  ["4.4B", 2560, 13824],
];

/** From the smallest to the largest. */
export const PAPER_SHAPES: readonly PaperShape[] = SIZES.map(
  ([size, hiddenSize, intermediateSize]) => ({
    name: `paper-${size.toLowerCase()}`,
    size,
    hiddenSize,
    intermediateSize,
  }),
);

/** The shape called `paper-1.6b` or `1.6B`, in any case. */
export function findPaperShape(name: string): PaperShape | undefined {
  const lower = name.toLowerCase();
  return PAPER_SHAPES.find((shape) => lower === shape.name || lower === shape.size.toLowerCase());
}
