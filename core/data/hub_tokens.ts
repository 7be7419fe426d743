/**
 * Tokenizes files of the hub as they are read, without keeping them.
 *
 * A unit is a file of JSON lines, or some row groups of a table, of which only the columns needed are
 * fetched. Each unit becomes a token store of its own, so an interrupted run continues at the first
 * unit that is not complete, and a complete one needs no request.
 */
import type { AsyncBuffer } from "hyparquet";
import { join } from "node:path";
import { isObject, readJsonObject } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import type { HubClient } from "../hub/client.ts";
import { RemoteFile } from "../hub/remote_file.ts";
import type { HubFile } from "../hub/repository.ts";
import { decompress } from "./decompress.ts";
import { type Document, requireKind } from "./document.ts";
import { EncodePool } from "./encode_pool.ts";
import { type HubData, repositoryOf } from "./hub_data.ts";
import { hashJson } from "./hash.ts";
import { readJsonRows } from "./jsonl.ts";
import { Table, wantedColumns } from "./parquet.ts";
import { formatOf } from "./read.ts";
import { columnsOf, selectDocument, type Selection } from "./select.ts";
import { requireVocabulary, STORE_SCHEMA, type TokenStore } from "./token_store.ts";
import { TokenWriter } from "./token_writer.ts";
import {
  hashTokenizer,
  INLINE_BYTES,
  openIfWhole,
  type OpenTokensOptions,
  writeDocuments,
} from "./tokenize.ts";

/** Row groups are taken together up to this many compressed bytes. */
const UNIT_BYTES = 8 << 20;

/** How to tokenize files of the hub. */
export interface HubTokensOptions extends Omit<OpenTokensOptions, "stdin" | "onProgress"> {
  readonly selection: Selection;
  /** Row groups are taken together up to this many bytes; tests lower it. */
  readonly unitBytes?: number;
  /** Called after every batch with the tokens of its file. */
  readonly onProgress?: (file: HubFile, tokens: number) => void;
}

/** The tokens of one unit. */
export interface HubTokens {
  readonly file: HubFile;
  readonly store: TokenStore;
}

/** Row groups `from` to `to`. */
interface Groups {
  readonly from: number;
  readonly to: number;
}

/** Tokens of the files, unit by unit; what was tokenized before is opened from the cache. */
export async function* openHubTokens(
  client: HubClient,
  data: HubData,
  options: HubTokensOptions,
): AsyncGenerator<HubTokens> {
  const { tokenizerFolder } = options;
  const tokenizer = tokenizerFolder === undefined ? null : await hashTokenizer(tokenizerFolder);
  try {
    for (const file of data.files) {
      const remote = new RemoteFile(client, repositoryOf(data), data.commit, file);
      using reader = new FileTokenizer(remote, `${data.spec}: ${file.path}`, tokenizer, options);
      for await (const store of reader.stores()) yield { file, store };
    }
  } catch (error) {
    options.signal?.throwIfAborted(); // on its way here the reason may have been taken for bad data
    throw error;
  }
}

class FileTokenizer implements Disposable {
  readonly #pool: EncodePool;
  #tokens = 0;
  #kind: Document["kind"] | undefined;

  constructor(
    readonly remote: RemoteFile,
    /** In messages. */
    readonly name: string,
    readonly tokenizer: string | null,
    readonly options: HubTokensOptions,
  ) {
    const { tokenizerFolder, endToken, vocabSize, threads = 1 } = options;
    const settings = {
      file: name,
      ...(tokenizerFolder === undefined ? {} : { tokenizerFolder }),
      ...(endToken === undefined ? {} : { endToken }),
      ...(vocabSize === undefined ? {} : { vocabSize }),
    };
    this.#pool = new EncodePool(settings, threads);
  }

  [Symbol.dispose](): void {
    this.#pool[Symbol.dispose]();
  }

  stores(): AsyncGenerator<TokenStore> {
    return formatOf(this.remote.file.path).format === "parquet"
      ? this.#tableStores()
      : this.#lineStores();
  }

  async *#lineStores(): AsyncGenerator<TokenStore> {
    yield await this.#open("lines", () => this.#lines());
  }

  async *#lines(): AsyncGenerator<Document> {
    const { compression } = formatOf(this.remote.file.path);
    const raw = this.remote.chunks();
    const plain = compression ? decompress(raw, compression, this.name) : raw;
    for await (const { row, value } of readJsonRows(plain, this.name)) {
      yield* this.#select(value, row);
    }
  }

  async *#tableStores(): AsyncGenerator<TokenStore> {
    const buffer = new AheadBuffer(this.remote);
    let table: Promise<Table> | undefined;
    const open = () => table ??= Table.open(buffer, this.name);
    const units = await this.#recordedUnits() ?? await this.#recordUnits(await open());
    try {
      for (const [index, unit] of units.entries()) {
        const documents = () => this.#unit(open(), buffer, unit, units[index + 1]);
        yield await this.#open(`groups ${unit.from} ${unit.to}`, documents);
      }
    } finally {
      await buffer.settle();
    }
  }

  /** Rows of a unit, while the columns of the next one are on their way. */
  async *#unit(
    opened: Promise<Table>,
    buffer: AheadBuffer,
    unit: Groups,
    next: Groups | undefined,
  ): AsyncGenerator<Document> {
    const table = await opened;
    buffer.hold(this.#rangesOf(table, unit));
    if (next) buffer.hold(this.#rangesOf(table, next));
    yield* this.#rows(table, unit);
    buffer.release(this.#rangesOf(table, unit));
  }

  async *#rows(table: Table, { from, to }: Groups): AsyncGenerator<Document> {
    const columns = this.#columnsOf(table);
    let row = table.rowsBefore(from);
    for (let group = from; group < to; group++) {
      for await (const value of table.rows(group, columns)) yield* this.#select(value, ++row);
    }
  }

  *#select(value: unknown, row: number): Generator<Document> {
    this.options.signal?.throwIfAborted();
    const document = selectDocument(value, this.options.selection, this.name, row);
    if (document === undefined) return;
    requireKind(this.#kind ??= document.kind, document, this.name);
    yield document;
  }

  #columnsOf({ names }: Table): string[] {
    const { selection } = this.options;
    const own = selection.textColumn === undefined ? wantedColumns(names, this.name) : [];
    return [...new Set([...own, ...columnsOf(selection, names)])];
  }

  #rangesOf(table: Table, { from, to }: Groups): Range[] {
    const columns = this.#columnsOf(table);
    return Array.from({ length: to - from }, (_, i) => table.ranges(from + i, columns)).flat();
  }

  /** The store of a unit: of the cache, or made from `documents`. */
  async #open(unit: string, documents: () => AsyncGenerator<Document>): Promise<TokenStore> {
    const { cacheFolder, vocabSize = Infinity, signal, onProgress, endToken } = this.options;
    const { file } = this.remote;
    const key = this.#key(unit);
    const cached = await openIfWhole(cacheFolder, key, this.name);
    if (cached) {
      requireVocabulary(cached, vocabSize);
      this.#tokens += cached.tokens;
      return cached;
    }
    await using writer = await TokenWriter.begin(cacheFolder);
    let kind: Document["kind"] = "text";
    await writeDocuments(documents(), writer, this.#pool, {
      signal,
      onBatch: (batch) => {
        kind = batch[0]!.kind;
        if (kind !== "tokens" && file.size >= INLINE_BYTES) this.#pool.start();
      },
      onWritten: () => onProgress?.(file, this.#tokens + writer.tokens),
    });
    this.#tokens += writer.tokens;
    const origin = {
      source_sha256: hashJson([
        this.remote.repository.name,
        this.remote.commit,
        file.path,
        file.oid,
      ]),
      tokenizer_sha256: this.tokenizer,
      end_token: endToken ?? null,
    };
    return await writer.finish(key, kind, origin, this.name);
  }

  #key(unit: string): string {
    const { repository, commit, file } = this.remote;
    const { selection: { textColumn = null, where }, endToken = null } = this.options;
    const conditions = where.map(({ column, value }) => [column, value]);
    const source = [repository.name, commit, file.path, file.oid, textColumn, conditions];
    return hashJson([STORE_SCHEMA, "hub", source, this.tokenizer, endToken, unit]);
  }

  #unitsFile(): string {
    return join(this.options.cacheFolder, `${this.#key("units")}.json`);
  }

  /** How an earlier run divided the table; without it the footer would be read again. */
  async #recordedUnits(): Promise<Groups[] | undefined> {
    const record = await readJsonObject(this.#unitsFile()).catch(() => undefined);
    const units: unknown[] = Array.isArray(record?.units) ? record.units : [];
    let at = 0;
    for (const unit of units) {
      if (!isObject(unit) || unit.from !== at || !Number.isSafeInteger(unit.to)) return undefined;
      at = unit.to as number;
    }
    return units.length > 0 ? units as Groups[] : undefined;
  }

  async #recordUnits(table: Table): Promise<Groups[]> {
    const { unitBytes = UNIT_BYTES, cacheFolder } = this.options;
    const units: Groups[] = [];
    let from = 0, bytes = 0;
    for (let group = 0; group < table.groups; group++) {
      bytes += this.#rangesOf(table, { from: group, to: group + 1 })
        .reduce((sum, { start, end }) => sum + end - start, 0);
      if (bytes < unitBytes && group < table.groups - 1) continue;
      units.push({ from, to: group + 1 });
      from = group + 1;
      bytes = 0;
    }
    if (units.length === 0) throw new DataError(`"${this.name}" has no rows`);
    const path = this.#unitsFile(), partial = `${path}.${crypto.randomUUID()}`;
    await Deno.mkdir(cacheFolder, { recursive: true });
    await Deno.writeTextFile(partial, JSON.stringify({ units }));
    await Deno.rename(partial, path);
    return units;
  }
}

interface Range {
  readonly start: number;
  readonly end: number;
}

/** A remote table, whose next columns are fetched while the ones before are tokenized. */
class AheadBuffer implements AsyncBuffer {
  readonly byteLength: number;
  readonly #held = new Map<number, Range & { readonly bytes: Promise<Uint8Array<ArrayBuffer>> }>();

  constructor(readonly remote: RemoteFile) {
    this.byteLength = remote.file.size;
  }

  /** Begins to fetch ranges, which are kept until they are released. */
  hold(ranges: readonly Range[]): void {
    for (const { start, end } of ranges) {
      if (this.#held.has(start)) continue;
      const bytes = this.remote.read(start, end);
      bytes.catch(() => {}); // thrown when they are read
      this.#held.set(start, { start, end, bytes });
    }
  }

  release(ranges: readonly Range[]): void {
    for (const { start } of ranges) this.#held.delete(start);
  }

  /** Waits for requests that no reader came for. */
  async settle(): Promise<void> {
    await Promise.allSettled([...this.#held.values()].map(({ bytes }) => bytes));
    this.#held.clear();
  }

  async slice(start: number, end = this.byteLength): Promise<ArrayBuffer> {
    for (const held of this.#held.values()) {
      if (held.start > start || held.end < end) continue;
      return (await held.bytes).slice(start - held.start, end - held.start).buffer;
    }
    return (await this.remote.read(start, end)).buffer;
  }
}
