/** Operands that the parts of a block share, and its norm. */
import type { Value } from "../graph/value.ts";
import type { Prefix, Visible } from "../ops/attention.ts";
import { rmsNorm } from "../ops/rms_norm.ts";
import type { RopeTables } from "../ops/rope.ts";
import type { ModelConfig } from "./config.ts";

/** Operands of a block besides its input. */
export interface BlockContext {
  readonly config: ModelConfig;
  /** Declares a parameter with its checkpoint name; absent biases give `undefined`. */
  readonly parameter: (name: string) => Value;
  /** Attention mask of each token. */
  readonly visible: Visible;
  /** Per row count, since layer 0 may have B rows and the others P·B. */
  readonly tables: (rows: number) => RopeTables;
  /**
   * Stores new keys and values [rows, T, K, D] before they are attended to: in the KV cache when
   * generating, straight on when training. Returns [rows, K, S, D].
   */
  readonly keep: (kind: "keys" | "values", layer: number, update: Value) => Value;
  /** States of delta nets. */
  readonly states: States;
}

/** Relation of the rows of a block's input to the streams. */
export interface BlockRows {
  /** Rows of x: B while the streams are still equal, else P·B. */
  readonly rows: number;
  /** New tokens per row. */
  readonly T: number;
  readonly prefix?: Prefix;
}

/** `conv`: inputs of the convolution [R, W, K − 1]. `delta`: [R, H, Dk, Dv]. */
export type StateKind = typeof STATE_KINDS[number];

export const STATE_KINDS = ["conv", "delta"] as const;

/** States of all rows, before and after the new tokens. */
export interface States {
  /** State before the first new token; `start` makes the one that a sequence starts from. */
  readonly before: (kind: StateKind, layer: number, start: () => Value) => Value;
  readonly after: (kind: StateKind, layer: number, state: Value) => void;
  /** New tokens of each row, [R] i32; those after them change no state. Absent where all count. */
  readonly counts?: Value;
}

/** Every row is a whole sequence, as in training. */
export const NO_STATES: States = { before: (_kind, _layer, start) => start(), after: () => {} };

/** The norm of this name; the weights of Qwen3.5 are stored less one. */
export function norm(
  { config, parameter }: Pick<BlockContext, "config" | "parameter">,
  name: string,
  x: Value,
): Value {
  const stored = parameter(`${name}.weight`);
  const weight = config.family === "qwen3_5" ? stored.add(1) : stored;
  return rmsNorm({ x, weight }, { epsilon: config.rmsNormEps });
}
