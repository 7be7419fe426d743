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
  /**
   * Called while a file is tokenized; `detail` says how much of it is read, `work` counts bytes of all files
   * that are tokenized now.
   */
  readonly onTokens: (file: string, tokens: number, detail?: string, work?: FileWork) => void;
  /** Called once if files were left out. */
  readonly onSkipped: (files: SkippedFiles) => void;
  /** Called with files of tables, such as CSV, that are read as plain text. */
  readonly onTables: (files: readonly string[]) => void;
  /** Called for a host of the hub that does not answer at once. */
  readonly onWait: (host: string) => void;
  /** Called for data on the hub, with the commit that is read. */
  readonly onCommit: (repository: string, commit: string) => void;
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
  using pool = poolOf(context);
  const skipped: SkippedFiles = { empty: [], bad: [] }, work = { done: 0, total: 0 };
  const opened: Opened = { pool, stores: [], hubData: [], skipped, work };
  try {
    const data = await buildStreams(plan, context, opened);
    const { empty, bad } = opened.skipped;
    if (empty.length + bad.length > 0) context.onSkipped(opened.skipped);
    return data;
  } catch (error) {
    for (const store of opened.stores) store.close();
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
  const files = [...new Set(sources.flatMap(({ files }) => files))].filter((file) =>
    !isHubData(file)
  );
  const part = files.filter((_, i) => i % count === index);
  const skipped: SkippedFiles = { empty: [], bad: [] };
  const work = { done: 0, total: await bytesOf(part) };
  using pool = poolOf(context);
  for (const file of part) {
    const store = await openUsable(file, plan, context, { pool, skipped, work });
    if (!(store instanceof DataError)) store.close();
  }
}

function poolOf(context: DataContext): EncodePool {
  return new EncodePool(context, context.threads ?? 1);
}

/** Everything opened so far, by one pool. */
interface Opened {
  readonly pool: EncodePool;
  readonly stores: TokenStore[];
  readonly hubData: HubData[];
  readonly skipped: SkippedFiles;
  /** Bytes of files without a store. */
  readonly work: { done: number; total: number };
}

/** Bytes of the files on this machine. */
async function bytesOf(files: readonly string[]): Promise<number> {
  const local = files.filter((file) => !isHubData(file) && file !== STDIN);
  const stats = await Promise.all(local.map(statIfExists));
  return stats.reduce((sum, stat) => sum + (stat?.size ?? 0), 0);
}

async function buildStreams(
  plan: DataPlan,
  context: DataContext,
  opened: Opened,
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
  const sources = await openSources(plan.data, plan, context, opened, needed);
  const own = plan.evalData.length > 0
    ? await openSources(plan.evalData, plan, context, opened, Infinity)
    : undefined;
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
    keys: opened.stores.map(({ key }) => key),
    hubData: opened.hubData,
    evalFingerprint: validation?.fingerprint,
    evalSize: validation?.measure(),
    [Symbol.dispose]() {
      for (const store of opened.stores) store.close();
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
  return [
    [{ ...source, documents: parts.train }],
    [{ ...source, documents: parts.eval }],
  ];
}

async function openSources(
  specs: readonly string[],
  plan: DataPlan,
  context: DataContext,
  opened: Opened,
  neededTokens: number,
): Promise<BatchSource[]> {
  const result: BatchSource[] = [];
  const found = await resolveSources(specs);
  const tables = found.flatMap(({ files }) => files).filter((file) => /\.[ct]sv$/i.test(file));
  if (tables.length > 0) context.onTables(tables);
  opened.work.total += await bytesOf(found.flatMap(({ files }) => files));
  const totalWeight = found.reduce((sum, { weight = 1 }) => sum + weight, 0);
  for (const { files, weight } of found) {
    const stores: TokenStore[] = [];
    let unusable: DataError | undefined;
    const needed = neededTokens * (weight ?? 1) / totalWeight;
    for (const file of files) {
      const before = opened.stores.length;
      if (isHubData(file)) {
        const tokens = stores.reduce((sum, { tokens }) => sum + tokens, 0);
        await openHubStores(file, plan.selection, context, opened, needed - tokens);
      } else {
        const known = file === STDIN ? context.recorded?.keys?.[before] : undefined;
        const store = await openUsable(file, plan, context, opened, known).catch(
          (error) => {
            throw found.length * files.length > 1 ? withSkipHint(error) : error;
          },
        );
        if (store instanceof DataError) unusable ??= store;
        else opened.stores.push(store);
      }
      stores.push(...opened.stores.slice(before));
    }
    if (stores.length === 0 && unusable !== undefined) throw unusable;
    result.push(weight === undefined ? { stores } : { stores, weight });
  }
  return result;
}

function withSkipHint(error: unknown): unknown {
  if (!(error instanceof DataError)) return error;
  const hints = [...error.hints, "pass --skip-bad-files to leave such files out"];
  return new DataError(error.message, { cause: error.cause, hints });
}

/** The tokens of a file, or why it is left out. */
async function openUsable(
  file: string,
  { skipBadFiles }: DataPlan,
  context: DataContext,
  { pool, skipped, work }: Pick<Opened, "pool" | "skipped" | "work">,
  known?: string,
): Promise<TokenStore | DataError> {
  try {
    return await openFile(file, context, { pool, work }, known);
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    if (error instanceof NoRowsError) skipped.empty.push(file);
    else if (skipBadFiles) skipped.bad.push(file);
    else throw error;
    return error;
  }
}

/** The tokens of a file, or those of a known key. */
async function openFile(
  file: string,
  context: DataContext,
  { pool, work }: Pick<Opened, "pool" | "work">,
  known?: string,
): Promise<TokenStore> {
  let isNew = false;
  const { done, total } = work, size = await bytesOf([file]);
  const store = known !== undefined
    ? await openCachedTokens(known, context.cacheFolder)
    : await openTokens(file, {
      ...context,
      pool,
      onProgress({ tokens, bytes, totalBytes }) {
        isNew = true;
        const share = totalBytes ? `${Math.round(100 * bytes / totalBytes)}%` : "";
        context.onTokens(file, tokens, share, { done: done + bytes, total });
      },
      stdin: file === STDIN ? context.stdin() : undefined,
    });
  if (isNew) work.done += size;
  else work.total -= size;
  if (isNew) context.onTokens(file, store.tokens, "", work);
  return store;
}

/** Opens files of the hub in order until they hold `needed` tokens. */
async function openHubStores(
  spec: string,
  selection: Selection,
  context: DataContext,
  opened: Opened,
  needed: number,
): Promise<void> {
  const { env, signal, recorded, onTokens, onCommit, ...options } = context;
  const client = new HubClient(await hubAccess(env), signal, {}, context.onWait);
  const earlier = Array.isArray(recorded?.hubData) ? recorded.hubData[opened.hubData.length] : null;
  // A resumed run reads the commit it was begun with, wherever the branch is now.
  const data = recordedHubData(earlier, spec) ?? await findHubData(client, spec);
  if (recorded === undefined) onCommit(data.repository, data.commit);
  const files: HubFile[] = [];
  let tokens = 0;
  const onProgress = ({ path }: HubFile, count: number) => onTokens(path, count);
  const hub = { pool: opened.pool, selection, onProgress };
  const stores = openHubTokens(client, data, { ...options, ...hub });
  for await (const { file, store } of stores) {
    if (files.at(-1) !== file) files.push(file);
    opened.stores.push(store);
    if ((tokens += store.tokens) >= needed) break;
  }
  opened.hubData.push({ ...data, files });
}
