/**
 * gated_delta: the gated delta rule, a linear attention with a state S [Dk, Dv] per head
 * (Yang, Kautz, Hatamizadeh 2024, equation 10).
 *
 *   S ← e^g S;  S ← S + k (β (v − Sᵀ k))ᵀ;  o = Sᵀ q
 *
 * The decomposition handles chunks of C tokens by matrix products (section 3.3 there). With Γ the decay
 * from the start of a chunk to each token and D[i, j] = Γ[i] / Γ[j] for j ≤ i:
 *
 *   A = (β k kᵀ ∘ D) below its diagonal,  U = (I + A)⁻¹ (β v − β Γ k S)
 *   o = Γ q S + (q kᵀ ∘ D) U,             S ← Γ[C] S + (k ∘ Γ[C] / Γ)ᵀ U
 *
 * so that only the state goes from one chunk to the next. In a packed row every document starts from
 * `state`: `first` says in which slot that of a token begins, and a token whose document begins in its own
 * chunk reads `state` instead of what the chunk before left.
 *
 * A token with g = 0 and β = 0 leaves the state as it is.
 *
 * Kernel: none of ours; ONNX Runtime has one of rows that are not packed.
 */
import { formatType, type TensorType } from "../graph/types.ts";
import { concat, type Value } from "../graph/value.ts";
import { modelOp } from "./define.ts";
import { repeatStreams } from "./repeat_streams.ts";
import { unitLowerInverse } from "./unit_lower_inverse.ts";

/** Tokens of a chunk. */
const CHUNK = 64;

/** Logarithm of the decay between tokens that do not see one another; finite, so that nothing becomes NaN. */
const HIDDEN = -1e30;

const INPUTS = ["q", "k", "v", "decay", "beta", "state"] as const;

type Inputs<T> = Readonly<Record<typeof INPUTS[number], T>>;

/**
 * q, k [R, T, H, Dk], v [R, T, H, Dv], decay g and beta [R, T, H], state [R, H, Dk, Dv]
 * → o [R, T, H, Dv] and the state after the last token [R, H, Dk, Dv]
 */
export const gatedDelta = modelOp()({
  name: "gated_delta",
  inputs: INPUTS,
  infer(inputs) {
    requireFit(inputs);
    return [inputs.v, inputs.state];
  },
  decompose: (inputs) => inChunks(inputs),
});

/** The same for rows of several documents, all of which start from `state`: first [B, T] i32 → o */
export const packedGatedDelta = modelOp()({
  name: "packed_gated_delta",
  inputs: [...INPUTS, "first"],
  infer(inputs) {
    requireFit(inputs);
    return inputs.v;
  },
  decompose: (inputs) => inChunks(inputs, inputs.first)[0],
  recomputes: true,
});

function requireFit({ q, k, v, decay, beta, state }: Inputs<TensorType>): void {
  const [R, T, H, Dk] = q.shape;
  const Dv = v.shape[3];
  const fits = k.shape.join() === q.shape.join() && v.shape.join() === [R, T, H, Dv].join() &&
    decay.shape.join() === [R, T, H].join() && beta.shape.join() === [R, T, H].join() &&
    state.shape.join() === [R, H, Dk, Dv].join();
  if (!fits) throw new TypeError(`cannot read ${formatType(state)} by ${formatType(q)}`);
}

/** Outputs, and the state after the last token. */
function inChunks(
  { q, k, v, decay, beta, state }: Inputs<Value>,
  first?: Value,
): readonly [o: Value, state: Value] {
  const chunks = new Chunks(q.shape[1]!);
  const masks = chunks.masks(q, first);
  const [queries, keys, values] = [q, k, v].map((x) => chunks.split(x)) as [Value, Value, Value];
  const [g, b] = [decay, beta].map((x) => chunks.split(column(x))) as [Value, Value];

  const decays = masks.seen.matmul(g); // logarithms, [R, H, N, C, 1]
  const gamma = decays.exp();
  const between = masks.isSeen.select(decays.sub(decays.transpose([0, 1, 2, 4, 3])), HIDDEN).exp();
  const weighted = keys.mul(b);
  const below = weighted.matmul(keys, { transposeB: true }).mul(between).mul(masks.below);
  const inverse = unitLowerInverse({ x: below });
  const fromValues = inverse.matmul(values.mul(b));
  const fromKeys = inverse.matmul(masks.bySource(weighted.mul(gamma)));
  const scores = queries.matmul(keys, { transposeB: true }).mul(between);
  const read = masks.bySource(queries.mul(gamma));
  const last = chunks.size - 1;
  const toEnd = between.slice(3, last, last + 1).transpose([0, 1, 2, 4, 3]); // [R, H, N, C, 1]
  const added = keys.mul(toEnd);
  const kept = gamma.slice(3, last, last + 1); // [R, H, N, 1, 1]

  let current = state;
  const outputs = Array.from({ length: chunks.count }, (_, n) => {
    const at = (x: Value) => chunks.at(x, n);
    const source = masks.sources(current, state);
    const update = at(fromValues).sub(at(fromKeys).matmul(source));
    const output = at(read).matmul(source).add(at(scores).matmul(update));
    const before = masks.before(current, state, n);
    current = before.mul(at(kept)).add(at(added).matmul(update, { transposeA: true }));
    return output.reshape([...output.shape.slice(0, 2), 1, ...output.shape.slice(2)]);
  });
  return [chunks.join(outputs.length === 1 ? outputs[0]! : concat(outputs, 2)), current];
}

/** x [R, T, H] → [R, T, H, 1] */
function column(x: Value): Value {
  return x.reshape([...x.shape, 1]);
}

/** Masks of a sequence in chunks; where nothing is packed all tokens see back to the start of their chunk. */
interface Masks {
  /** 1 where token i sees token j, [R or 1, 1, N or 1, C, C]; and the same as bool. */
  readonly seen: Value;
  readonly isSeen: Value;
  /** 1 below the diagonal, [C, C]. */
  readonly below: Value;
  /** Puts a row [.., D] in the half [.., 2 D] of the state it reads, where there are two. */
  bySource(x: Value): Value;
  /** The states that `bySource` distinguishes, one above the other. */
  sources(current: Value, initial: Value): Value;
  /** The state that the last token of chunk n read. */
  before(current: Value, initial: Value, n: number): Value;
}

/** Cuts sequences into chunks; the last one is filled up with tokens that change nothing. */
class Chunks {
  readonly size: number;
  readonly count: number;
  readonly #T: number;

  constructor(T: number) {
    this.#T = T;
    this.size = Math.min(CHUNK, T);
    this.count = Math.ceil(T / this.size);
  }

  /** [R, T, H, D] → [R, H, N, C, D] */
  split(x: Value): Value {
    const [R, , H, D] = x.shape as [number, number, number, number];
    const filled = this.#fill(x);
    return filled.reshape([R, this.count, this.size, H, D]).transpose([0, 3, 1, 2, 4]);
  }

  /** Undoes `split`. */
  join(x: Value): Value {
    const [R, H, N, C, D] = x.shape as [number, number, number, number, number];
    return x.transpose([0, 2, 3, 1, 4]).reshape([R, N * C, H, D]).slice(1, 0, this.#T);
  }

  /** Chunk n: [R, H, N, C, D] → [R, H, C, D] */
  at(x: Value, n: number): Value {
    const [R, H, , C, D] = x.shape as [number, number, number, number, number];
    return x.slice(2, n, n + 1).reshape([R, H, C, D]);
  }

  masks(q: Value, first: Value | undefined): Masks {
    const { size: C } = this;
    const places = q.graph.iota(C);
    const isCausal = places.lessEqual(places.reshape([C, 1]));
    const isBelow = places.add(1).lessEqual(places.reshape([C, 1]));
    const below = isBelow.select(1, 0);
    if (first) return this.#packed(q, first, isCausal, below);
    return {
      seen: isCausal.select(1, 0),
      isSeen: isCausal,
      below,
      bySource: (x) => x,
      sources: (current) => current,
      before: (current) => current,
    };
  }

  #packed(q: Value, first: Value, isCausal: Value, below: Value): Masks {
    const { size: C, count: N } = this;
    const B = first.shape[0]!, P = q.shape[0]! / B;
    const slots = q.graph.iota(N * C).cast("f32");
    const from = this.#fill(first.cast("f32")).reshape([B, 1, N, C, 1]);
    const isInside = from.lessEqual(slots.reshape([N, 1, C]));
    const own = isCausal.select(isInside.select(1, 0), 0);
    const seen = repeatStreams(own, P);
    const starts = slots.reshape([N, C, 1]).slice(1, 0, 1);
    const isNew = repeatStreams(starts.lessEqual(from).select(1, 0), P); // [R, 1, N, C, 1]
    const isOld = isNew.mul(-1).add(1);
    const isLastNew = isNew.slice(3, C - 1, C);
    return {
      seen,
      isSeen: q.graph.constant(1).lessEqual(seen),
      below,
      bySource: (x) => concat([x.mul(isOld), x.mul(isNew)], -1),
      sources: (current, initial) => concat([current, initial], 2),
      before: (current, initial, n) => {
        const share = this.at(isLastNew, n);
        return current.add(initial.sub(current).mul(share));
      },
    };
  }

  /** Zeros after the last token, up to a whole number of chunks. */
  #fill(x: Value): Value {
    const missing = this.count * this.size - this.#T;
    if (missing === 0) return x;
    const shape = x.shape.map((size, axis) => axis === 1 ? missing : size);
    return concat([x, x.graph.constant(0).broadcast(shape)], 1);
  }
}
