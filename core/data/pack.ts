/**
 * Plans which documents share a row of a batch.
 *
 * A row is a list of pieces, in typed arrays, since there may be millions. A piece is some slots of one
 * document; the target of a slot is the document's next token, also for the last slot of a piece that
 * was cut off, so that cutting loses nothing. Documents that share a row do not see each other, so who
 * shares one changes no loss.
 */
import { DataError } from "../base/errors.ts";

/** Treatment of a document that neither fits into a row nor may be cut. */
export type LongRows = "error" | "drop" | "truncate";

/** Options of planning. */
export interface PlanOptions {
  /** Slots of a row. */
  readonly tokens: number;
  /** Several documents in a row, or one. */
  readonly pack: boolean;
  /** Returns whether a document may be cut into several pieces. */
  readonly splittable: (document: number) => boolean;
  readonly longRows: LongRows;
  /** Returns whether slots `start` to `end` of a document that was cut have a trained target. */
  readonly isTrained: (document: number, start: number, end: number) => boolean;
  /** Names a document in messages. */
  readonly nameOf: (document: number) => string;
}

/** Rows of pieces: row r has the pieces from `rowStarts[r]` to before `rowStarts[r + 1]`. */
export interface RowPlan {
  readonly rows: number;
  /** [rows + 1] */
  readonly rowStarts: Uint32Array;
  /** [pieces] The document of each piece, its first slot there, and its slots. */
  readonly documents: Uint32Array;
  readonly starts: Uint32Array;
  readonly lengths: Uint32Array;
  /** Documents left out or cut short because of `longRows`. */
  readonly shortened: number;
}

/** Rows that still take pieces: more would fill better and make neighbours of distant documents. */
const OPEN_ROWS = 64;

/** Plans the rows of the documents in `order`. */
export function planRows(lengths: Uint32Array, order: Uint32Array, options: PlanOptions): RowPlan {
  const pieces = cutPieces(lengths, order, options);
  const count = pieces.lengths.length;
  const { rowOf, rows } = options.pack
    ? fillRows(pieces.lengths, options.tokens)
    : { rowOf: Uint32Array.from({ length: count }, (_, piece) => piece), rows: count };

  // Counting sort: pieces by row, in a row by the order they came in.
  const rowStarts = new Uint32Array(rows + 1);
  for (const row of rowOf) rowStarts[row + 1]!++;
  for (let row = 0; row < rows; row++) rowStarts[row + 1]! += rowStarts[row]!;
  const next = rowStarts.slice();
  const sorted = new Uint32Array(count);
  for (let piece = 0; piece < count; piece++) sorted[next[rowOf[piece]!]!++] = piece;
  return {
    rows,
    rowStarts,
    documents: sorted.map((piece) => pieces.documents[piece]!),
    starts: sorted.map((piece) => pieces.starts[piece]!),
    lengths: sorted.map((piece) => pieces.lengths[piece]!),
    shortened: pieces.shortened,
  };
}

type Pieces = Pick<RowPlan, "documents" | "starts" | "lengths" | "shortened">;

function cutPieces(lengths: Uint32Array, order: Uint32Array, options: PlanOptions): Pieces {
  const { tokens, splittable, longRows, isTrained } = options;
  let bound = 0;
  for (const document of order) bound += Math.ceil(lengths[document]! / tokens);
  const documents = new Uint32Array(bound), starts = new Uint32Array(bound);
  const pieceLengths = new Uint32Array(bound);
  let count = 0, shortened = 0;
  const add = (document: number, start: number, length: number) => {
    documents[count] = document;
    starts[count] = start;
    pieceLengths[count++] = length;
  };
  for (const document of order) {
    const length = lengths[document]!;
    if (length <= tokens) {
      if (length > 1) add(document, 0, length); // a single token predicts nothing
      continue;
    }
    const cut = splittable(document);
    if (!cut) {
      if (longRows === "error") throw tooLong(document, length, options);
      shortened++;
      if (longRows === "drop") continue;
    }
    // Truncated, only the first piece is left of it.
    for (let start = 0; start < (cut ? length - 1 : 1); start += tokens) {
      const slots = Math.min(tokens, length - start);
      if (isTrained(document, start, start + slots)) add(document, start, slots);
    }
  }
  return {
    documents: documents.subarray(0, count),
    starts: starts.subarray(0, count),
    lengths: pieceLengths.subarray(0, count),
    shortened,
  };
}

/** Best fit: a piece goes into the open row with the least room that is enough. */
function fillRows(lengths: Uint32Array, tokens: number): { rowOf: Uint32Array; rows: number } {
  const rowOf = new Uint32Array(lengths.length);
  const openRow = new Uint32Array(OPEN_ROWS), room = new Uint32Array(OPEN_ROWS);
  let open = 0, rows = 0;
  const close = (slot: number) => {
    open--;
    openRow[slot] = openRow[open]!;
    room[slot] = room[open]!;
  };
  for (let piece = 0; piece < lengths.length; piece++) {
    const length = lengths[piece]!;
    let best = -1, fullest = 0;
    for (let slot = 0; slot < open; slot++) {
      if (room[slot]! >= length && (best < 0 || room[slot]! < room[best]!)) best = slot;
      if (room[slot]! < room[fullest]!) fullest = slot;
    }
    if (best < 0) {
      if (open === OPEN_ROWS) close(fullest);
      best = open++;
      openRow[best] = rows++;
      room[best] = tokens;
    }
    rowOf[piece] = openRow[best]!;
    room[best]! -= length;
    if (room[best]! < 2) close(best); // no piece is shorter than that
  }
  return { rowOf, rows };
}

function tooLong(document: number, length: number, { tokens, nameOf }: PlanOptions): DataError {
  return new DataError(
    `${nameOf(document)} does not fit into a row: ${length} tokens, expected at most ${tokens}`,
    {
      hints: [
        `raise \`--seq-len\` to ${length} or more`,
        "drop such rows with `--long-rows drop`, or truncate them with `--long-rows truncate`",
      ],
    },
  );
}
