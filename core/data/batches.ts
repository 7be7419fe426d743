/**
 * The batches of a training run, in order, from any point on.
 *
 * Nothing in here is random but the shuffles, which seed and epoch decide: row i of a mixture comes
 * from the source that lags farthest behind its share, so shares are kept at all times and not only on
 * average. Batches run across the end of an epoch; only the last of a run may be short.
 */
import { hash } from "node:crypto";
import { isObject, show } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import { type Batch, BatchBuilder } from "./batch.ts";
import { hashJson } from "./hash.ts";
import { type BatchSource, type RowOptions, RowSource, shuffleInPlace } from "./row_source.ts";

export { type Batch, describeRow } from "./batch.ts";
export type { BatchSource } from "./row_source.ts";

/** Options that decide the batches. */
export interface BatchOptions extends RowOptions {
  /** Rows of a batch. */
  readonly batch: number;
  /** Number of epochs; unlimited if left out. */
  readonly epochs?: number;
  /** Rows after which it ends too. */
  readonly rows?: number;
}

/** Position in a stream of batches; plain JSON. */
export interface BatchCursor {
  /** Of the stream it came from; another stream refuses it. */
  readonly fingerprint: string;
  /** Of each source: its epoch, the rows taken in it, and the rows taken in all. */
  readonly sources: readonly { epoch: number; row: number; rows: number }[];
}

/** Changes when equal options come to mean other rows. */
const ROWS_SCHEMA = "parscale.rows/1";

/** Most rows that are looked through before a run, in about a second; the first tell whether it is worth it. */
const LOOKED_THROUGH = 2 ** 16, SAMPLE = 64;

/** Takes a row of a source. */
type Visit = (source: RowSource, row: ReturnType<RowSource["next"]>, index: number) => void;

/** Batches from weighted sources. */
export class BatchStream {
  /** Hash of all that decides the rows: the sources' content and weights, and the options. */
  readonly fingerprint: string;
  /** Rows it takes for as much data as all sources have; with packing, those of the first epoch. */
  readonly rowsPerEpoch: number;
  readonly #sources: readonly { rows: RowSource; share: number; index: number }[];
  /** Rows taken from each source. */
  readonly #taken: number[];

  /** @throws {DataError} when a document does not fit, or nothing is left to train on */
  constructor(sources: readonly BatchSource[], private readonly options: BatchOptions) {
    const weights = sources.map(({ weight = 1 }) => weight);
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    this.#sources = sources.map((source, index) => ({
      rows: new RowSource(source, String(index), options),
      share: weights[index]! / total,
      index,
    }));
    this.#taken = weights.map(() => 0);
    this.rowsPerEpoch = this.#sources.reduce((sum, { rows }) => sum + rows.rowsIn(0), 0);
    this.fingerprint = fingerprintOf(sources, options);
  }

  /** Full passes before the next row; of a mixture, in rows. */
  get epoch(): number {
    const [first, second] = this.#sources;
    return second ? Math.floor(this.#row / this.rowsPerEpoch) : first!.rows.epoch;
  }

  /** Documents left out or cut short because of `longRows`. */
  get shortened(): number {
    return this.#sources.reduce((sum, { rows }) => sum + rows.shortened, 0);
  }

  /** Slots that rows need: without packing, `tokens` may be lowered to this and nothing changes. */
  get longestRow(): number {
    if (this.options.pack) return this.options.tokens;
    return Math.max(...this.#sources.map(({ rows }) => rows.longestPiece));
  }

  /** Batches of a finite run from its start. With packing it plans every epoch to know. */
  countBatches(): number | undefined {
    const { epochs, batch } = this.options;
    if (epochs === undefined) return undefined;
    const [first, second] = this.#sources;
    let rows = second ? epochs * this.rowsPerEpoch : 0;
    if (!second) { for (let epoch = 0; epoch < epochs; epoch++) rows += first!.rows.rowsIn(epoch); }
    return Math.ceil(rows / batch);
  }

  /** Rows from here to the end of a finite run, which it goes to, and their tokens. */
  measure(): { readonly rows: number; readonly tokens: number } {
    let rows = 0, tokens = 0;
    const count: Visit = (_, { plan, row }) => {
      const pieces = plan.lengths.subarray(plan.rowStarts[row], plan.rowStarts[row + 1]);
      tokens += pieces.reduce((sum, length) => sum + length, 0);
      rows++;
    };
    while (this.#advance(count));
    return { rows, tokens };
  }

  /**
   * Advances by at most `rows` rows and returns how many tokens of each are trained; undefined where nearly
   * all are, and for a run too long to count.
   */
  trainedRows(rows: number): number[] | undefined {
    const trained: number[] = [];
    const add: Visit = (source, row) => trained.push(source.mostTrained(row));
    while (trained.length < rows && this.#advance(add)) {
      if (trained.length > LOOKED_THROUGH) return undefined;
      if (trained.length !== SAMPLE) continue;
      const mean = trained.reduce((sum, count) => sum + count) / SAMPLE;
      if (mean > 7 / 8 * this.options.tokens) return undefined;
    }
    return trained;
  }

  /** The next batch, or undefined after the last. */
  next(): Batch | undefined {
    const builder = new BatchBuilder(this.options.batch, this.options.tokens);
    const add: Visit = (rows, next, index) => builder.addRow(index, next, rows.read.bind(rows));
    return this.#advance(add) ? builder : undefined;
  }

  /** Goes past the next batch without reading its tokens; false after the last. */
  skip(): boolean {
    return this.#advance();
  }

  /** Takes the rows of a batch; false after the last. */
  #advance(visit: Visit = () => {}): boolean {
    if (this.#isOver) return false;
    for (let row = 0; row < this.options.batch && !this.#isOver; row++) {
      const { rows, index } = this.#pickSource();
      visit(rows, rows.next(), index);
      this.#taken[index]!++;
    }
    return true;
  }

  /** Position of the next batch. */
  get cursor(): BatchCursor {
    return {
      fingerprint: this.fingerprint,
      sources: this.#sources.map(({ rows: { epoch, row }, index }) => ({
        epoch,
        row,
        rows: this.#taken[index]!,
      })),
    };
  }

  /**
   * Goes to where a cursor was taken.
   * @throws {DataError} for a cursor of other data or other options
   */
  seek(cursor: BatchCursor): void {
    requireCursor(cursor, this.fingerprint, this.#sources.length);
    this.#sources.forEach(({ rows, index }) => {
      const place = cursor.sources[index]!;
      rows.seek(place.epoch, place.row);
      this.#taken[index] = place.rows;
    });
  }

  get #row(): number {
    return this.#taken.reduce((sum, rows) => sum + rows, 0);
  }

  get #isOver(): boolean {
    const { epochs = Infinity, rows = Infinity } = this.options;
    return this.epoch >= epochs || this.#row >= rows;
  }

  /** The source that lags farthest behind its share of the rows. */
  #pickSource() {
    const due = this.#row + 1;
    const lag = ({ share, index }: { share: number; index: number }) =>
      share * due - this.#taken[index]!;
    return this.#sources.reduce((best, source) => lag(source) > lag(best) ? source : best);
  }
}

/** Sets documents aside for validation: disjoint, at least one on either side, in file order. */
export function splitDocuments(
  count: number,
  fraction: number,
  seed: number,
): { train: Uint32Array; eval: Uint32Array } {
  if (count < 2) {
    throw new DataError(
      `cannot hold out documents for validation: the data has ${count}, expected at least 2`,
      { hints: ["give a validation file of its own, or more data"] },
    );
  }
  const documents = Uint32Array.from({ length: count }, (_, document) => document);
  shuffleInPlace(documents, new RandomStream(seed, "split"));
  const aside = Math.min(count - 1, Math.max(1, Math.round(count * fraction)));
  return { train: documents.slice(aside).sort(), eval: documents.slice(0, aside).sort() };
}

function fingerprintOf(sources: readonly BatchSource[], options: BatchOptions): string {
  const { tokens, seed, shuffle, pack, longRows, rows } = options;
  const parts = sources.map(({ stores, documents, weight = 1 }) => ({
    keys: stores.map(({ key }) => key),
    documents: documents ? hash("sha256", new Uint8Array(documents.slice().buffer)) : null,
    weight,
  }));
  return hashJson({ schema: ROWS_SCHEMA, parts, tokens, seed, shuffle, pack, longRows, rows });
}

/** A cursor comes out of a file, so it is checked like one. */
function requireCursor(cursor: unknown, fingerprint: string, sources: number): void {
  const found = isObject(cursor) ? cursor.fingerprint : undefined;
  if (typeof found === "string" && found !== fingerprint) {
    const [from, to] = [found, fingerprint].map((hash) => hash.slice(0, 12));
    throw new DataError(
      `the data or the way it is read changed since the checkpoint: fingerprint "${to}", expected "${from}"`,
      {
        hints: [
          "files, weights, `--seq-len`, `--seed` and the way rows are made must be those of the first run",
        ],
      },
    );
  }
  const whole = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
  const places = isObject(cursor) && Array.isArray(cursor.sources) ? cursor.sources : [];
  const good = found === fingerprint &&
    places.every((place) =>
      isObject(place) && whole(place.epoch) && whole(place.row) && whole(place.rows)
    );
  if (good && places.length === sources) return;
  throw new DataError(
    `the saved position in the data does not fit: ${show(cursor)}, expected ${sources} sources`,
    { hints: ["the file with the training state may be damaged"] },
  );
}
