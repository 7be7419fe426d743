/**
 * One or more small programs per op, with inputs that make mistakes visible: sizes that differ from
 * each other, broadcasting, several rows and streams.
 */
import type { Builder } from "../../../core/graph/builder.ts";
import { DERIVATIVES } from "../../../core/graph/derivatives.ts";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount } from "../../../core/graph/types.ts";
import { concat, type Value } from "../../../core/graph/value.ts";
import { adamw } from "../../../core/ops/adamw.ts";
import { silu, swiglu } from "../../../core/ops/activation.ts";
import { mixStreams, streamWeights } from "../../../core/ops/aggregate.ts";
import { attention } from "../../../core/ops/attention.ts";
import { causalConv, packedCausalConv } from "../../../core/ops/causal_conv.ts";
import { embedding } from "../../../core/ops/embedding.ts";
import { gatedDelta, packedGatedDelta } from "../../../core/ops/gated_delta.ts";
import { linear } from "../../../core/ops/linear.ts";
import { repeatStreams } from "../../../core/ops/repeat_streams.ts";
import { rmsNorm } from "../../../core/ops/rms_norm.ts";
import { rope } from "../../../core/ops/rope.ts";
import { softmax } from "../../../core/ops/softmax.ts";
import { tokenLogprobs } from "../../../core/ops/token_logprobs.ts";
import { unitLowerInverse } from "../../../core/ops/unit_lower_inverse.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { f32, type InputShape, programOf } from "../programs.ts";

/** A program over one op, and what is special about its inputs. */
export interface OpCase {
  /** Name of the op and what the case is about. */
  readonly name: string;
  readonly op: string;
  readonly program: Program;
  /** The program with a scalar output: a weighted sum of the result, so that no gradient is constant. */
  scalar(): Program;
  /** Exclusive upper bound of the integers in each i32 input. */
  readonly bounds: Readonly<Record<string, number>>;
  /** Inputs that it is differentiated by. */
  readonly variables: readonly string[];
}

/** Shape of an input; integers lie below a bound. */
type CaseShape = InputShape & { readonly below?: number };

const below = (bound: number, ...shape: number[]) => ({ i32: shape, below: bound });

function opCase<N extends string>(
  name: string,
  shapes: Readonly<Record<N, CaseShape>>,
  build: (inputs: Readonly<Record<N, Value>>, g: Builder) => Value,
  constants: readonly string[] = [],
): OpCase {
  const given = Object.entries<CaseShape>(shapes);
  const bounds = Object.fromEntries(given.map(([name, { below = 0 }]) => [name, below]));
  const [op] = name.split(":") as [string];
  const scalar = () =>
    programOf(op, shapes, (inputs, g) => {
      const result = build(inputs, g);
      const product = result.mul(g.input("weights", f32(...result.shape)));
      const sum = product.reshape([elementCount(result.shape)]).sum(0);
      return { result, scalar: sum.reshape([]) };
    });
  const variables = given.filter(([name, shape]) => !("i32" in shape || constants.includes(name)));
  const names = variables.map(([name]) => name);
  return { name, op, program: programOf(op, shapes, build), scalar, bounds, variables: names };
}

const unary = (op: string, apply: (x: Value) => Value) =>
  opCase(`${op}: elementwise`, { x: [3, 5] }, ({ x }) => apply(x));

/** For functions that are only defined above zero. */
const unaryOfSquare = (op: string, apply: (x: Value) => Value) =>
  opCase(`${op}: of positive numbers`, { x: [3, 5] }, ({ x }) => apply(x.mul(x).add(0.1)));

/** Angles as large as a position: whole numbers, so that f32 inputs are exact. */
const ofPosition = (op: string, apply: (x: Value) => Value) =>
  opCase(`${op}: of positions`, { x: below(40_000, 50) }, ({ x }) => apply(x.cast("f32")));

const binary = (op: string, apply: (a: Value, b: Value) => Value) => [
  opCase(`${op}: equal shapes`, { a: [3, 5], b: [3, 5] }, ({ a, b }) => apply(a, b)),
  opCase(`${op}: broadcast`, { a: [4, 1, 5], b: [3, 1] }, ({ a, b }) => apply(a, b)),
];

const attentionCase = (
  about: string,
  B: number,
  P: number,
  { shared = false, prefix = true, packed = false, paged = false },
) => {
  const [T, S, H, K, D, M] = [3, 7, 6, 2, 4, 5];
  const R = shared ? B : P * B;
  const shapes: Record<string, CaseShape> = {
    ...{ q: [R, T, H, D], keys: [R, K, S, D], values: [R, K, S, D], last: below(S, B, T) },
    ...(packed ? { first: below(S, B, T) } : {}),
    ...(paged ? { table: below(B, B, S) } : {}),
    ...(prefix ? { prefixKeys: [P, K, M, D], prefixValues: [P, K, M, D] } : {}),
  };
  return opCase(`attention: ${about}`, shapes, ({ q, keys, values, last, ...x }) =>
    attention({
      ...{ q: q!, keys: keys!, values: values!, visible: { ...x, last: last! } },
      ...(prefix ? { prefix: { keys: x.prefixKeys!, values: x.prefixValues! } } : {}),
    }), paged ? Object.keys(shapes) : []);
};

/** Keys are short and decays below 1, as in a model, so that nothing grows. */
const gatedDeltaCase = (
  about: string,
  [B, P, T, H]: readonly [number, number, number, number],
  { packed = false, result = 0, constants = [] as readonly string[] } = {},
) => {
  const [Dk, Dv] = [3, 2], R = P * B;
  const shapes: Record<string, CaseShape> = {
    ...{ q: [R, T, H, Dk], k: [R, T, H, Dk], v: [R, T, H, Dv], decay: [R, T, H], beta: [R, T, H] },
    state: [R, H, Dk, Dv],
    ...(packed ? { first: below(T, B, T) } : {}),
  };
  return opCase(`${packed ? "packed_" : ""}gated_delta: ${about}`, shapes, (x) => {
    const inputs = {
      ...{ q: x.q!, k: x.k!.mul(0.3), v: x.v!, state: x.state! },
      decay: x.decay!.mul(x.decay!).mul(-0.3),
      beta: x.beta!.sigmoid(),
    };
    if (packed) return packedGatedDelta({ ...inputs, first: x.first! });
    return gatedDelta.all(inputs, {})[result]!;
  }, constants);
};

/** All cases. */
export const OP_CASES: readonly OpCase[] = [
  ...binary("add", (a, b) => a.add(b)),
  ...binary("sub", (a, b) => a.sub(b)),
  ...binary("mul", (a, b) => a.mul(b)),
  ...binary("div", (a, b) => a.div(b.mul(b).add(0.5))),
  opCase(
    "less_equal: integers, then select",
    { a: below(5, 4, 1), b: below(5, 6), x: [4, 6], y: [] },
    ({ a, b, x, y }) => a.lessEqual(b).select(x, y),
  ),
  opCase(
    "select: broadcast branches",
    { a: [2, 3], b: [3], x: [2, 1], y: [3] },
    ({ a, b, x, y }) => a.lessEqual(b).select(x, y),
    ["a", "b"],
  ),
  unary("exp", (x) => x.exp()),
  unaryOfSquare("log", (x) => x.log()),
  unaryOfSquare("sqrt", (x) => x.sqrt()),
  ofPosition("sin", (x) => x.sin()),
  ofPosition("cos", (x) => x.cos()),
  unary("sigmoid", (x) => x.sigmoid()),
  opCase("sin: of numbers", { x: [5] }, ({ x }) => x.sin()),
  opCase("cos: of numbers", { x: [5] }, ({ x }) => x.cos()),
  opCase("cast: i32 to f32", { x: below(100, 4) }, ({ x }) => x.cast("f32")),
  opCase("constant: list", { x: [3] }, ({ x }, g) => x.mul(g.constant([1, -2, 0.5]))),
  opCase("iota: as numbers", { x: [4] }, ({ x }, g) => x.add(g.iota(4).cast("f32"))),
  ...[0, 1, 2].flatMap((axis) => [
    opCase(`sum: axis ${axis}`, { x: [2, 3, 4] }, ({ x }) => x.sum(axis)),
    opCase(`max: axis ${axis}`, { x: [2, 3, 4] }, ({ x }) => x.max(axis)),
    opCase(`argmax: axis ${axis}`, { x: [2, 3, 4] }, ({ x }) => x.argmax(axis)),
  ]),
  opCase("matmul: plain", { a: [3, 4], b: [4, 5] }, ({ a, b }) => a.matmul(b)),
  opCase(
    "matmul: right side transposed, batch broadcast",
    { a: [2, 1, 3, 4], b: [5, 6, 4] },
    ({ a, b }) => a.matmul(b, { transposeB: true }),
  ),
  opCase(
    "matmul: left side transposed",
    { a: [2, 4, 3], b: [2, 4, 5] },
    ({ a, b }) => a.matmul(b, { transposeA: true }),
  ),
  opCase(
    "matmul: both transposed",
    { a: [4, 3], b: [5, 4] },
    ({ a, b }) => a.matmul(b, { transposeA: true, transposeB: true }),
  ),
  opCase("reshape: of an input", { x: [2, 6] }, ({ x }) => x.reshape([3, 4])),
  opCase("transpose: three axes", { x: [2, 3, 4] }, ({ x }) => x.transpose([2, 0, 1])),
  opCase("broadcast: new and unit axes", { x: [3, 1] }, ({ x }) => x.broadcast([2, 3, 4])),
  opCase("slice: head", { x: [2, 5] }, ({ x }) => x.slice(1, 0, 3)),
  opCase("slice: middle", { x: [5, 2] }, ({ x }) => x.slice(0, 1, 4)),
  opCase("slice: tail", { x: [2, 5] }, ({ x }) => x.slice(-1, 2, 5)),
  opCase("concat: inner axis", { a: [2, 1, 3], b: [2, 2, 3] }, ({ a, b }) => concat([a, b, a], 1)),
  opCase("gather: inner axis", { x: [2, 5, 3], at: below(5, 4) }, ({ x, at }) => x.gather(at, 1)),
  opCase("take_last: rows", { x: [4, 6], at: below(6, 4) }, ({ x, at }) => x.takeLast(at)),
  opCase(
    "scatter_add: repeated indices, first axis",
    { x: [4, 3], at: below(4, 2, 5), y: [2, 5, 3] },
    ({ x, at, y }) => x.scatterAdd(at, y, 0),
  ),
  opCase(
    "scatter_add: repeated indices, inner axis",
    { x: [2, 4, 3], at: below(4, 6), y: [2, 6, 3] },
    ({ x, at, y }) => x.scatterAdd(at, y, 1),
  ),
  opCase(
    "add_last: rows",
    { x: [4, 6], at: below(6, 4), y: [4] },
    ({ x, at, y }) => x.addLast(at, y),
  ),
  opCase(
    "recompute: under a view",
    { x: [2, 6] },
    ({ x }) => x.recompute(1).reshape([12]).add(x.reshape([12])),
  ),
  opCase("embedding: two axes of ids", { table: [7, 3], ids: below(7, 2, 4) }, (x) => embedding(x)),
  opCase("linear: no bias", { x: [3, 5], weight: [4, 5] }, (x) => linear(x)),
  opCase("linear: bias", { x: [3, 5], weight: [4, 5], bias: [4] }, (x) => linear(x)),
  opCase("rms_norm: rows", { x: [3, 8], weight: [8] }, (x) => rmsNorm(x, { epsilon: 1e-6 })),
  opCase("rms_norm: heads", { x: [2, 3, 2, 8], weight: [8] }, (x) => rmsNorm(x, { epsilon: 1e-3 })),
  opCase(
    "rope: halves",
    { x: [2, 3, 16], cos: [2, 3, 4], sin: [2, 3, 4] },
    (x) => rope(x, { heads: 2 }),
    ["cos", "sin"],
  ),
  opCase("softmax: last axis", { x: [2, 3, 5] }, (x) => softmax(x)),
  unary("silu", (x) => silu({ x })),
  opCase("swiglu: rows", { gate: [3, 6], up: [3, 6] }, (x) => swiglu(x)),
  attentionCase("plain", 2, 1, { prefix: false }),
  attentionCase("per-stream rows behind a prefix", 2, 3, {}),
  attentionCase("shared rows behind a prefix", 2, 3, { shared: true }),
  attentionCase("several documents in a row", 2, 2, { packed: true }),
  attentionCase("through a table", 3, 1, { prefix: false, paged: true }),
  attentionCase("per-stream rows through a table", 3, 2, { packed: true, paged: true }),
  attentionCase("shared rows through a table", 2, 3, { shared: true, paged: true }),
  opCase(
    "causal_conv: behind a state",
    { x: [3, 5, 4], weight: [4, 1, 3], past: [3, 4, 2] },
    (x) => causalConv(x),
  ),
  opCase(
    "packed_causal_conv: several documents in a row",
    { x: [4, 7, 3], weight: [3, 1, 4], past: [4, 3, 3], first: below(7, 2, 7) },
    (x) => packedCausalConv(x),
  ),
  opCase(
    "unit_lower_inverse: seven rows",
    { x: [2, 7, 7] },
    ({ x }) => unitLowerInverse({ x: x.mul(0.3) }),
  ),
  gatedDeltaCase("one token", [2, 2, 1, 2]),
  gatedDeltaCase("one chunk", [2, 1, 5, 2]),
  gatedDeltaCase("the state behind a chunk", [2, 1, 5, 2], { result: 1, constants: ["q"] }),
  gatedDeltaCase("two chunks", [1, 1, 66, 1], { constants: ["q", "k", "v", "decay", "beta"] }),
  gatedDeltaCase("several documents in a row", [2, 2, 5, 1], { packed: true }),
  opCase("repeat_streams: rows", { x: [2, 3] }, ({ x }) => repeatStreams(x, 3)),
  opCase(
    "stream_weights: smoothed",
    { scores: [4, 3] },
    (x) => streamWeights(x, { smoothing: 0.1 }),
  ),
  opCase(
    "stream_weights: as they are",
    { scores: [4, 3] },
    (x) => streamWeights(x, { smoothing: 0 }),
  ),
  opCase(
    "mix_streams: several tokens",
    { x: [3, 4, 5], w: [4, 3] },
    ({ x, w }) => mixStreams({ x, weights: w }),
  ),
  ...(["parameter", "m", "v"] as const).map((which, at) =>
    opCase(
      `adamw: new ${which}`,
      {
        ...{ parameter: [5], m: [5], v: [5], gradient: [5] },
        ...{ scale: [], decay: [], stepSize: [], correction: [] },
      },
      ({ v, correction, ...others }) => {
        // Squares of gradients are not negative, nor is their correction below one.
        const positive = { v: v.mul(v).add(1), correction: correction.mul(correction).add(1) };
        const attributes = { beta1: 0.9, beta2: 0.95, epsilon: 1e-8 };
        return adamw.all({ ...others, ...positive }, attributes)[at]!;
      },
      {
        parameter: [],
        m: ["parameter", "v", "decay", "stepSize", "correction"],
        v: ["parameter", "m", "decay", "stepSize", "correction"],
      }[which],
    )
  ),
  opCase(
    "token_logprobs: large logits",
    { x: [3, 9], at: below(9, 3) },
    ({ x, at }) => tokenLogprobs({ logits: x.mul(50), targets: at }),
  ),
];

/** All cases with a derivative. */
export const GRADIENT_CASES: readonly OpCase[] = OP_CASES.filter((one) => {
  const isFloat = one.program.outputs.get("result")!.dtype === "f32";
  const hasNone = one.op in DERIVATIVES && !DERIVATIVES[one.op];
  return !hasNone && isFloat && one.variables.length > 0;
});

/** Random values for every input of a case. */
export function randomInputs({ program, bounds }: OpCase): Map<string, number[]> {
  const random = new RandomStream(7, program.name);
  return new Map([...program.inputs].map(([name, { dtype, shape }]) => {
    const draw = dtype === "i32" ? () => random.integer(bounds[name]!) : () => random.normal();
    return [name, Array.from({ length: elementCount(shape) }, draw)];
  }));
}
