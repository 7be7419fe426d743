/** Carries out `parscale inspect`: facts about a checkpoint, or its tokenizer at work. */
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { show } from "../../../core/base/files.ts";
import { checkAdapterBackbone } from "../../../core/checkpoint/backbone.ts";
import { HEADER_DTYPE } from "../../../core/base/dtype.ts";
import type { StoredRange } from "../../../core/checkpoint/quantization.ts";
import type { StoredTensor } from "../../../core/checkpoint/open.ts";
import { checkQuantized } from "../../../core/convert/quantize.ts";
import { checkFinite } from "../../../core/checkpoint/read.ts";
import { bucketFor } from "../../../core/generate/kv_cache.ts";
import { attentionLayers, type ModelConfig } from "../../../core/model/config.ts";
import { isOnHub } from "../../../core/hub/model.ts";
import { countParameters } from "../../../core/model/parameters.ts";
import type { Session } from "../../../core/session/session.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import type { Tokenizer } from "../../../core/tokenizer/types.ts";
import type { PlanText, ValuesOf } from "../../framework/command.ts";
import { formatFlag } from "../../framework/table.ts";
import { refuseFlags, refuseFormat } from "../../input/forms.ts";
import { requireContext } from "../../input/limits.ts";
import { describeModel, findModel, modelPlan, openModel } from "../../input/open_model.ts";
import { readJsonLines, rowError } from "../../input/rows.ts";
import { visibleLines } from "../../output/clean.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { Report } from "../../output/report.ts";
import { openSink } from "../../output/sink.ts";
import { bytesText, counted, grouped } from "../../output/units.ts";
import type { command } from "./flags.ts";

type InspectValues = ValuesOf<typeof command>;

/** Checks flags of the tokenizer's form. */
export function plan(values: InspectValues, _io: unknown, invocation: Invocation): InspectValues {
  const { tokenize, detokenize } = values;
  if (!usesTokenizer(values)) return values;
  const name = formatFlag(tokenize === undefined ? "detokenize" : "tokenize");
  refuseFlags(invocation, name, ["check", "context", "batch"]);
  if (invocation.format !== "jsonl") refuseFormat(invocation, `the output of ${name}`);
  if (detokenize !== undefined && detokenize !== "-") parseIds(detokenize);
  return values;
}

function usesTokenizer({ tokenize, detokenize }: InspectValues): boolean {
  return tokenize !== undefined || detokenize !== undefined;
}

/** Text of `--dry-run`. */
export async function describe(values: InspectValues, io: Io): Promise<PlanText> {
  if (usesTokenizer(values)) {
    if (!await isOnHub(values.model)) await openTokenizer(await folderOf(values, io));
    return { lines: [] };
  }
  const check = ({ config }: Session) => contextOf(config, values);
  return await describeModel(modelPlan(values), io, check);
}

/** Tokens of a row that memory is planned for. */
function contextOf(config: ModelConfig, values: InspectValues): number {
  const { context = Math.min(2048, config.maxPositionEmbeddings) } = values;
  const fitting = `pass --context ${config.maxPositionEmbeddings} or less`;
  requireContext(config, context, `\`--context ${context}\``, fitting);
  return context;
}

/** Runs the command. */
export async function run(values: InspectValues, io: Io, invocation: Invocation): Promise<void> {
  if (usesTokenizer(values)) return await runTokenizer(values, io, invocation);
  using model = await openModel(modelPlan(values), io);
  const { checkpoint, engine } = model;
  const { config } = checkpoint;
  if (values.check) {
    await checkAdapterBackbone(checkpoint);
    await checkFinite(checkpoint);
    if (checkpoint.quantization) await checkQuantized(checkpoint.directory);
  }
  const context = contextOf(config, values);
  const counts = countParameters(config);
  const deltaLayers = config.numHiddenLayers - attentionLayers(config).length;
  const { batch } = values, capacity = bucketFor(engine.device, context);
  const plan = engine.plan({ batch, tokens: 1, capacity, selected: batch });
  const { format, matrices } = checkpoint.quantization ?? {};
  const parts = [...matrices?.values() ?? []].flatMap(({ codes, scales }) => [codes, scales]);
  const tensors = [...checkpoint.tensors.values()];
  const stored = [...tensors, ...parts];
  const typeOf = ({ dtype, encoding }: StoredTensor) =>
    encoding && encoding.type !== HEADER_DTYPE[dtype] ? encoding.type : dtype;
  const storedBytes = (tensor: StoredTensor | StoredRange) =>
    "encoding" in tensor ? tensor.encoding!.byteLength : tensor.byteLength;
  const tokenizer = await model.openTokenizerIfAny();
  using report = new Report(io, invocation, {
    schema: "parscale.inspect/2",
    device: model.device,
  });
  const fields = {
    family: config.family,
    streams: config.streams,
    prefix_tokens: config.prefix ? config.prefixTokens : 0,
    aggregation: config.streams > 1 ? config.aggregator : null,
    smoothing: config.streams > 1 ? config.smoothing : null,
    params: counts.total,
    introduced_params: counts.introduced,
    embedding_params: counts.embedding,
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_layers: config.numHiddenLayers,
    num_heads: config.numAttentionHeads,
    num_kv_heads: config.numKeyValueHeads,
    head_dim: config.headDim,
    delta_layers: deltaLayers,
    vocab_size: config.vocabSize,
    max_position_embeddings: config.maxPositionEmbeddings,
    rope_theta: config.ropeTheta,
    rope_scaling: config.ropeScaling?.kind ?? null,
    tie_word_embeddings: config.tieWordEmbeddings,
    dtypes: [...new Set([...format ? [format.kind] : [], ...tensors.map(typeOf)])],
    block_size: format?.block ?? null,
    tensors: stored.length,
    extra_tensors: checkpoint.extraTensors.length,
    files: new Set(stored.map((tensor) => tensor.path)).size,
    stored_bytes: stored.reduce((sum, tensor) => sum + storedBytes(tensor), 0),
    tokenizer: tokenizer?.kind ?? null,
    tokenizer_vocab_size: tokenizer?.vocabSize ?? null,
    eos_token_ids: config.eosTokenIds,
    rows: batch,
    context,
    weight_bytes: plan.sections.parameters,
    kv_cache_bytes: plan.sections.state,
    memory_bytes: plan.totalBytes,
  };
  await report.finish(invocation.format === "table" ? readable(fields) : fields);
}

/** Facts about a checkpoint, by the keys of the JSON result. */
interface Fields {
  readonly [key: string]: string | number | boolean | null | readonly (number | string)[];
}

/** Prints the same facts in a few lines of text. */
function readable(f: Fields): Record<string, string> {
  const n = (key: string) => grouped(f[key] as number);
  const bytes = (key: string) => bytesText(f[key] as number);
  const rest = (f.memory_bytes as number) - (f.weight_bytes as number) -
    (f.kv_cache_bytes as number);
  const parallel = (f.streams as number) > 1;
  return {
    family: `${f.family}, ${counted(f.streams as number, "stream")}`,
    ...(parallel
      ? {
        prefix: `${f.prefix_tokens} tokens per stream and layer`,
        aggregation: f.aggregation === "linear" ? "linear" : `dynamic, smoothing ${f.smoothing}`,
      }
      : {}),
    parameters: `${n("params")}, of which ${n("introduced_params")} introduced and ` +
      `${n("embedding_params")} embedding`,
    layers: `${f.num_layers} of width ${n("hidden_size")}, MLP ${n("intermediate_size")}, ` +
      `${f.num_heads} query and ${f.num_kv_heads} key heads of ${f.head_dim}` +
      (f.delta_layers === 0 ? "" : `; ${f.delta_layers} of them delta nets`),
    vocabulary: `${n("vocab_size")}, ${f.tie_word_embeddings ? "one table" : "two tables"}`,
    context: `${n("max_position_embeddings")} positions, rope theta ${n("rope_theta")}`,
    files: `${counted(f.files as number, "file")}, ${counted(f.tensors as number, "tensor")} of ` +
      `${(f.dtypes as string[]).join(", ")}, ${bytes("stored_bytes")}`,
    tokenizer: f.tokenizer === null
      ? "none"
      : `${f.tokenizer}, ${n("tokenizer_vocab_size")} tokens, end tokens ${
        (f.eos_token_ids as number[]).join(", ") || "none"
      }`,
    memory: `${bytes("memory_bytes")} for ${counted(f.rows as number, "row")} of ${n("context")} ` +
      `tokens: weights ${bytes("weight_bytes")}, ${f.delta_layers === 0 ? "" : "states, "}` +
      `keys and values ${bytes("kv_cache_bytes")}, ` +
      `the rest ${bytesText(rest)}`,
  };
}

/** Prints ids of texts, or texts of ids. */
async function runTokenizer(
  values: InspectValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const tokenizer = await openTokenizer(await folderOf(values, io));
  const { tokenize, detokenize } = values;
  using out = openSink(io, invocation.out, invocation.overwrite);
  const encode = (text: string) => JSON.stringify(Array.from(tokenizer.encode(text)));
  if (tokenize === "-") {
    for await (const { value, line } of readJsonLines(io.readLines(), "stdin")) {
      if (typeof value !== "string") throw valueError(line, value, "a JSON string");
      out.write(encode(value) + "\n");
    }
  } else if (tokenize !== undefined) {
    out.write(encode(tokenize) + "\n");
  } else if (detokenize === "-") {
    for await (const { value, line } of readJsonLines(io.readLines(), "stdin")) {
      if (!isIds(value)) throw valueError(line, value, "a JSON array of token ids");
      out.write(JSON.stringify(decodeLine(tokenizer, value, line)) + "\n");
    }
  } else {
    const text = tokenizer.decode(parseIds(detokenize!));
    out.write((out.isTerminal ? visibleLines(text) : text) + "\n");
  }
  out.commit();
}

function decodeLine(tokenizer: Tokenizer, ids: readonly number[], line: number): string {
  try {
    return tokenizer.decode(ids);
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw new DataError(`line ${line} of stdin`, { cause, hints: cause.hints });
  }
}

async function folderOf({ model }: InspectValues, io: Io): Promise<string> {
  return (await findModel({ model, adapter: undefined }, io)).model;
}

function parseIds(given: string): number[] {
  const list = given.trim().replace(/^\[|\]$/g, "").trim();
  const ids = list === "" ? [] : list.split(",").map((id) => id.trim());
  if (ids.every((id) => /^\d+$/.test(id))) return ids.map(Number);
  throw new UsageError(
    `invalid value "${given}" for \`--detokenize\`: must be token ids separated by commas`,
  );
}

function valueError(line: number, value: unknown, expected: string): DataError {
  return rowError("stdin", line, show(value), expected);
}

function isIds(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0);
}
