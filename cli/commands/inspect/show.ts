/** Facts about a checkpoint, for programs and for readers. */
import { HEADER_DTYPE } from "../../../core/base/dtype.ts";
import type { StoredTensor } from "../../../core/checkpoint/open.ts";
import type { FileRange } from "../../../core/quant/stored.ts";
import { bucketFor } from "../../../core/generate/kv_cache.ts";
import { attentionLayers } from "../../../core/model/config.ts";
import { countParameters } from "../../../core/model/parameters.ts";
import type { Session } from "../../../core/session/session.ts";
import type { Tokenizer } from "../../../core/tokenizer/types.ts";
import { bytesText, counted, grouped } from "../../output/units.ts";

/** Facts about a checkpoint, by the keys of the JSON result. */
interface Facts {
  readonly [key: string]: string | number | boolean | null | readonly (number | string)[];
}

/** Facts about a checkpoint, and the memory of `batch` rows of `context` tokens. */
export function factsOf(
  { checkpoint, config, engine }: Session,
  batch: number,
  context: number,
  tokenizer: Tokenizer | undefined,
): Facts {
  const counts = countParameters(config);
  const capacity = bucketFor(engine.device, context);
  const plan = engine.plan({ batch, tokens: 1, capacity, selected: batch });
  const { format, matrices } = checkpoint.quantization ?? {};
  const parts = [...matrices?.values() ?? []].flatMap(({ codes, scales }) => [codes, scales]);
  const tensors = [...checkpoint.tensors.values()];
  const stored = [...tensors, ...parts];
  const typeOf = ({ dtype, encoding }: StoredTensor) =>
    encoding && encoding.type !== HEADER_DTYPE[dtype] ? encoding.type : dtype;
  const storedBytes = (tensor: StoredTensor | FileRange) =>
    "encoding" in tensor ? tensor.encoding!.byteLength : tensor.byteLength;
  return {
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
    delta_layers: config.numHiddenLayers - attentionLayers(config).length,
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
}

/** The same facts in a few lines of text. */
export function readable(f: Facts): Record<string, string> {
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
