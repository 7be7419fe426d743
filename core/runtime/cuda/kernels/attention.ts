/**
 * Attention and its gradient as launches, chosen by sizes alone, so that a captured launch stays valid:
 *
 *   mma              more than 16 queries of a key head, in bf16 with heads of a multiple of 16
 *   split-KV, reduce fewer, as in decoding, all in f32, and all that read through a table
 */
import backwardText from "../../../../kernels/backward/attention.cu" with { type: "text" };
import backwardMmaText from "../../../../kernels/backward/attention_mma.cu" with { type: "text" };
import mmaText from "../../../../kernels/forward/attention_mma.cu" with { type: "text" };
import splitText from "../../../../kernels/forward/attention_split.cu" with { type: "text" };
import { type GradientAttributes, gradientOp } from "../../../graph/differentiate.ts";
import type { Value } from "../../../graph/value.ts";
import { type AttentionAttributes, AttentionCall, attentionOp } from "../../../ops/attention.ts";
import type { Lowering } from "../lowering.ts";
import { blocks, grid, kernel, type KernelFile, kernelFile, overHeads } from "./define.ts";
import { f32, sumRows } from "./reduce.ts";
import { listRule, type Rule } from "./rule.ts";

const BF16 = overHeads([{ BF16: 1 }]);

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
/** Least slots of a split, and most splits, SPLITS of attention_split.cu. */
const LEAST_CHUNK = 64, MOST_SPLITS = 256;
/** Blocks that keep the largest devices busy. */
const ENOUGH_BLOCKS = 2 * 132;
/** Queries worth a partial sum of their own. */
const QUERIES_PER_CHUNK = 64;

// Sizes are named in core/ops/attention.ts; rows counts the P·B attention rows, of which R have text.
const mma = kernel(
  ATTENTION_MMA,
  "attention_mma",
  ({ rows, G, T, K }) => grid(128, blocks(G! * T!, 64), K!, rows!),
);
const split = kernel(
  ATTENTION_SPLIT,
  "attention_split",
  ({ rows, G, T, S, K, M, chunk }) =>
    grid(128, K! * blocks(G! * T!, SPLIT_QUERIES), Math.sign(M!) + blocks(S!, chunk!), rows!),
);
const combine = kernel(ATTENTION_SPLIT, "attention_combine", ({ heads }) => grid(256, heads!));
const delta = kernel(
  ATTENTION_BACKWARD,
  "attention_delta",
  ({ heads }) => grid(128, blocks(heads!, 4)),
);

/** The kernels of the gradient: by queries, and by the slots of the text or of the prefix, in tiles. */
function backwardKernels(file: KernelFile, suffix: string, tile: number) {
  return {
    tile,
    queries: kernel(
      file,
      `attention_queries${suffix}`,
      ({ R, G, T, K }) => grid(128, blocks(G! * T!, tile), K!, R!),
    ),
    slots: kernel(
      file,
      `attention_slots${suffix}`,
      ({ R, P, S, M, K, chunks }) =>
        grid(128, blocks(S! || M!, tile), K!, (S! ? R! : P!) * chunks!),
    ),
  };
}

const backward = backwardKernels(ATTENTION_BACKWARD, "", 16);
const backwardMma = backwardKernels(ATTENTION_BACKWARD_MMA, "_mma", 64);

/** Arguments of the launches of an attention node. */
function attentionArguments(
  l: Lowering,
  inputs: readonly Value[],
  attributes: AttentionAttributes,
) {
  const call = new AttentionCall(inputs, attributes);
  const { q, keys, values, visible: { first, last, table }, prefix } = call;
  const { R, B, T, S, K, G, M, P, D } = call;
  if (D % 4 !== 0 || D > 128) {
    throw new TypeError(
      `a head size of ${D} is not supported on this device, expected a multiple of 4 up to 128`,
    );
  }
  return {
    reads: {
      q: l.operand(q),
      keys: l.operand(keys),
      values: l.operand(values),
      first: first && l.get(first),
      last: l.get(last),
      table: table && l.get(table),
      prefixKeys: prefix && l.operand(prefix.keys),
      prefixValues: prefix && l.operand(prefix.values),
    },
    scalars: { R, B, T, S, K, G, M, rows: P * B, P, scale: D ** -0.5 },
    defines: { HEAD_DIM: D },
    /** Query heads of all tokens of all rows. */
    heads: P * B * T * K * G,
    /** True if the kernels on tensor cores can compute it. */
    fitsTensorCores: l.dtype === "bf16" && D % 16 === 0,
    /** True if computing takes longer than reading the slots; only `attention_split` knows tables. */
    hasManyQueries: G * T > FEW_QUERIES && !table,
  };
}

type Arguments = ReturnType<typeof attentionArguments>;

/** Splits of the slots, each a power of two of them: as few as leave blocks enough. */
function splitsOf({ scalars: { rows, K, G, T, S, M } }: Arguments) {
  const tiles = rows * K * blocks(G * T, SPLIT_QUERIES);
  const splitsAt = (chunk: number) => Math.sign(M) + blocks(S, chunk);
  let chunk = LEAST_CHUNK;
  while (
    chunk < S && (tiles * splitsAt(2 * chunk) >= ENOUGH_BLOCKS || splitsAt(chunk) > MOST_SPLITS)
  ) chunk *= 2;
  return { chunk, splits: splitsAt(chunk) };
}

/** The output, and the normalizer that its gradient reads. */
function attend(l: Lowering, call: Arguments): Value[] {
  const { reads, scalars, defines, heads } = call;
  const { rows, T, K, G } = scalars;
  const writes = {
    out: l.type([rows, T, K * G * defines.HEAD_DIM]),
    normalizer: f32(rows, T, K * G),
  };
  if (call.fitsTensorCores && call.hasManyQueries) {
    return l.launch(mma, { reads, writes, scalars, defines });
  }
  const { chunk, splits } = splitsOf(call);
  const [partial, rowMaxes, rowSums] = l.launch(split, {
    reads,
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

/** Gradients of keys and values, of the text or of the prefix. */
function slotGradients(
  l: Lowering,
  kernels: typeof backward,
  { reads: given, scalars, defines }: Arguments,
  ofPrefix: boolean,
): Value[] {
  const { P, B, T, K, G, M, S } = scalars;
  const prefix = { keys: given.prefixKeys!, values: given.prefixValues! };
  const reads = { ...given, ...(ofPrefix && prefix) };
  const shape = reads.keys.shape;
  // Few slots for many queries leave a device idle, so these are cut, and the sums of the parts added:
  // in the text twice as often, since its first slots are seen by all queries and its last by one.
  const owners = ofPrefix ? P : scalars.R, size = ofPrefix ? M : S;
  const wanted = (ofPrefix ? 1 : 2) * ENOUGH_BLOCKS / (owners * K * blocks(size, kernels.tile));
  const most = P * B / owners * G * T / QUERIES_PER_CHUNK;
  const chunks = Math.ceil(Math.min(wanted, most));
  const partials = l.launch(kernels.slots, {
    reads,
    writes: { dkeys: f32(chunks, ...shape), dvalues: f32(chunks, ...shape) },
    scalars: { ...scalars, ...(ofPrefix ? { S: 0, M } : { S, M: 0 }), chunks },
    defines,
  });
  return partials.map((partial) =>
    l.view(chunks > 1 ? sumRows(l, partial, chunks, shape) : partial, shape)
  );
}

/** The launches of an attention, made once for the op and its gradient. */
function attention(
  l: Lowering,
  inputs: readonly Value[],
  attributes: AttentionAttributes,
): readonly Value[] {
  const name = `attention ${attributes.packed} ${attributes.paged}`;
  return l.shared(name, inputs, () => attend(l, attentionArguments(l, inputs, attributes)));
}

/** Inputs are those of attention, then its output and the upstream gradient. */
function lowerGradient(
  l: Lowering,
  all: readonly Value[],
  { op, wanted }: GradientAttributes,
): Value[] {
  const attributes = op as AttentionAttributes;
  if (attributes.paged) throw new TypeError("cannot differentiate attention through a table");
  const inputs = all.slice(0, -2);
  const [out, normalizer] = attention(l, inputs, attributes) as [Value, Value];
  const call = attentionArguments(l, inputs, attributes);
  const { scalars, defines, heads } = call;
  const dout = l.operand(all.at(-1)!);
  const [sums] = l.launch(delta, {
    reads: { dout, out },
    writes: { delta: f32(heads) },
    scalars: { heads },
    defines,
  });
  const reads = { ...call.reads, dout, normalizer, delta: sums! };
  const kernels = call.fitsTensorCores ? backwardMma : backward;
  const [dq] = l.launch(kernels.queries, {
    reads,
    writes: { dq: l.type(reads.q.shape) },
    scalars,
    defines,
  });
  const ofText = slotGradients(l, kernels, { ...call, reads }, false);
  const ofPrefix = scalars.M > 0 ? slotGradients(l, kernels, { ...call, reads }, true) : [];
  const unused = attributes.packed ? [undefined, undefined] : [undefined]; // last, first
  const gradients = [dq, ...ofText, ...unused, ...ofPrefix];
  return wanted.map((input) => gradients[input]!);
}

export const ATTENTION_RULES: readonly Rule[] = [
  listRule<AttentionAttributes>(attentionOp, (l, inputs, attributes) => [
    attention(l, inputs, attributes)[0]!,
  ]),
  listRule(gradientOp(attentionOp), lowerGradient),
];
