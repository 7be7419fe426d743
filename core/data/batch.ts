/**
 * One batch: what the model reads in a step.
 *
 * Rows of fixed length, each with several documents one after the other. Positions restart at 0 in
 * every document, and from them alone the model knows the borders: the first slot of a slot's document
 * is slot − position. Slots after the last document are padding: id, position and weight 0.
 */
import { idOf } from "./encode.ts";
import type { RowPlan } from "./pack.ts";

/** Place of a piece of a document in a batch. */
export interface BatchPiece {
  readonly row: number;
  /** First slot in the row. */
  readonly slot: number;
  readonly length: number;
  /** Index of the source, of the document in it, and of the piece's first token in that. */
  readonly source: number;
  readonly document: number;
  readonly start: number;
}

/** Input of one training step; all arrays are [rows, tokens]. */
export interface Batch {
  readonly rows: number;
  readonly tokens: number;
  /** Rows with documents; only the last batch of a run has fewer than `rows`. */
  readonly filledRows: number;
  readonly ids: Int32Array;
  readonly positions: Int32Array;
  /** The next token where it is trained, else 0. */
  readonly targets: Int32Array;
  /** 1 where the next token is trained, else 0. */
  readonly weights: Float32Array;
  /** Slots of weight 1. */
  readonly predicted: number;
  /** Slots that are not padding. */
  readonly used: number;
  readonly pieces: readonly BatchPiece[];
}

/** A batch of padding, to be filled row by row. */
export class BatchBuilder implements Batch {
  readonly ids: Int32Array;
  readonly positions: Int32Array;
  readonly targets: Int32Array;
  readonly weights: Float32Array;
  readonly pieces: BatchPiece[] = [];
  filledRows = 0;
  predicted = 0;
  used = 0;

  constructor(readonly rows: number, readonly tokens: number) {
    this.ids = new Int32Array(rows * tokens);
    this.positions = new Int32Array(rows * tokens);
    this.targets = new Int32Array(rows * tokens);
    this.weights = new Float32Array(rows * tokens);
  }

  /** Adds a planned row; `read` gives stored tokens from `start` to `end` or the document's end. */
  addRow(
    source: number,
    { plan, row }: { plan: RowPlan; row: number },
    read: (document: number, start: number, end: number) => Int32Array,
  ): void {
    let slot = 0;
    for (let piece = plan.rowStarts[row]!; piece < plan.rowStarts[row + 1]!; piece++) {
      const document = plan.documents[piece]!, start = plan.starts[piece]!;
      const length = plan.lengths[piece]!;
      // One token more, if there is one, is the target of the last slot.
      this.#addPiece(slot, length, read(document, start, start + length + 1));
      this.pieces.push({ row: this.filledRows, slot, length, source, document, start });
      slot += length;
    }
    this.used += slot;
    this.filledRows++;
  }

  #addPiece(slot: number, length: number, stored: Int32Array): void {
    const first = this.filledRows * this.tokens + slot;
    for (let i = 0; i < length; i++) {
      this.ids[first + i] = idOf(stored[i]!);
      this.positions[first + i] = i;
      const target = stored[i + 1] ?? -1;
      if (target < 0) continue;
      this.targets[first + i] = target;
      this.weights[first + i] = 1;
      this.predicted++;
    }
  }
}

/** The documents of a row as text, for a look at what will be trained. */
export function describeRow(
  batch: Batch,
  row: number,
  decode: (ids: Int32Array) => string,
): { start: number; length: number; text: string }[] {
  return batch.pieces.filter((piece) => piece.row === row).map(({ slot, length }) => {
    const start = row * batch.tokens + slot;
    return { start: slot, length, text: decode(batch.ids.subarray(start, start + length)) };
  });
}
