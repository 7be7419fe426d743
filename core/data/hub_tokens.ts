/**
 * Tokenizes files of the hub as they are read, without keeping them.
 *
 * A unit is a file of JSON lines, or some row groups of a table, of which only the columns needed are
 * fetched. Each unit becomes a token store of its own, so an interrupted run continues at the first
 * unit that is not complete, and a complete one needs no request.
 */
import { join } from "node:path";
import { isObject, readJsonObject } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import { HubClient } from "../hub/client.ts";
import { writeFile } from "../storage/write_file.ts";
import { RemoteFile } from "../hub/remote_file.ts";
import type { HubFile } from "../hub/repository.ts";
import { decompress } from "./decompress.ts";
import { type Document, requireKind } from "./document.ts";
import { EncodePool } from "./encode_pool.ts";
import { AheadBuffer, AheadChunks, joinRanges, type Range } from "./hub_ahead.ts";
import { type HubData, repositoryOf } from "./hub_data.ts";
import { hashJson } from "./hash.ts";
import { readJsonRows } from "./jsonl.ts";
import { Table, wantedColumns } from "./parquet.ts";
import { formatOf } from "./read.ts";
import { columnsOf, selectDocument, type Selection } from "./select.ts";
import { requireVocabulary, STORE_SCHEMA, type TokenStore } from "./token_store.ts";
import { TokenWriter } from "./token_writer.ts";
import { openIfWhole, type OpenTokensOptions, writeDocuments } from "./tokenize.ts";

/** Row groups are taken together up to this many compressed bytes. */
const UNIT_BYTES = 8 << 20;

/** Files whose first unit is fetched while another file is tokenized. */
const FILES_AHEAD = 2;

/** Options of tokenizing files of the hub. */
export interface HubTokensOptions extends Omit<OpenTokensOptions, "stdin" | "onProgress"> {
  readonly selection: Selection;
  /** Row groups are taken together up to this many bytes; tests lower it. */
  readonly unitBytes?: number;
  /** Called after every batch with the tokens of its file. */
  readonly onProgress?: (file: HubFile, tokens: number) => void;
}

/** Row groups `from` to `to`. */
interface Groups {
  readonly from: number;
  readonly to: number;
}

/** Name of a unit in the key of its store. */
function groupsText({ from, to }: Groups): string {
  return `groups ${from} ${to}`;
}

/** Tokens of the files, unit by unit; what was tokenized before is opened from the cache. */
export async function* openHubTokens(
  client: HubClient,
  data: HubData,
  options: HubTokensOptions,
): AsyncGenerator<{ readonly file: HubFile; readonly store: TokenStore }> {
  using own = options.pool ? undefined : new EncodePool(options, options.threads ?? 1);
  const pool = (options.pool ?? own)!;
  const tokenizer = await pool.tokenizerHash();
  const readers: FileTokenizer[] = [];
  const over = new AbortController();
  const signal = AbortSignal.any([over.signal, ...client.signal ? [client.signal] : []]);
  const ahead = new HubClient(client.access, signal, client.patience);
  try {
    for (const [index, file] of data.files.entries()) {
      for (const next of data.files.slice(index + readers.length, index + 1 + FILES_AHEAD)) {
        const remote = new RemoteFile(ahead, repositoryOf(data), data.commit, next);
        const name = `${data.spec}: ${next.path}`;
        readers.push(new FileTokenizer(remote, name, tokenizer, { ...options, pool }));
      }
      const startAll = () => readers.forEach((reader) => reader.start());
      for await (const store of readers[0]!.stores(startAll)) yield { file, store };
      await readers.shift()![Symbol.asyncDispose]();
    }
  } catch (error) {
    options.signal?.throwIfAborted(); // on its way here the reason may have been taken for bad data
    throw error;
  } finally {
    over.abort(); // enough was read: the files ahead are of no use
    for (const reader of readers) await reader[Symbol.asyncDispose]();
  }
}

class FileTokenizer implements AsyncDisposable {
  readonly #buffer: AheadBuffer;
  readonly #chunks: AheadChunks;
  #opened: Promise<Table> | undefined;
  #divided: Promise<Groups[]> | undefined;
  #started: Promise<void> | undefined;
  #tokens = 0;
  #kind: Document["kind"] | undefined;

  constructor(
    readonly remote: RemoteFile,
    /** In messages. */
    readonly name: string,
    readonly tokenizer: string | null,
    readonly options: HubTokensOptions & { readonly pool: EncodePool },
  ) {
    this.#buffer = new AheadBuffer(remote);
    this.#chunks = new AheadChunks(remote);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#started;
    await Promise.all([this.#buffer.settle(), this.#chunks.settle()]);
  }

  /** Begins to fetch what is read first. A failure shows when it is read. */
  start(): void {
    this.#started ??= this.#fetchFirst().catch(() => {});
  }

  async #fetchFirst(): Promise<void> {
    const first = this.#isTable ? (await this.#units())[0]! : undefined;
    using cached = await openIfWhole(
      this.options.cacheFolder,
      this.#key(first ? groupsText(first) : "lines"),
      this.name,
    );
    if (cached) return;
    if (first) this.#buffer.hold(this.#rangesOf(await this.#table(), first));
    else this.#chunks.start();
  }

  get #isTable(): boolean {
    return formatOf(this.remote.file.path).format === "parquet";
  }

  /** Stores of all units; `onMissing` is called before one is read from the hub. */
  async *stores(onMissing: () => void): AsyncGenerator<TokenStore> {
    await this.#started;
    const read = (rows: AsyncGenerator<Document>) => {
      onMissing();
      return rows;
    };
    if (!this.#isTable) return yield await this.#open("lines", () => read(this.#lines()));
    const units = await this.#units();
    for (const [index, unit] of units.entries()) {
      yield await this.#open(groupsText(unit), () => read(this.#unit(unit, units[index + 1])));
    }
  }

  async *#lines(): AsyncGenerator<Document> {
    const { compression } = formatOf(this.remote.file.path);
    const raw = this.#chunks.read();
    const plain = compression ? decompress(raw, compression, this.name) : raw;
    for await (const { row, value } of readJsonRows(plain, this.name)) {
      yield* this.#select(value, row);
    }
  }

  #table(): Promise<Table> {
    return this.#opened ??= Table.open(this.#buffer, this.name);
  }

  /** Returns the division of the table: as an earlier run did, or by its footer. */
  #units(): Promise<Groups[]> {
    return this.#divided ??= this.#recordedUnits()
      .then(async (recorded) => recorded ?? await this.#recordUnits(await this.#table()));
  }

  /** Rows of a unit, while the columns of the next one are on their way. */
  async *#unit(unit: Groups, next: Groups | undefined): AsyncGenerator<Document> {
    const table = await this.#table();
    this.#buffer.hold(this.#rangesOf(table, unit));
    if (next) this.#buffer.hold(this.#rangesOf(table, next));
    yield* this.#rows(table, unit);
    this.#buffer.release(this.#rangesOf(table, unit));
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
    const groups = Array.from({ length: to - from }, (_, i) => table.ranges(from + i, columns));
    return joinRanges(groups.flat());
  }

  /** The store of a unit: of the cache, or made from `documents`. */
  async #open(unit: string, documents: () => AsyncGenerator<Document>): Promise<TokenStore> {
    const { cacheFolder, vocabSize = Infinity, signal, onProgress, endToken, pool } = this.options;
    const { repository, commit, file } = this.remote;
    const key = this.#key(unit);
    const cached = await openIfWhole(cacheFolder, key, this.name);
    if (cached) {
      requireVocabulary(cached, vocabSize);
      this.#tokens += cached.tokens;
      return cached;
    }
    await using writer = await TokenWriter.begin(cacheFolder);
    const kind = await writeDocuments(documents(), writer, pool, {
      file: this.name,
      signal,
      size: () => file.size,
      onWritten: () => onProgress?.(file, this.#tokens + writer.tokens),
    });
    this.#tokens += writer.tokens;
    const origin = {
      source_sha256: hashJson([repository.name, commit, file.path, file.oid]),
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

  /** Returns the division of the table by an earlier run; without it the footer would be read again. */
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
    await Deno.mkdir(cacheFolder, { recursive: true });
    writeFile(this.#unitsFile(), JSON.stringify({ units }));
    return units;
  }
}
