/**
 * attention: grouped-query attention over text, behind a learned prefix.
 *
 *   scores = q [prefix_k | k]ᵀ / √D + mask,  out = softmax(scores) [prefix_v | v]
 *
 * A query sees the slots from `first` to `last` of its own row: slot s of a KV cache holds the token
 * at position s, so there `last` is the position and `first` is 0; in a packed training row `first`
 * is where the document begins. Slots outside may hold anything. The prefix is seen by every query
 * and never masked.
 *
 * With a `table` slot s of sequence b lies where row `table[b, s]` of the batch has its slot s, as in
 * paged attention with pages of one slot: sequences that begin alike share what they have in common,
 * and a reordering writes a table instead of copying keys and values. What the table says of slots
 * before the first and behind the last that queries of a sequence see is not looked at.
 *
 * Rows are stream-major (row = p·B + b) and the prefix is stored once per stream, not per row. Q,
 * k, v may have B rows instead of P·B. That is layer 0, where all streams still have equal text;
 * its scores are computed once and streams part only through their prefixes.
 *
 * The gradient is built on the softmax as the forward pass builds it, so that a device which expands
 * both computes it once.
 *
 * Kernel: forward/attention.
 */
import type { Builder } from "../graph/builder.ts";
import { unbroadcast } from "../graph/derivatives.ts";
import {
  add,
  broadcast,
  concat,
  constant,
  gather,
  iota,
  lessEqual,
  matmul,
  max,
  mul,
  reshape,
  select,
  slice,
  transpose,
} from "../graph/primitives.ts";
import { type Attributes, formatType, type Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";
import { softmax, softmaxGradient } from "./softmax.ts";

/** Learned keys and values of every stream, [P, K, M, D] each; keys are not rotated. */
export interface Prefix {
  readonly keys: Value;
  readonly values: Value;
}

/** The slots that each query sees, [B, T] i32 each; `first` is 0 where it is absent. */
export interface Visible {
  readonly first?: Value;
  readonly last: Value;
  /** Row of the batch, in each block of B rows, where a slot lies, [B, S] i32; its own if absent. */
  readonly table?: Value;
}

/** Which of the optional inputs behind `last` there are, before those of a prefix. */
interface AttentionAttributes extends Attributes {
  /** `first` */
  readonly packed: boolean;
  /** `table` */
  readonly paged: boolean;
}

/** Added to the score of a slot that a query must not see. Finite, so that no row becomes NaN. */
const HIDDEN = -1e30;

/** Sizes of one attention, and its inputs by name. */
class Call {
  readonly q: Value;
  readonly keys: Value;
  readonly values: Value;
  readonly visible: Visible;
  readonly prefix: Prefix | undefined;
  readonly R: number;
  readonly T: number;
  readonly D: number;
  readonly K: number;
  readonly S: number;
  readonly B: number;
  /** Query heads per key head. */
  readonly G: number;
  readonly P: number;
  readonly M: number;
  /** Blocks of B rows in q, k and v: 1 where the streams share their text, else P. */
  readonly blocks: number;

  constructor(inputs: readonly Value[], { packed, paged }: AttentionAttributes) {
    const [q, keys, values, last, ...rest] = inputs as [Value, Value, Value, Value, ...Value[]];
    const first = packed ? rest.shift() : undefined;
    const table = paged ? rest.shift() : undefined;
    const [prefixKeys, prefixValues] = rest;
    [this.q, this.keys, this.values, this.visible] = [q, keys, values, { first, last, table }];
    this.prefix = prefixKeys && { keys: prefixKeys, values: prefixValues! };
    const [R, T, H, D] = q.shape as [number, number, number, number];
    const [, K, S] = keys.shape as [number, number, number];
    [this.R, this.T, this.D, this.K, this.S, this.B] = [R, T, D, K, S, last.shape[0]!];
    this.G = H / K;
    this.P = prefixKeys ? prefixKeys.shape[0]! : R / this.B;
    this.M = prefixKeys ? prefixKeys.shape[2]! : 0;
    this.blocks = R / this.B;
    const fits = keys.shape[0] === R && H % K === 0 && keys.shape[3] === D &&
      values.shape.join() === keys.shape.join() && (R === this.B || R === this.P * this.B) &&
      (!table || table.shape.join() === [this.B, S].join());
    if (!fits) throw new TypeError(`Cannot attend from ${formatType(q)} to ${formatType(keys)}`);
  }

  /** The G query heads of one key head become G·T rows of one product: [rows, B, K, G·T, D]. */
  byKeyHead(g: Builder, x: Value, rows: number): Value {
    const { T, K, G, D, B } = this;
    const heads = transpose(g, reshape(g, x, [rows * B, T, K, G, D]), [0, 2, 3, 1, 4]);
    return reshape(g, heads, [rows, B, K, G * T, D]);
  }

  /** Undoes `byKeyHead`: → [rows·B, T, H·D] */
  byToken(g: Builder, x: Value, rows: number): Value {
    const { T, K, G, D, B } = this;
    const split = transpose(g, reshape(g, x, [rows * B, K, G, T, D]), [0, 3, 1, 2, 4]);
    return reshape(g, split, [rows * B, T, K * G * D]);
  }

  /** Keys or values of each sequence, [R, K, S, D] → [blocks, B, K, S, D] */
  text(g: Builder, x: Value): Value {
    const { B, K, S, D, blocks, visible } = this;
    if (!visible.table) return reshape(g, x, [blocks, B, K, S, D]);
    const cells = transpose(g, reshape(g, x, [blocks, B, K, S, D]), [0, 1, 3, 2, 4]);
    const own = gather(g, reshape(g, cells, [blocks, B * S, K, D]), tableCells(g, visible, S), 1);
    return transpose(g, own, [0, 1, 3, 2, 4]);
  }

  /** [P, K, M, D] → [P, 1, K, M, D] */
  perStream(g: Builder, x: Value): Value {
    return reshape(g, x, [this.P, 1, this.K, this.M, this.D]);
  }

  /** Attention weights, the prefix first: [P, B, K, G·T, M + S] */
  weights(g: Builder): Value {
    const { P, B, K, G, T, S, M, blocks, prefix } = this;
    const queries = this.byKeyHead(g, this.q, blocks);
    const scale = { transposeB: true, scale: this.D ** -0.5 };
    const product = matmul(g, queries, this.text(g, this.keys), scale);
    const mask = visibleMask(g, this.visible, S);
    const masked = add(g, reshape(g, product, [blocks, B, K, G, T, S]), mask);
    const shape = [P, B, K, G * T, M + S];
    if (!prefix) return reshape(g, softmax(g, masked), shape);
    const prefixProduct = matmul(g, queries, this.perStream(g, prefix.keys), scale);
    const scores = concat(g, [
      reshape(g, prefixProduct, [P, B, K, G, T, M]),
      blocks === P ? masked : broadcast(g, masked, [P, B, K, G, T, S]),
    ], -1);
    return reshape(g, softmax(g, scores), shape);
  }
}

export const attentionOp = modelOp<AttentionAttributes>({
  name: "attention",
  infer(inputs, attributes) {
    const { q, P, B, T, K, G, D } = new Call(inputs as Value[], attributes);
    return [{ dtype: q.dtype, shape: [P * B, T, K * G * D] }];
  },
  decompose(g, inputs, attributes) {
    const call = new Call(inputs, attributes);
    const { P, M, S, prefix } = call;
    const weights = call.weights(g);
    const values = call.text(g, call.values);
    if (!prefix) return [call.byToken(g, matmul(g, weights, values), P)];
    const context = add(
      g,
      matmul(g, slice(g, weights, -1, M, M + S), values),
      matmul(g, slice(g, weights, -1, 0, M), call.perStream(g, prefix.values)),
    );
    return [call.byToken(g, context, P)];
  },
  vjp(g, { inputs, attributes }, upstream) {
    // Tables are for caches, and no gradient flows through a cache.
    if (attributes.paged) throw new TypeError("Cannot differentiate attention through a table");
    const call = new Call(inputs, attributes);
    const { P, M, S, R, T, K, G, D, B, prefix, blocks } = call;
    const weights = call.weights(g);
    const split = reshape(g, upstream, [P * B, T, K * G, D]);
    const context = call.byKeyHead(g, split, P);
    const text = (x: Value) => prefix ? slice(g, x, -1, M, M + S) : x;
    const front = (x: Value) => slice(g, x, -1, 0, M);
    const [over, with_] = [{ transposeA: true }, { transposeB: true }];

    const byText = matmul(g, context, call.text(g, call.values), with_);
    const byWeights = prefix
      ? concat(g, [matmul(g, context, call.perStream(g, prefix.values), with_), byText], -1)
      : byText;
    const scores = softmaxGradient(g, weights, byWeights);

    const scale = D ** -0.5;
    const own = (x: Value, to: Value) =>
      reshape(g, unbroadcast(g, x, [blocks, B, K, ...x.shape.slice(3)]), to.shape);
    const queries = call.byKeyHead(g, call.q, blocks);
    const textScores = unbroadcast(g, text(scores), [blocks, B, K, G * T, S]);
    const dKeys = own(matmul(g, textScores, queries, { ...over, scale }), call.keys);
    const dValues = own(matmul(g, text(weights), context, over), call.values);
    const fromText = matmul(g, textScores, call.text(g, call.keys), { scale });
    const asQuery = (x: Value) => reshape(g, call.byToken(g, x, blocks), [R, T, K * G, D]);
    const unused = attributes.packed ? [undefined, undefined] : [undefined];
    if (!prefix) return [asQuery(fromText), dKeys, dValues, ...unused];

    const perStream = (x: Value) =>
      reshape(g, unbroadcast(g, x, [P, 1, K, M, D]), prefix.keys.shape);
    const fromPrefix = matmul(g, front(scores), call.perStream(g, prefix.keys), { scale });
    const dQueries = add(g, unbroadcast(g, fromPrefix, queries.shape), fromText);
    const dPrefixKeys = perStream(matmul(g, front(scores), queries, { ...over, scale }));
    const dPrefixValues = perStream(matmul(g, front(weights), context, over));
    return [asQuery(dQueries), dKeys, dValues, ...unused, dPrefixKeys, dPrefixValues];
  },
});

/** 0 where the slot is visible, else `HIDDEN`: [B, 1, 1, T, S] */
function visibleMask(g: Builder, { first, last }: Visible, S: number): Value {
  const [B, T] = last.shape as [number, number];
  const slots = iota(g, S);
  const shape = [B, 1, 1, T, 1];
  const [seen, hidden] = [constant(g, 0), constant(g, HIDDEN)];
  const before = select(g, lessEqual(g, slots, reshape(g, last, shape)), seen, hidden);
  if (!first) return before;
  return select(g, lessEqual(g, reshape(g, first, shape), slots), before, hidden);
}

/** Where among the B · S cells of a block of rows each visible slot lies, another if not: [B, S] */
function tableCells(g: Builder, { first, last, table }: Visible, S: number): Value {
  const B = table!.shape[0]!;
  const seen = max(g, visibleMask(g, { first, last }, S), 3); // by any query: [B, 1, 1, S]
  const isSeen = lessEqual(g, constant(g, 0), reshape(g, seen, [B, S]));
  const row = select(g, isSeen, table!, constant(g, 0, "i32"));
  return add(g, mul(g, row, constant(g, S, "i32")), iota(g, S));
}

/**
 * q [R, T, H, D], keys and values [R, K, S, D], visible [B, T], prefix [P, K, M, D]
 * → [P·B, T, H·D]; R is P·B, or B where the streams share their text.
 */
export function attention(
  g: Builder,
  inputs: { q: Value; keys: Value; values: Value; visible: Visible; prefix?: Prefix },
): Value {
  const { q, keys, values, visible: { first, last, table }, prefix } = inputs;
  const optional = [first, table, prefix?.keys, prefix?.values].filter((value) => !!value);
  return g.apply1(attentionOp, [q, keys, values, last, ...optional], {
    packed: !!first,
    paged: !!table,
  });
}
