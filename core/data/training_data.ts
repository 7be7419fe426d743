/**
 * The data of a training run: finds files, tokenizes what no run has tokenized before, and splits off
 * validation data.
 */
import { DataError, UsageError } from "../base/errors.ts";
import { statIfExists } from "../base/files.ts";
import { hubAccess } from "../hub/access.ts";
import { HubClient } from "../hub/client.ts";
import type { HubFile } from "../hub/repository.ts";
import { type BatchSource, BatchStream, splitDocuments } from "./batches.ts";
import { EncodePool } from "./encode_pool.ts";
import { findHubData, type HubData, recordedHubData } from "./hub_data.ts";
import { openHubTokens } from "./hub_tokens.ts";
import { NoRowsError, STDIN } from "./read.ts";
import type { RowOptions } from "./row_source.ts";
import type { Selection } from "./select.ts";
import { isHubData, resolveSources } from "./sources.ts";
import type { TokenStore } from "./token_store.ts";
import { openCachedTokens, openTokens, type OpenTokensOptions } from "./tokenize.ts";

/** Data that a run reads, and the rows it makes of them. */
export interface DataPlan extends Omit<RowOptions, "tokens"> {
  /** Files, folders, globs, data on the hub, or `-`, with an optional `=WEIGHT`. */
  readonly data: readonly string[];
  /** The same for validation. */
  readonly evalData: readonly string[];
  /** Share of the documents held out for validation, in place of `evalData`. */
  readonly evalSplit: number | undefined;
  /** Tokens of validation at most, up to a whole row; undefined for `SPLIT_TOKENS` of a split, or all. */
  readonly evalTokens: number | undefined;
  /** Rows and columns of data on the hub. */
  readonly selection: Selection;
  /** Tokens per row; undefined for 2,048, or the model's context where that is shorter. */
  readonly seqLen: number | undefined;
  /** Passes over the data; undefined for as many as the run takes. */
  readonly epochs: number | undefined;
  /** True if files that cannot be read are left out. */
  readonly skipBadFiles: boolean;
}

/** Tokens of a split that are validated: a few minutes for half a billion parameters on two cores. */
const SPLIT_TOKENS = 16_384;

/** Files that were left out. */
export interface SkippedFiles {
  readonly empty: string[];
  readonly bad: string[];
}

/** Bytes of files on this machine. */
interface FileWork {
  readonly done: number;
  readonly total: number;
}

/** Model that the data must suit, and options of reading. */
export interface DataContext extends Omit<OpenTokensOptions, "onProgress" | "stdin" | "pool"> {
  /** The model's context, in tokens. */
  readonly context: number;
  /** Tokens that a run takes at `rowTokens` tokens a row; Infinity if that is not known. */
  readonly tokensNeeded: (rowTokens: number) => number;
  /** Recorded by the run that is resumed. */
  readonly recorded: RecordedData | undefined;
  readonly env: (name: string) => string | undefined;
  /** Opens standard input, for `-`. */
  readonly stdin: () => ReadableStream<Uint8Array>;
  readonly reporter: DataReporter;
}

/** Receives progress and notes while data are opened. */
export interface DataReporter {
  /**
   * Tokens of a file so far; `detail` says how much of it is read, `work` counts bytes of all files that are
   * tokenized now.
   */
  tokens(file: string, tokens: number, detail?: string, work?: FileWork): void;
  /** Files that were left out, once. */
  skipped(files: SkippedFiles): void;
  /** Files of tables, such as CSV, that are read as plain text. */
  tables(files: readonly string[]): void;
  /** A host of the hub that does not answer at once. */
  wait(host: string): void;
  /** The commit that is read of data on the hub. */
  commit(repository: string, commit: string): void;
}

/** Record of the data in the config of a run; not checked yet. */
export interface RecordedData {
  readonly keys: readonly string[] | undefined;
  readonly hubData: unknown;
}

/** The data of a run. */
export interface OpenedData extends Disposable {
  /** Batches of `rows` rows each. */
  readonly batches: (rows: number) => BatchStream;
  /** Validation batches, likewise. */
  readonly evalBatches: ((rows: number) => BatchStream) | undefined;
  /** Tokens per row: `seqLen`, or the longest row where nothing is packed. */
  readonly tokens: number;
  /** Keys of all token stores, by which a resumed run finds what came from stdin. */
  readonly keys: readonly string[];
  /** Files of the hub that were read. */
  readonly hubData: readonly HubData[];
  readonly evalFingerprint: string | undefined;
  /** Of the validation data; undefined where there is none. */
  readonly evalSize: { readonly rows: number; readonly tokens: number } | undefined;
}

/** Returns whether a path, with its weight, is standard input. */
const isStdin = (spec: string) => /^-(=|$)/.test(spec);

/** Returns whether a run reads standard input. */
export function readsStdin(plan: DataPlan): boolean {
  return [...plan.data, ...plan.evalData].some(isStdin);
}

/**
 * Opens everything.
 * @throws {UsageError} for rows longer than the model's context, and data that do not go together
 */
export async function openData(plan: DataPlan, context: DataContext): Promise<OpenedData> {
  using files = new DataFiles(plan, context);
  try {
    const data = await buildStreams(plan, context, files);
    files.reportSkipped();
    return data;
  } catch (error) {
    for (const store of files.stores) store.close();
    throw error;
  }
}

/**
 * Tokenizes one of `count` parts of the local files, so that machines with a shared cache do not do the
 * same work; files that they do not share, each tokenizes afterwards.
 */
export async function tokenizePart(
  plan: DataPlan,
  context: DataContext,
  { index, count }: { readonly index: number; readonly count: number },
): Promise<void> {
  const lists = [plan.data, plan.evalData].filter((list) => list.length > 0);
  const sources = (await Promise.all(lists.map(resolveSources))).flat();
  const names = [...new Set(sources.flatMap(({ files }) => files))].filter((file) =>
    !isHubData(file)
  );
  using files = new DataFiles(plan, context);
  await files.tokenize(names.filter((_, i) => i % count === index));
}

async function buildStreams(
  plan: DataPlan,
  context: DataContext,
  files: DataFiles,
): Promise<OpenedData> {
  if (plan.data.some(isStdin) && plan.evalData.some(isStdin)) {
    throw new UsageError("`--data -` cannot be combined with `--eval-data -`", {
      hints: [
        "read one of them from a file, or validate on a part of the data with `--eval-split`",
      ],
    });
  }
  const seqLen = rowTokensOf(plan, context);
  const needed = context.tokensNeeded(seqLen) / (1 - (plan.evalSplit ?? 0));
  const sources = await files.open(plan.data, needed);
  const own = plan.evalData.length > 0 ? await files.open(plan.evalData, Infinity) : undefined;
  const [train, held] = split(plan, sources, own);

  const streamOf = (batch: number, tokens: number) =>
    new BatchStream(train, { ...plan, batch, tokens });
  const inOrder = { ...plan, shuffle: false, epochs: 1 };
  const { evalTokens = plan.evalSplit && SPLIT_TOKENS } = plan;
  const evalStreamOf = held && ((batch: number, tokens: number) => {
    const bound = evalTokens === undefined ? {} : { rows: Math.ceil(evalTokens / tokens) };
    return new BatchStream(held, { ...inOrder, ...bound, batch, tokens });
  });
  const longest = () => [streamOf(1, seqLen), evalStreamOf?.(1, seqLen)];
  const tokens = plan.pack
    ? seqLen
    : Math.max(...longest().map((stream) => stream?.longestRow ?? 0));
  const validation = evalStreamOf?.(1, tokens);
  return {
    batches: (rows) => streamOf(rows, tokens),
    evalBatches: evalStreamOf && ((rows) => evalStreamOf(rows, tokens)),
    tokens,
    keys: files.stores.map(({ key }) => key),
    hubData: files.hubData,
    evalFingerprint: validation?.fingerprint,
    evalSize: validation?.measure(),
    [Symbol.dispose]() {
      for (const store of files.stores) store.close();
    },
  };
}

function rowTokensOf({ seqLen }: DataPlan, { context: limit }: DataContext): number {
  const tokens = seqLen ?? Math.min(2048, limit);
  if (tokens <= limit) return tokens;
  throw new UsageError(`\`--seq-len ${tokens}\` exceeds the model's context of ${limit} tokens`, {
    hints: [`raise it with --context ${tokens}, for longer texts together with --rope-theta`],
  });
}

/** Training and validation sources: files of their own, or a share of the documents. */
function split(
  { evalSplit, seed }: DataPlan,
  sources: BatchSource[],
  own: BatchSource[] | undefined,
): [BatchSource[], BatchSource[] | undefined] {
  if (evalSplit === undefined) return [sources, own];
  if (sources.length > 1) {
    throw new UsageError("`--eval-split` cannot split weighted sources", {
      hints: ["pass validation data of its own with --eval-data"],
    });
  }
  const [source] = sources as [BatchSource];
  const count = source.stores.reduce((total, store) => total + store.documents, 0);
  const parts = splitDocuments(count, evalSplit, seed);
  return [[{ ...source, documents: parts.train }], [{ ...source, documents: parts.eval }]];
}

/** Opens the files of a run, all tokenized by one pool. The stores outlive it. */
class DataFiles implements Disposable {
  readonly stores: TokenStore[] = [];
  readonly hubData: HubData[] = [];
  readonly #skipped: SkippedFiles = { empty: [], bad: [] };
  readonly #pool: EncodePool;
  /** Bytes of files without a store. */
  readonly #work = { done: 0, total: 0 };
  #isOne = true;

  constructor(private readonly plan: DataPlan, private readonly context: DataContext) {
    this.#pool = new EncodePool(context, context.threads ?? 1);
  }

  /** Opens sources, of the hub's as many files as `needed` tokens take. */
  async open(specs: readonly string[], needed: number): Promise<BatchSource[]> {
    const found = await resolveSources(specs), all = found.flatMap(({ files }) => files);
    const tables = all.filter((file) => /\.[ct]sv$/i.test(file));
    if (tables.length > 0) this.context.reporter.tables(tables);
    this.#work.total += await bytesOf(all);
    this.#isOne = all.length === 1;
    const totalWeight = found.reduce((sum, { weight = 1 }) => sum + weight, 0);
    const sources: BatchSource[] = [];
    for (const { files, weight } of found) {
      const share = needed * (weight ?? 1) / totalWeight;
      const stores = await this.#openSource(files, share);
      sources.push(weight === undefined ? { stores } : { stores, weight });
    }
    return sources;
  }

  /** Tokenizes files that have no store yet. */
  async tokenize(files: readonly string[]): Promise<void> {
    this.#work.total += await bytesOf(files);
    for (const file of files) {
      const store = await this.#openUsable(file);
      if (!(store instanceof DataError)) store.close();
    }
  }

  /** Reports the files that were left out. */
  reportSkipped(): void {
    const { empty, bad } = this.#skipped;
    if (empty.length + bad.length > 0) this.context.reporter.skipped(this.#skipped);
  }

  async #openSource(files: readonly string[], needed: number): Promise<TokenStore[]> {
    const first = this.stores.length;
    let unusable: DataError | undefined;
    for (const file of files) {
      if (isHubData(file)) {
        const tokens = this.stores.slice(first).reduce((sum, { tokens }) => sum + tokens, 0);
        await this.#openHub(file, needed - tokens);
        continue;
      }
      const store = await this.#openUsable(file);
      if (store instanceof DataError) unusable ??= store;
      else this.stores.push(store);
    }
    const stores = this.stores.slice(first);
    if (stores.length === 0 && unusable !== undefined) throw unusable;
    return stores;
  }

  /** The tokens of a file, or why it is left out. */
  async #openUsable(file: string): Promise<TokenStore | DataError> {
    try {
      return await this.#openFile(file);
    } catch (error) {
      if (!(error instanceof DataError)) throw error;
      if (error instanceof NoRowsError) this.#skipped.empty.push(file);
      else if (this.plan.skipBadFiles) this.#skipped.bad.push(file);
      else throw this.#isOne ? error : withSkipHint(error);
      return error;
    }
  }

  async #openFile(file: string): Promise<TokenStore> {
    const { context, stores } = this, { reporter } = context, work = this.#work;
    // What came from standard input is known to a resumed run alone.
    const known = file === STDIN ? context.recorded?.keys?.[stores.length] : undefined;
    if (known !== undefined) return await openCachedTokens(known, context.cacheFolder);
    const { done, total } = work, size = await bytesOf([file]);
    let isNew = false;
    const store = await openTokens(file, {
      ...context,
      pool: this.#pool,
      onProgress({ tokens, bytes, totalBytes }) {
        isNew = true;
        const share = totalBytes ? `${Math.round(100 * bytes / totalBytes)}%` : "";
        reporter.tokens(file, tokens, share, { done: done + bytes, total });
      },
      stdin: file === STDIN ? context.stdin() : undefined,
    });
    if (isNew) work.done += size;
    else work.total -= size;
    if (isNew) reporter.tokens(file, store.tokens, "", work);
    return store;
  }

  /** Opens files of the hub in order until they hold `needed` tokens. */
  async #openHub(spec: string, needed: number): Promise<void> {
    const { env, signal, recorded, reporter, ...options } = this.context;
    const onWait = (host: string) => reporter.wait(host);
    const client = new HubClient(await hubAccess(env), signal, {}, onWait);
    const earlier = Array.isArray(recorded?.hubData) ? recorded.hubData[this.hubData.length] : null;
    // A resumed run reads the commit it was begun with, wherever the branch is now.
    const data = recordedHubData(earlier, spec) ?? await findHubData(client, spec);
    if (recorded === undefined) reporter.commit(data.repository, data.commit);
    const files: HubFile[] = [];
    let tokens = 0;
    const onProgress = ({ path }: HubFile, count: number) => reporter.tokens(path, count);
    const hub = { pool: this.#pool, selection: this.plan.selection, onProgress };
    for await (const { file, store } of openHubTokens(client, data, { ...options, ...hub })) {
      if (files.at(-1) !== file) files.push(file);
      this.stores.push(store);
      if ((tokens += store.tokens) >= needed) break;
    }
    this.hubData.push({ ...data, files });
  }

  [Symbol.dispose](): void {
    this.#pool[Symbol.dispose]();
  }
}

/** Bytes of the files on this machine. */
async function bytesOf(files: readonly string[]): Promise<number> {
  const local = files.filter((file) => !isHubData(file) && file !== STDIN);
  const stats = await Promise.all(local.map(statIfExists));
  return stats.reduce((sum, stat) => sum + (stat?.size ?? 0), 0);
}

function withSkipHint({ message, hints, cause }: DataError): DataError {
  const skip = "pass --skip-bad-files to leave such files out";
  return new DataError(message, { cause, hints: [...hints, skip] });
}
