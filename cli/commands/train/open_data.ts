/**
 * From data flags to batches: finds files, tokenises what no run has before, and splits off
 * validation data.
 */
import {
  type BatchOptions,
  type BatchSource,
  BatchStream,
  splitDocuments,
} from "../../../core/data/batches.ts";
import type { HubData } from "../../../core/data/hub_data.ts";
import { isHubData, resolveSources } from "../../../core/data/sources.ts";
import type { TokenStore } from "../../../core/data/token_store.ts";
import { openCachedTokens, openTokens } from "../../../core/data/tokenize.ts";
import { UsageError } from "../../../core/base/errors.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { usableCores } from "../../../core/base/platform/mod.ts";
import type { Tokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { cacheFolder } from "../../../core/base/cache_folder.ts";
import type { Io } from "../../output/io.ts";
import { startProgress } from "../../output/progress.ts";
import { openHubStores, requireHubForSelection } from "./hub_stores.ts";
import type { TrainValues } from "./flags.ts";
import type { Ranks } from "./ranks.ts";

/** The data of a run. */
export interface OpenedData extends Disposable {
  readonly stream: BatchStream;
  /** Validation batches from the first. */
  readonly evalStream: (() => BatchStream) | undefined;
  /** Tokens per row: --seq-len, or the longest row where nothing is packed. */
  readonly tokens: number;
  /** Keys of all token stores, by which a resumed run finds what came from stdin. */
  readonly keys: readonly string[];
  /** Files of the hub that were read. */
  readonly hubData: readonly HubData[];
  readonly evalFingerprint: string | undefined;
}

/** What the data must suit. */
export interface DataContext {
  readonly config: ModelConfig;
  readonly tokenizer: Tokenizer | undefined;
  readonly tokenizerFolder: string | undefined;
  readonly microBatch: number;
  /** Recorded by the run that is resumed. */
  readonly recorded: RecordedData | undefined;
  readonly ranks: Ranks;
}

/** What the config of a run records of its data; not checked yet. */
export interface RecordedData {
  readonly keys: readonly string[] | undefined;
  readonly hubData: unknown;
}

/** Everything opened so far. */
interface Opened {
  readonly stores: TokenStore[];
  readonly hubData: HubData[];
}

/** Whether a path, with its weight, is standard input. */
const isStdin = (spec: string) => /^-(=|$)/.test(spec);

/** Opens everything; tokenising shows its progress. */
export async function openData(
  values: TrainValues,
  io: Io,
  context: DataContext,
): Promise<OpenedData> {
  requireHubForSelection(values);
  const stdin = [...values.data, ...values.evalData].find(isStdin);
  if (stdin !== undefined) context.ranks.refuseStdin();
  return await context.ranks.inTurn(
    () => openAlone(values, io, context),
    (machine, machines) => tokenizePart(values, io, context, machine, machines),
  );
}

/**
 * Tokenizes one of `count` parts of the local files, so that machines with a shared cache do not do the same
 * work; files that they do not share, each tokenizes afterwards.
 */
async function tokenizePart(
  values: TrainValues,
  io: Io,
  context: DataContext,
  index: number,
  count: number,
): Promise<void> {
  const sources = await resolveSources([...values.data, ...values.evalData]);
  const files = [...new Set(sources.flatMap(({ files }) => files))].filter((file) =>
    !isHubData(file)
  );
  const open = tokenOpener(values, io, context);
  for (let i = index; i < files.length; i += count) (await open(files[i]!)).close();
}

async function openAlone(
  values: TrainValues,
  io: Io,
  context: DataContext,
): Promise<OpenedData> {
  const opened: Opened = { stores: [], hubData: [] };
  try {
    return await buildStreams(values, io, context, opened);
  } catch (error) {
    for (const store of opened.stores) store.close();
    throw error;
  }
}

async function buildStreams(
  values: TrainValues,
  io: Io,
  context: DataContext,
  opened: Opened,
): Promise<OpenedData> {
  if (values.data.some(isStdin) && values.evalData.some(isStdin)) {
    throw new UsageError("`--data -` cannot be combined with `--eval-data -`");
  }
  const limit = context.config.maxPositionEmbeddings;
  const seqLen = values.seqLen ?? Math.min(2048, limit);
  if (seqLen > limit) {
    throw new UsageError(
      `\`--seq-len ${seqLen}\` exceeds the model's context of ${limit} tokens`,
      { hints: [`raise it with --context ${seqLen}, for longer texts together with --rope-theta`] },
    );
  }
  const sources = await openSources(
    values.data,
    values,
    io,
    context,
    opened,
    tokensNeeded(values, seqLen),
  );
  const own = values.evalData.length > 0
    ? await openSources(values.evalData, values, io, context, opened)
    : undefined;
  const [train, held] = split(values, sources, own);

  const options = (tokens: number): BatchOptions => ({
    batch: context.microBatch,
    tokens,
    seed: values.seed,
    shuffle: values.shuffle,
    pack: values.pack,
    longRows: values.longRows,
    ...(values.epochs === undefined ? {} : { epochs: values.epochs }),
  });
  const evalOptions = (tokens: number) => ({ ...options(tokens), shuffle: false, epochs: 1 });
  let tokens = seqLen;
  if (!values.pack) {
    const longest = [new BatchStream(train, options(tokens))];
    if (held) longest.push(new BatchStream(held, evalOptions(tokens)));
    tokens = Math.max(...longest.map((stream) => stream.longestRow));
  }
  const evalStream = held && (() => new BatchStream(held, evalOptions(tokens)));
  return {
    stream: new BatchStream(train, options(tokens)),
    evalStream,
    tokens,
    keys: opened.stores.map(({ key }) => key),
    hubData: opened.hubData,
    evalFingerprint: evalStream?.().fingerprint,
    [Symbol.dispose]() {
      for (const store of opened.stores) store.close();
    },
  };
}

/** Tokens that the run takes, as far as the flags say; the share set aside comes on top. */
function tokensNeeded(
  { tokens = Infinity, steps = Infinity, batch, evalSplit = 0 }: TrainValues,
  seqLen: number,
): number {
  return Math.min(tokens, steps * batch * seqLen) / (1 - evalSplit);
}

/** Training and validation sources: files of their own, or a share of the documents. */
function split(
  { evalSplit, seed }: TrainValues,
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
  values: TrainValues,
  io: Io,
  context: DataContext,
  opened: Opened,
  neededTokens?: number,
): Promise<BatchSource[]> {
  const options = tokenOptions(values, io, context);
  const open = tokenOpener(values, io, context);
  const result: BatchSource[] = [];
  const found = await resolveSources(specs);
  const totalWeight = found.reduce((sum, { weight = 1 }) => sum + weight, 0);
  for (const { files, weight } of found) {
    const stores: TokenStore[] = [];
    const needed = (neededTokens ?? Infinity) * (weight ?? 1) / totalWeight;
    for (const file of files) {
      if (isHubData(file)) {
        const before = stores.reduce((sum, { tokens }) => sum + tokens, 0);
        const hubData = context.recorded?.hubData;
        const recorded = context.recorded && {
          hubData: Array.isArray(hubData) ? hubData[opened.hubData.length] : undefined,
        };
        const tokens = await openHubStores(file, values, io, options, needed - before, recorded);
        opened.hubData.push(tokens.data);
        opened.stores.push(...tokens.stores);
        stores.push(...tokens.stores);
        continue;
      }
      const known = file === "-" ? context.recorded?.keys?.[opened.stores.length] : undefined;
      const store = await open(file, known);
      opened.stores.push(store);
      stores.push(store);
    }
    result.push(weight === undefined ? { stores } : { stores, weight });
  }
  return result;
}

function tokenOptions(values: TrainValues, io: Io, context: DataContext) {
  const endToken = values.endToken ?? context.tokenizer?.idOf("<|endoftext|>") ??
    context.config.eosTokenIds[0];
  return {
    cacheFolder: `${cacheFolder((name) => io.env(name))}/tokens`,
    vocabSize: context.config.vocabSize,
    threads: values.threads ?? usableCores(),
    signal: io.interruption,
    ...(context.tokenizerFolder ? { tokenizerFolder: context.tokenizerFolder } : {}),
    ...(endToken === undefined ? {} : { endToken }),
  };
}

/** Opens the tokens of a file, or those of a known key, with a progress line. */
function tokenOpener(values: TrainValues, io: Io, context: DataContext) {
  const options = tokenOptions(values, io, context);
  return async (file: string, known?: string): Promise<TokenStore> => {
    if (known === undefined && file === "-") io.requireInput();
    using progress = startProgress(io, { label: `Tokenizing ${file}`, unit: "tokens" });
    const store = known !== undefined
      ? await openCachedTokens(known, options.cacheFolder)
      : await openTokens(file, {
        ...options,
        onProgress: ({ tokens, bytes, totalBytes }) =>
          progress.update(tokens, totalBytes ? `${Math.round(100 * bytes / totalBytes)}%` : ""),
        ...(file === "-" ? { stdin: io.system.stdin() } : {}),
      });
    progress.update(store.tokens);
    return store;
  };
}
