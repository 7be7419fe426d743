/**
 * attention: grouped-query attention over text, after a learned prefix.
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
 * before the first and after the last that queries of a sequence see is ignored.
 *
 * Rows are stream-major (row = p·B + b) and the prefix is stored once per stream, not per row. Q,
 * k, v may have B rows instead of P·B. That is layer 0, where all streams still have equal text;
 * its scores are computed once and streams part only through their prefixes.
 *
 * The gradient is built on the softmax as the forward pass builds it, so that a device which expands
 * both computes it once.
 *
 * Kernel: forward/attention_split.
 */
import { unbroadcast } from "../graph/derivatives.ts";
import type { Op } from "../graph/program.ts";
import { type Attributes, formatType } from "../graph/types.ts";
import { concat, type Graph, type Value } from "../graph/value.ts";
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

/** Presence of the optional inputs after `last`, before those of a prefix. */
export interface AttentionAttributes extends Attributes {
  /** `first` */
  readonly packed: boolean;
  /** `table` */
  readonly paged: boolean;
}

/** Added to the score of a slot that a query must not see. Finite, so that no row becomes NaN. */
const HIDDEN = -1e30;

/** Sizes of one attention, and its inputs by name. */
export class AttentionCall {
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
    this.q = q;
    this.keys = keys;
    this.values = values;
    this.visible = { first, last, table };
    this.prefix = prefixKeys && { keys: prefixKeys, values: prefixValues! };
    const [R, T, H, D] = q.shape as [number, number, number, number];
    const [, K, S] = keys.shape as [number, number, number];
    this.R = R;
    this.T = T;
    this.D = D;
    this.K = K;
    this.S = S;
    this.B = last.shape[0]!;
    this.G = H / K;
    this.P = prefixKeys ? prefixKeys.shape[0]! : R / this.B;
    this.M = prefixKeys ? prefixKeys.shape[2]! : 0;
    this.blocks = R / this.B;
    const fits = keys.shape[0] === R && H % K === 0 && keys.shape[3] === D &&
      values.shape.join() === keys.shape.join() && (R === this.B || R === this.P * this.B) &&
      (!table || table.shape.join() === [this.B, S].join());
    if (!fits) throw new TypeError(`cannot attend from ${formatType(q)} to ${formatType(keys)}`);
  }

  /** The G query heads of one key head become G·T rows of one product: [rows, B, K, G·T, D]. */
  byKeyHead(x: Value, rows: number): Value {
    const { T, K, G, D, B } = this;
    const heads = x.reshape([rows * B, T, K, G, D]).transpose([0, 2, 3, 1, 4]);
    return heads.reshape([rows, B, K, G * T, D]);
  }

  /** Undoes `byKeyHead`: → [rows·B, T, H·D] */
  byToken(x: Value, rows: number): Value {
    const { T, K, G, D, B } = this;
    const split = x.reshape([rows * B, K, G, T, D]).transpose([0, 3, 1, 2, 4]);
    return split.reshape([rows * B, T, K * G * D]);
  }

  /** Keys or values of each sequence, [R, K, S, D] → [blocks, B, K, S, D] */
  text(x: Value): Value {
    const { B, K, S, D, blocks, visible: { table, ...seen } } = this;
    const split = x.reshape([blocks, B, K, S, D]);
    if (!table) return split;
    const cells = split.transpose([0, 1, 3, 2, 4]).reshape([blocks, B * S, K, D]);
    return cells.gather(tableCells({ ...seen, table }, S), 1).transpose([0, 1, 3, 2, 4]);
  }

  /** [P, K, M, D] → [P, 1, K, M, D] */
  perStream(x: Value): Value {
    return x.reshape([this.P, 1, this.K, this.M, this.D]);
  }

  /** True if the prefix joins keys, not scores: in training. A KV cache would be copied at each step. */
  get isJoined(): boolean {
    return !this.prefix || this.visible.first !== undefined;
  }

  /** Keys or values of all slots, the prefix first: [P, B, K, M + S, D] */
  joined(text: Value, prefix: Value | undefined): Value {
    const { P, B, K, S, M, D } = this;
    if (!prefix) return this.text(text);
    const parts = [[this.perStream(prefix), M], [this.text(text), S]] as const;
    return concat(parts.map(([part, slots]) => part.broadcast([P, B, K, slots, D])), 3);
  }

  /** Attention weights, the prefix first: [P, B, K, G·T, M + S] */
  weights(): Value {
    const { P, B, K, G, T, S, M } = this;
    return softmax({ x: this.scores() }).reshape([P, B, K, G * T, M + S]);
  }

  /** Masked scores, whose softmax the weights are: [P, B, K, G, T, M + S] */
  scores(): Value {
    const { P, B, K, G, T, S, M, D, blocks, prefix, isJoined } = this;
    const queries = this.byKeyHead(this.q, blocks), mask = visibleMask(this.visible, S);
    const scale = { transposeB: true, scale: D ** -0.5 };
    const shape = [P, B, K, G, T];
    if (isJoined) {
      const product = queries.matmul(this.joined(this.keys, prefix?.keys), scale);
      const seen = mask.graph.constant(0).broadcast([B, 1, 1, T, M]);
      return product.reshape([...shape, M + S]).add(M > 0 ? concat([seen, mask], -1) : mask);
    }
    const masked = queries.matmul(this.text(this.keys), scale)
      .reshape([blocks, B, K, G, T, S]).add(mask);
    const front = queries.matmul(this.perStream(prefix!.keys), scale).reshape([...shape, M]);
    return concat([front, blocks === P ? masked : masked.broadcast([...shape, S])], -1);
  }
}

/** The op; its optional inputs depend on an attribute, so `AttentionCall` names them. */
export const attentionOp: Op<AttentionAttributes> & Required<Pick<Op, "decompose">> = {
  name: "attention",
  infer(inputs: readonly Value[], attributes) {
    const { q, P, B, T, K, G, D } = new AttentionCall(inputs, attributes);
    return [{ dtype: q.dtype, shape: [P * B, T, K * G * D] }];
  },
  decompose(_: Graph, inputs: readonly Value[], attributes: AttentionAttributes) {
    const call = new AttentionCall(inputs, attributes);
    const { P, M, S, prefix, isJoined } = call;
    const weights = call.weights();
    if (isJoined) {
      return [call.byToken(weights.matmul(call.joined(call.values, prefix?.values)), P)];
    }
    const fromText = weights.slice(-1, M, M + S).matmul(call.text(call.values));
    const fromPrefix = weights.slice(-1, 0, M).matmul(call.perStream(prefix!.values));
    return [call.byToken(fromText.add(fromPrefix), P)];
  },
  vjp(_, { inputs, attributes }, upstream) {
    // Tables are for caches, and no gradient flows through a cache.
    if (attributes.paged) throw new TypeError("cannot differentiate attention through a table");
    const call = new AttentionCall(inputs, attributes);
    const { P, M, S, R, T, K, G, D, B, prefix, blocks } = call;
    const weights = call.weights();
    const context = call.byKeyHead(upstream.reshape([P * B, T, K * G, D]), P);
    const values = call.joined(call.values, prefix?.values);
    const scores = softmaxGradient(weights, context.matmul(values, { transposeB: true }));

    const scale = D ** -0.5;
    const queries = call.byKeyHead(call.q, blocks);
    const dQueries = scores.matmul(call.joined(call.keys, prefix?.keys), { scale });
    const toKeys = (x: Value) => x.matmul(queries, { transposeA: true, scale });
    const toValues = (x: Value) => x.matmul(context, { transposeA: true });
    const ofText = (x: Value) =>
      unbroadcast(prefix ? x.slice(3, M, M + S) : x, [blocks, B, K, S, D]).reshape([R, K, S, D]);
    const front = (x: Value) => x.slice(-1, 0, M);
    const ofPrefix = (x: Value) => unbroadcast(x, [P, 1, K, M, D]).reshape([P, K, M, D]);
    return [
      call.byToken(unbroadcast(dQueries, queries.shape), blocks).reshape([R, T, K * G, D]),
      ofText(toKeys(scores)),
      ofText(toValues(weights)),
      ...attributes.packed ? [undefined, undefined] : [undefined],
      ...prefix ? [ofPrefix(toKeys(front(scores))), ofPrefix(toValues(front(weights)))] : [],
    ];
  },
};

/** 0 where the slot is visible, else `HIDDEN`: [B, 1, 1, T, S] */
function visibleMask({ first, last }: Visible, S: number): Value {
  const [B, T] = last.shape as [number, number];
  const slots = last.graph.iota(S), shape = [B, 1, 1, T, 1];
  const after = last.reshape(shape).add(1).lessEqual(slots).cast("f32");
  if (!first) return after.mul(HIDDEN);
  const before = slots.lessEqual(first.reshape(shape).add(-1)).cast("f32");
  return after.add(before).mul(HIDDEN);
}

/** Returns the cell of each visible slot among the B · S of a block of rows, any if hidden: [B, S] */
function tableCells({ first, last, table }: Visible & { readonly table: Value }, S: number): Value {
  const seen = visibleMask({ first, last }, S).max(3); // by any query: [B, 1, 1, S]
  const isSeen = last.graph.constant(0).lessEqual(seen.reshape([table.shape[0]!, S]));
  const row = isSeen.select(table, last.graph.constant(0, "i32"));
  return row.mul(S).add(last.graph.iota(S));
}

/**
 * q [R, T, H, D], keys and values [R, K, S, D], visible [B, T], prefix [P, K, M, D]
 * → [P·B, T, H·D]; R is P·B, or B where the streams share their text.
 */
export function attention(
  inputs: { q: Value; keys: Value; values: Value; visible: Visible; prefix?: Prefix },
): Value {
  const { q, keys, values, visible: { first, last, table }, prefix } = inputs;
  const optional = [first, table, prefix?.keys, prefix?.values].filter((value) => !!value);
  return q.graph.apply1(attentionOp, [q, keys, values, last, ...optional], {
    packed: !!first,
    paged: !!table,
  });
}
