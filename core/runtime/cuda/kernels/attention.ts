/**
 * Attention and its gradient as launches, chosen by sizes alone, so that a captured launch stays valid:
 *
 *   split + combine   up to 16 queries of a key head, as in decoding, and all that read through a table
 *   mma               more, in bf16 with heads of a multiple of 16
 *   attention         more, else
 */
import backwardText from "../../../../kernels/backward/attention.cu" with { type: "text" };
import backwardMmaText from "../../../../kernels/backward/attention_mma.cu" with { type: "text" };
import forwardText from "../../../../kernels/forward/attention.cu" with { type: "text" };
import mmaText from "../../../../kernels/forward/attention_mma.cu" with { type: "text" };
import splitText from "../../../../kernels/forward/attention_split.cu" with { type: "text" };
import type { GradientAttributes } from "../../../graph/differentiate.ts";
import type { Value } from "../../../graph/value.ts";
import { type AttentionAttributes, attentionOp } from "../../../ops/attention.ts";
import { attentionGradient, attentionWithNormalizer } from "../fuse/normalizer.ts";
import type { Lowering } from "../lowering.ts";
import { blocks, grid, type Kernel, kernel, kernelFile, overHeads } from "./define.ts";
import { listRule, once, type Rule } from "./rule.ts";
import { f32, sumPartials } from "./sums.ts";

const BF16 = overHeads([{ BF16: 1 }]);

export const ATTENTION = kernelFile("forward/attention.cu", forwardText, overHeads());
export const ATTENTION_MMA = kernelFile("forward/attention_mma.cu", mmaText, BF16);
export const ATTENTION_SPLIT = kernelFile("forward/attention_split.cu", splitText, overHeads());
export const ATTENTION_BACKWARD = kernelFile("backward/attention.cu", backwardText, overHeads());
export const ATTENTION_BACKWARD_MMA = kernelFile(
  "backward/attention_mma.cu",
  backwardMmaText,
  BF16,
);

/** Queries of a key head up to which reading the slots takes longer than computing. */
const FEW_QUERIES = 16;
/** Queries of one block of `attention_split`. */
const SPLIT_QUERIES = 8;
/** Least slots of a split. */
const LEAST_CHUNK = 64;
/** Blocks that keep the largest devices busy. */
const ENOUGH_BLOCKS = 2 * 132;
/** Tiles of queries worth a partial sum of their own. */
const ITEMS_PER_CHUNK = 4;

// Sizes are named in core/ops/attention.ts; rows counts the P·B attention rows, of which R have text.
const plain = kernel(
  ATTENTION,
  "attention *out *normalizer *q *keys *values *first *last *prefixKeys *prefixValues " +
    "R B T S K G M scale:f32",
  ({ rows, G, T, K }) => grid(128, blocks(G! * T!, 16), K!, rows!),
);
const mma = kernel(
  ATTENTION_MMA,
  "attention_mma *out *normalizer *q *keys *values *first *last *prefixKeys *prefixValues " +
    "R B T S K G M scale:f32",
  ({ rows, G, T, K }) => grid(128, blocks(G! * T!, 64), K!, rows!),
);
const split = kernel(
  ATTENTION_SPLIT,
  "attention_split *partial *rowMaxes *rowSums *q *keys *values *first *last *table " +
    "*prefixKeys *prefixValues R rows B T S K G M chunk scale:f32",
  ({ rows, G, T, S, K, M, chunk }) =>
    grid(128, Math.sign(M!) + blocks(S!, chunk!), K! * blocks(G! * T!, SPLIT_QUERIES), rows!),
);
const combine = kernel(
  ATTENTION_SPLIT,
  "attention_combine *out *normalizer *partial *rowMaxes *rowSums heads:i64 splits",
  ({ heads }) => grid(128, heads!),
);
const delta = kernel(
  ATTENTION_BACKWARD,
  "attention_delta *delta *dout *out heads:i64",
  ({ heads }) => grid(128, blocks(heads!, 4)),
);

/** The three kernels of the gradient: by queries, by keys and values, and by the prefix. */
interface BackwardKernels {
  readonly queries: Kernel;
  readonly keys: Kernel;
  readonly prefix: Kernel;
  /** Slots of the prefix that one block computes. */
  readonly tile: number;
}

function backwardKernels(file: typeof ATTENTION, suffix: string, tile: number): BackwardKernels {
  const read = "*dout *normalizer *delta *q";
  return {
    tile,
    queries: kernel(
      file,
      `attention_queries${suffix} *dq ${read} *keys *values *first *last *prefixKeys ` +
        "*prefixValues R rows B T S K G M scale:f32",
      ({ R, G, T, K }) => grid(128, blocks(G! * T!, tile), K!, R!),
    ),
    keys: kernel(
      file,
      `attention_keys${suffix} *dkeys *dvalues ${read} *keys *values *first *last ` +
        "R rows B T S K G scale:f32",
      ({ R, S, K }) => grid(128, blocks(S!, tile), K!, R!),
    ),
    prefix: kernel(
      file,
      `attention_prefix${suffix} *partialKeys *partialValues ${read} *prefixKeys ` +
        "*prefixValues R P B T K G M chunks scale:f32",
      ({ P, M, K, chunks }) => grid(128, blocks(M!, tile), K!, P! * chunks!),
    ),
  };
}

const backward = backwardKernels(ATTENTION_BACKWARD, "", 16);
const backwardMma = backwardKernels(ATTENTION_BACKWARD_MMA, "_mma", 64);

/** Inputs of an attention node by name, in the order of its op, and its sizes. */
function attentionCall(
  l: Lowering,
  inputs: readonly Value[],
  { packed, paged }: AttentionAttributes,
) {
  const [q, keys, values, last, ...rest] = inputs as [Value, Value, Value, Value, ...Value[]];
  const first = packed ? rest.shift() : undefined;
  const table = paged ? rest.shift() : undefined;
  const [prefixKeys, prefixValues] = rest;
  const [R, T, H, D] = q.shape as [number, number, number, number];
  const [, K, S] = keys.shape as [number, number, number];
  const B = last.shape[0]!;
  const P = prefixKeys ? prefixKeys.shape[0]! : R / B;
  if (D % 4 !== 0 || D > 128) {
    throw new TypeError(
      `a head size of ${D} is not supported on this device, expected a multiple of 4 up to 128`,
    );
  }
  const G = H / K, M = prefixKeys ? prefixKeys.shape[2]! : 0;
  return {
    reads: {
      q: l.operand(q),
      keys: l.operand(keys),
      values: l.operand(values),
      first: first && l.get(first),
      last: l.get(last),
      table: table && l.get(table),
      prefixKeys: prefixKeys && l.operand(prefixKeys),
      prefixValues: prefixValues && l.operand(prefixValues),
    },
    scalars: { R, B, T, S, K, G, M, rows: P * B, P, scale: D ** -0.5 },
    defines: { HEAD_DIM: D },
    /** Query heads of all tokens of all rows. */
    heads: P * B * T * H,
    /** Whether the kernels on tensor cores can compute it. */
    fitsTensorCores: l.dtype === "bf16" && D % 16 === 0,
    isFew: paged || G * T <= FEW_QUERIES,
  };
}

type AttentionCall = ReturnType<typeof attentionCall>;

/** The largest power of two of slots that leaves blocks enough. */
function chunkOf({ scalars: { rows, K, S, M } }: AttentionCall): number {
  let chunk = LEAST_CHUNK;
  const blocksAt = (chunk: number) => rows * K * (Math.sign(M) + S / chunk);
  while (chunk < S && blocksAt(2 * chunk) >= ENOUGH_BLOCKS) chunk *= 2;
  return chunk;
}

/** Writes `out` and, where it is kept, `normalizer`. */
function lowerAttention(
  l: Lowering,
  inputs: readonly Value[],
  attributes: AttentionAttributes,
  [out, normalizer]: readonly [Value, Value?, ...Value[]],
): Value[] {
  const call = attentionCall(l, inputs, attributes);
  const { reads: { table, ...reads }, scalars, defines, heads } = call;
  const writes = { out: l.type(out.shape), normalizer };
  if (!call.isFew) {
    return l.launch(call.fitsTensorCores ? mma : plain, { reads, writes, scalars, defines });
  }
  const chunk = chunkOf(call);
  const splits = Math.sign(scalars.M) + Math.ceil(scalars.S / chunk);
  const [partial, rowMaxes, rowSums] = l.launch(split, {
    reads: { table, ...reads },
    writes: {
      partial: f32(splits, heads, defines.HEAD_DIM),
      rowMaxes: f32(splits, heads),
      rowSums: f32(splits, heads),
    },
    scalars: { ...scalars, chunk },
    defines,
  });
  return l.launch(combine, {
    reads: { partial, rowMaxes, rowSums },
    writes,
    scalars: { heads, splits },
    defines,
  });
}

/** Sums over chunks of the queries, added up. */
function prefixGradients(
  l: Lowering,
  kernels: BackwardKernels,
  { reads: { prefixKeys }, scalars, defines }: AttentionCall,
  reads: Readonly<Record<string, Value | undefined>>,
): Value[] {
  const { P, B, T, K, G, M } = scalars;
  const queries = kernels === backwardMma && defines.HEAD_DIM <= 64 ? 32 : 16;
  const items = B * Math.ceil(G * T / queries);
  const wanted = Math.ceil(ENOUGH_BLOCKS / (P * K * Math.ceil(M / kernels.tile)));
  const chunks = Math.min(wanted, Math.ceil(items / ITEMS_PER_CHUNK));
  const size = P * K * M * defines.HEAD_DIM;
  const partials = l.launch(kernels.prefix, {
    reads,
    writes: { partialKeys: f32(chunks, size), partialValues: f32(chunks, size) },
    scalars: { ...scalars, chunks },
    defines,
  });
  return partials.map((partial) =>
    l.view(chunks > 1 ? sumPartials(l, partial) : partial, prefixKeys!.shape)
  );
}

/** Inputs are those of attention, then its output, the upstream gradient and the normalizer. */
function lowerGradient(
  l: Lowering,
  all: readonly Value[],
  { op, wanted }: GradientAttributes,
): Value[] {
  const attributes = op as AttentionAttributes;
  if (attributes.paged) throw new TypeError("cannot differentiate attention through a table");
  const [output, upstream, normalizer] = all.slice(-3) as [Value, Value, Value];
  const call = attentionCall(l, all.slice(0, -3), attributes);
  const { scalars, defines, heads } = call;
  const dout = l.operand(upstream);
  const [sums] = l.launch(delta, {
    reads: { dout, out: l.operand(output) },
    writes: { delta: f32(heads) },
    scalars: { heads },
    defines,
  });
  const reads = { ...call.reads, dout, normalizer: l.get(normalizer), delta: sums };
  const kernels = call.fitsTensorCores ? backwardMma : backward;
  const like = (value: Value) => l.type(value.shape);
  const byQueries = once(() => {
    const writes = { dq: like(reads.q) };
    return l.launch(kernels.queries, { reads, writes, scalars, defines });
  });
  const byKeys = once(() => {
    const writes = { dkeys: like(reads.keys), dvalues: like(reads.values) };
    return l.launch(kernels.keys, { reads, writes, scalars, defines });
  });
  const byPrefix = once(() => prefixGradients(l, kernels, call, reads));
  const prefix = attributes.packed ? 5 : 4; // number of the input with the prefix keys
  return wanted.map((input) => {
    if (input === 0) return byQueries()[0]!;
    return input < 3 ? byKeys()[input - 1]! : byPrefix()[input - prefix]!;
  });
}

export const ATTENTION_RULES: readonly Rule[] = [
  ...[attentionOp, attentionWithNormalizer].map((op) =>
    listRule<AttentionAttributes>(op, lowerAttention)
  ),
  listRule(attentionGradient, lowerGradient),
];
