/**
 * The rows of one source, epoch after epoch.
 *
 * Every epoch shuffles the documents, packs them and shuffles the rows again, so that the pieces of one
 * long document are not trained in a row. Order and rows are a function of seed and epoch alone, which
 * is what makes a cursor of two numbers enough.
 */
import { DataError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { DocumentKind } from "./document.ts";
import { type PlanOptions, planRows, type RowPlan } from "./pack.ts";
import type { TokenSource } from "./token_store.ts";

/** Documents to train on, and how much of the rows they make up. */
export interface BatchSource {
  readonly stores: readonly TokenSource[];
  /** Documents to take, counted over all stores; all if left out. */
  readonly documents?: Uint32Array;
  /** Share among several sources, in any unit (default 1). */
  readonly weight?: number;
}

/** Options that decide the rows of a source. */
export interface RowOptions extends Pick<PlanOptions, "tokens" | "pack" | "longRows"> {
  readonly seed: number;
  /** True if every epoch has an order of its own. */
  readonly shuffle: boolean;
}

/** With more stores than this, none keeps its files open: the system limits how many may be. */
const OPEN_STORES = 128;

/** One source and its place in it. */
export class RowSource {
  epoch = 0;
  /** Rows taken in this epoch. */
  row = 0;
  readonly #stores: readonly TokenSource[];
  /** [stores + 1] First document of each store. */
  readonly #firsts: readonly number[];
  readonly #lengths: Uint32Array;
  /** [documents] Trained tokens of each. */
  readonly #targets: Uint32Array;
  readonly #documents: Uint32Array;
  #planned: { epoch: number; plan: RowPlan; order: Uint32Array };

  /** `name` tells the shuffles of several sources apart. */
  constructor(
    { stores, documents }: BatchSource,
    private readonly name: string,
    private readonly options: RowOptions,
  ) {
    this.#stores = stores;
    let count = 0;
    this.#firsts = [0, ...stores.map((store) => count += store.documents)];
    this.#lengths = new Uint32Array(count);
    this.#targets = new Uint32Array(count);
    stores.forEach((store, i) => {
      this.#lengths.set(store.lengths, this.#firsts[i]);
      this.#targets.set(store.targets, this.#firsts[i]);
    });
    const chosen = documents ?? Uint32Array.from({ length: count }, (_, document) => document);
    this.#documents = chosen.filter((document) => this.#targets[document]! > 0);
    this.#planned = this.#plan(0);
    if (this.#planned.plan.rows > 0) return;
    throw new DataError(`none of ${chosen.length} documents has a trained token that fits`, {
      hints: ["a document needs two tokens, of which one is trained after the first"],
    });
  }

  /** Rows of an epoch; packing makes them differ a little from one to the next. */
  rowsIn(epoch: number): number {
    const { shuffle, pack } = this.options;
    const same = !(shuffle && pack) || epoch === this.#planned.epoch;
    return same ? this.#planned.plan.rows : this.#plan(epoch).plan.rows;
  }

  /** Documents that `longRows` left out or cut short. */
  get shortened(): number {
    return this.#planned.plan.shortened;
  }

  /** Slots of the longest piece. */
  get longestPiece(): number {
    return this.#planned.plan.lengths.reduce((longest, length) => Math.max(longest, length), 0);
  }

  /** The next row: its plan and its number there. Continues to the next epoch by itself. */
  next(): { plan: RowPlan; row: number } {
    if (this.#planned.epoch !== this.epoch) this.#planned = this.#plan(this.epoch);
    const { plan, order } = this.#planned;
    const row = order[this.row++]!;
    if (this.row === plan.rows) {
      this.epoch++;
      this.row = 0;
    }
    return { plan, row };
  }

  /** Trained tokens of a row, at most: of a document that was cut, each piece may have all. */
  mostTrained({ plan, row }: { plan: RowPlan; row: number }): number {
    let trained = 0;
    for (let piece = plan.rowStarts[row]!; piece < plan.rowStarts[row + 1]!; piece++) {
      trained += Math.min(plan.lengths[piece]!, this.#targets[plan.documents[piece]!]!);
    }
    return trained;
  }

  /** Goes to a place in an epoch. */
  seek(epoch: number, row: number): void {
    if (this.#planned.epoch !== epoch) this.#planned = this.#plan(epoch);
    if (row >= this.#planned.plan.rows) {
      throw new DataError(
        `cannot continue at row ${row} of epoch ${epoch}: it has ${this.#planned.plan.rows} rows`,
      );
    }
    this.epoch = epoch;
    this.row = row;
  }

  /** Tokens of a document from `start` to `end` or its own end. */
  read(document: number, start: number, end: number): Int32Array {
    const { store, index } = this.#find(document);
    const tokens = store.read(index, start, Math.min(end, this.#lengths[document]!));
    if (this.#stores.length > OPEN_STORES) store.close?.();
    return tokens;
  }

  #plan(epoch: number): { epoch: number; plan: RowPlan; order: Uint32Array } {
    const { seed, shuffle, pack } = this.options;
    const random = shuffle ? new RandomStream(seed, `shuffle.${this.name}.${epoch}`) : undefined;
    const documents = this.#documents.slice();
    if (random) shuffleInPlace(documents, random);
    const plan = planRows(this.#lengths, documents, {
      ...this.options,
      splittable: (document) => isSplittable(this.#find(document).store.kind, pack),
      isTrained: (document, start, end) => this.#isTrained(document, start, end),
      nameOf: (document) => this.#nameOf(document),
    });
    const order = Uint32Array.from({ length: plan.rows }, (_, row) => row);
    if (random) shuffleInPlace(order, random);
    return { epoch, plan, order };
  }

  #isTrained(document: number, start: number, end: number): boolean {
    // Of a text all is trained, and reading millions of pieces would take long.
    if (this.#find(document).store.kind === "text") return true;
    return this.read(document, start + 1, end + 1).some((token) => token >= 0);
  }

  #find(document: number): { store: TokenSource; index: number } {
    let low = 0, high = this.#stores.length; // the store is from `low` to before `high`
    while (high - low > 1) {
      const middle = (low + high) >>> 1;
      if (this.#firsts[middle]! <= document) low = middle;
      else high = middle;
    }
    return { store: this.#stores[low]!, index: document - this.#firsts[low]! };
  }

  #nameOf(document: number): string {
    const { store, index } = this.#find(document);
    return `row ${index + 1}${store.file === undefined ? "" : ` of "${store.file}"`}`;
  }
}

/** Text has no natural end at a row's end anyway; a prompt without its answer is worth nothing. */
function isSplittable(kind: DocumentKind, pack: boolean): boolean {
  return kind === "text" || kind === "tokens" && pack;
}

/** Fisher and Yates. */
export function shuffleInPlace(values: Uint32Array, random: RandomStream): void {
  for (let i = values.length - 1; i > 0; i--) {
    const j = random.integer(i + 1), value = values[i]!;
    values[i] = values[j]!;
    values[j] = value;
  }
}
