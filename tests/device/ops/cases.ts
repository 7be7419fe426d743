/**
 * One or more small programs per op, with inputs that make mistakes visible: sizes that differ from
 * each other, broadcasting, several rows and streams.
 */
import { Builder } from "../../../core/graph/builder.ts";
import type { Program } from "../../../core/graph/program.ts";
import { type DType, elementCount, type Shape } from "../../../core/graph/types.ts";
import { concat, type Value } from "../../../core/graph/value.ts";
import { adamw } from "../../../core/ops/adamw.ts";
import { silu, swiglu } from "../../../core/ops/activation.ts";
import { mixStreams, streamWeights } from "../../../core/ops/aggregate.ts";
import { attention } from "../../../core/ops/attention.ts";
import { embedding } from "../../../core/ops/embedding.ts";
import { linear } from "../../../core/ops/linear.ts";
import { repeatStreams } from "../../../core/ops/repeat_streams.ts";
import { rmsNorm } from "../../../core/ops/rms_norm.ts";
import { rope } from "../../../core/ops/rope.ts";
import { softmax } from "../../../core/ops/softmax.ts";
import { tokenLogprobs } from "../../../core/ops/token_logprobs.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { Device, HostArray } from "../../../core/runtime/device.ts";

/** A program over one op, and what is special about its inputs. */
export interface OpCase {
  /** Name of the op and what the case is about. */
  readonly name: string;
  readonly op: string;
  readonly program: Program;
  /** Exclusive upper bound of the integers in each i32 input. */
  readonly bounds: Readonly<Record<string, number>>;
  /** Inputs through which no gradient passes. */
  readonly constants: readonly string[];
}

type Inputs = Readonly<Record<string, Value>>;

function opCase(
  op: string,
  about: string,
  shapes: Readonly<Record<string, Shape | { readonly i32: Shape; readonly below: number }>>,
  build: (inputs: Inputs, g: Builder) => Value,
  constants: readonly string[] = [],
): OpCase {
  const g = new Builder(op);
  const bounds: Record<string, number> = {};
  const inputs = Object.fromEntries(
    Object.entries(shapes).map(([name, type]) => {
      if (!("i32" in type)) return [name, g.input(name, { dtype: "f32" as DType, shape: type })];
      bounds[name] = type.below;
      return [name, g.input(name, { dtype: "i32" as DType, shape: type.i32 })];
    }),
  );
  g.output("result", build(inputs, g));
  return { name: `${op}: ${about}`, op, program: g.build(), bounds, constants };
}

const unary = (op: string, apply: (x: Value) => Value) =>
  opCase(op, "elementwise", { x: [3, 5] }, ({ x }) => apply(x!));

/** For functions that are only defined above zero. */
const unaryOfSquare = (op: string, apply: (x: Value) => Value) =>
  opCase(
    op,
    "of positive numbers",
    { x: [3, 5] },
    ({ x }) => apply(x!.mul(x!).add(0.1)),
  );

/** Angles as large as a position: whole numbers, so that f32 inputs are exact. */
const ofPosition = (op: string, apply: (x: Value) => Value) =>
  opCase(
    op,
    "of positions",
    { x: { i32: [50], below: 40_000 } },
    ({ x }) => apply(x!.cast("f32")),
  );

const binary = (op: string, apply: (a: Value, b: Value) => Value) => [
  opCase(op, "equal shapes", { a: [3, 5], b: [3, 5] }, ({ a, b }) => apply(a!, b!)),
  opCase(op, "broadcast", { a: [4, 1, 5], b: [3, 1] }, ({ a, b }) => apply(a!, b!)),
];

const attentionCase = (
  about: string,
  B: number,
  P: number,
  { shared = false, prefix = true, packed = false, paged = false },
) => {
  const [T, S, H, K, D, M] = [3, 7, 6, 2, 4, 5];
  const R = shared ? B : P * B;
  const shapes = {
    q: [R, T, H, D],
    keys: [R, K, S, D],
    values: [R, K, S, D],
    positions: { i32: [B, T], below: S },
    ...(packed ? { first: { i32: [B, T], below: S } } : {}),
    ...(paged ? { table: { i32: [B, S], below: B } } : {}),
    ...(prefix ? { prefixKeys: [P, K, M, D], prefixValues: [P, K, M, D] } : {}),
  };
  return opCase("attention", about, shapes, (x) =>
    attention({
      q: x.q!,
      keys: x.keys!,
      values: x.values!,
      visible: { last: x.positions!, first: x.first, table: x.table },
      ...(prefix ? { prefix: { keys: x.prefixKeys!, values: x.prefixValues! } } : {}),
    }), paged ? Object.keys(shapes) : []);
};

/** All cases. */
export const OP_CASES: readonly OpCase[] = [
  ...binary("add", (a, b) => a.add(b)),
  ...binary("sub", (a, b) => a.sub(b)),
  ...binary("mul", (a, b) => a.mul(b)),
  ...binary("div", (a, b) => a.div(b.mul(b).add(0.5))),
  opCase(
    "less_equal",
    "integers, then select",
    { a: { i32: [4, 1], below: 5 }, b: { i32: [6], below: 5 }, x: [4, 6], y: [] },
    ({ a, b, x, y }) => a!.lessEqual(b!).select(x!, y!),
  ),
  opCase(
    "select",
    "broadcast branches",
    { a: [2, 3], b: [3], x: [2, 1], y: [3] },
    ({ a, b, x, y }) => a!.lessEqual(b!).select(x!, y!),
    ["a", "b"],
  ),
  unary("exp", (x) => x.exp()),
  unaryOfSquare("log", (x) => x.log()),
  unaryOfSquare("sqrt", (x) => x.sqrt()),
  ofPosition("sin", (x) => x.sin()),
  ofPosition("cos", (x) => x.cos()),
  unary("sigmoid", (x) => x.sigmoid()),
  opCase("sin", "of numbers", { x: [5] }, ({ x }) => x!.sin()),
  opCase("cos", "of numbers", { x: [5] }, ({ x }) => x!.cos()),
  opCase("cast", "i32 to f32", { x: { i32: [4], below: 100 } }, ({ x }) => x!.cast("f32")),
  opCase("constant", "list", { x: [3] }, ({ x }, g) => x!.mul(g.constant([1, -2, 0.5]))),
  opCase(
    "iota",
    "as numbers",
    { x: [4] },
    ({ x }, g) => x!.add(g.iota(4).cast("f32")),
  ),
  ...[0, 1, 2].flatMap((axis) => [
    opCase("sum", `axis ${axis}`, { x: [2, 3, 4] }, ({ x }) => x!.sum(axis)),
    opCase("max", `axis ${axis}`, { x: [2, 3, 4] }, ({ x }) => x!.max(axis)),
    opCase("argmax", `axis ${axis}`, { x: [2, 3, 4] }, ({ x }) => x!.argmax(axis)),
  ]),
  opCase("matmul", "plain", { a: [3, 4], b: [4, 5] }, ({ a, b }) => a!.matmul(b!)),
  opCase(
    "matmul",
    "right side transposed, batch broadcast",
    { a: [2, 1, 3, 4], b: [5, 6, 4] },
    ({ a, b }) => a!.matmul(b!, { transposeB: true }),
  ),
  opCase(
    "matmul",
    "left side transposed",
    { a: [2, 4, 3], b: [2, 4, 5] },
    ({ a, b }) => a!.matmul(b!, { transposeA: true }),
  ),
  opCase(
    "matmul",
    "both transposed",
    { a: [4, 3], b: [5, 4] },
    ({ a, b }) => a!.matmul(b!, { transposeA: true, transposeB: true }),
  ),
  opCase("reshape", "of an input", { x: [2, 6] }, ({ x }) => x!.reshape([3, 4])),
  opCase("transpose", "three axes", { x: [2, 3, 4] }, ({ x }) => x!.transpose([2, 0, 1])),
  opCase(
    "broadcast",
    "new and unit axes",
    { x: [3, 1] },
    ({ x }) => x!.broadcast([2, 3, 4]),
  ),
  opCase("slice", "head", { x: [2, 5] }, ({ x }) => x!.slice(1, 0, 3)),
  opCase("slice", "middle", { x: [5, 2] }, ({ x }) => x!.slice(0, 1, 4)),
  opCase("slice", "tail", { x: [2, 5] }, ({ x }) => x!.slice(-1, 2, 5)),
  opCase(
    "concat",
    "inner axis",
    { a: [2, 1, 3], b: [2, 2, 3] },
    ({ a, b }) => concat([a!, b!, a!], 1),
  ),
  opCase(
    "gather",
    "inner axis",
    { x: [2, 5, 3], at: { i32: [4], below: 5 } },
    ({ x, at }) => x!.gather(at!, 1),
  ),
  opCase(
    "take_last",
    "rows",
    { x: [4, 6], at: { i32: [4], below: 6 } },
    ({ x, at }) => x!.takeLast(at!),
  ),
  opCase(
    "scatter_add",
    "repeated indices, first axis",
    { x: [4, 3], at: { i32: [2, 5], below: 4 }, y: [2, 5, 3] },
    ({ x, at, y }) => x!.scatterAdd(at!, y!, 0),
  ),
  opCase(
    "scatter_add",
    "repeated indices, inner axis",
    { x: [2, 4, 3], at: { i32: [6], below: 4 }, y: [2, 6, 3] },
    ({ x, at, y }) => x!.scatterAdd(at!, y!, 1),
  ),
  opCase(
    "add_last",
    "rows",
    { x: [4, 6], at: { i32: [4], below: 6 }, y: [4] },
    ({ x, at, y }) => x!.addLast(at!, y!),
  ),
  opCase(
    "recompute",
    "under a view",
    { x: [2, 6] },
    ({ x }) => x!.recompute(1).reshape([12]).add(x!.reshape([12])),
  ),
  opCase(
    "embedding",
    "two axes of ids",
    { table: [7, 3], ids: { i32: [2, 4], below: 7 } },
    ({ table, ids }) => embedding({ table: table!, ids: ids! }),
  ),
  opCase(
    "linear",
    "no bias",
    { x: [3, 5], w: [4, 5] },
    ({ x, w }) => linear({ x: x!, weight: w! }),
  ),
  opCase(
    "linear",
    "bias",
    { x: [3, 5], w: [4, 5], b: [4] },
    ({ x, w, b }) => linear({ x: x!, weight: w!, bias: b! }),
  ),
  opCase(
    "rms_norm",
    "rows",
    { x: [3, 8], w: [8] },
    ({ x, w }) => rmsNorm({ x: x!, weight: w! }, { epsilon: 1e-6 }),
  ),
  opCase(
    "rms_norm",
    "heads",
    { x: [2, 3, 2, 8], w: [8] },
    ({ x, w }) => rmsNorm({ x: x!, weight: w! }, { epsilon: 1e-3 }),
  ),
  opCase(
    "rope",
    "halves",
    { x: [2, 3, 16], c: [2, 3, 4], s: [2, 3, 4] },
    ({ x, c, s }) => rope({ x: x!, ...{ cos: c!, sin: s! } }, { heads: 2 }),
    ["c", "s"],
  ),
  opCase("softmax", "last axis", { x: [2, 3, 5] }, ({ x }) => softmax({ x: x! })),
  unary("silu", (x) => silu({ x })),
  opCase(
    "swiglu",
    "rows",
    { gate: [3, 6], up: [3, 6] },
    ({ gate, up }) => swiglu({ gate: gate!, up: up! }),
  ),
  attentionCase("plain", 2, 1, { prefix: false }),
  attentionCase("per-stream rows behind a prefix", 2, 3, {}),
  attentionCase("shared rows behind a prefix", 2, 3, { shared: true }),
  attentionCase("several documents in a row", 2, 2, { packed: true }),
  attentionCase("through a table", 3, 1, { prefix: false, paged: true }),
  attentionCase("per-stream rows through a table", 3, 2, { packed: true, paged: true }),
  attentionCase("shared rows through a table", 2, 3, { shared: true, paged: true }),
  opCase("repeat_streams", "rows", { x: [2, 3] }, ({ x }) => repeatStreams(x!, 3)),
  opCase(
    "stream_weights",
    "smoothed",
    { x: [4, 3] },
    ({ x }) => streamWeights({ scores: x! }, { smoothing: 0.1 }),
  ),
  opCase(
    "stream_weights",
    "as they are",
    { x: [4, 3] },
    ({ x }) => streamWeights({ scores: x! }, { smoothing: 0 }),
  ),
  opCase(
    "mix_streams",
    "several tokens",
    { x: [3, 4, 5], w: [4, 3] },
    ({ x, w }) => mixStreams({ x: x!, weights: w! }),
  ),
  ...(["parameter", "m", "v"] as const).map((which) =>
    opCase(
      "adamw",
      `new ${which}`,
      { x: [5], m: [5], v: [5], y: [5], scale: [], decay: [], stepSize: [], correction: [] },
      (x) => {
        // Squares of gradients are not negative, nor is their correction below one.
        const positive = (value: Value) => value.mul(value).add(1);
        const [parameter, m, v] = adamw.all({
          parameter: x.x!,
          m: x.m!,
          v: positive(x.v!),
          gradient: x.y!,
          scale: x.scale!,
          decay: x.decay!,
          stepSize: x.stepSize!,
          correction: positive(x.correction!),
        }, { beta1: 0.9, beta2: 0.95, epsilon: 1e-8 });
        return { parameter, m, v }[which]!;
      },
      {
        parameter: [],
        m: ["x", "v", "decay", "stepSize", "correction"],
        v: ["x", "m", "decay", "stepSize", "correction"],
      }[which],
    )
  ),
  opCase(
    "token_logprobs",
    "large logits",
    { x: [3, 9], at: { i32: [3], below: 9 } },
    ({ x, at }) => tokenLogprobs({ logits: x!.mul(50), targets: at! }),
  ),
];

/** Random values for every input of a case. */
export function randomInputs({ program, bounds }: OpCase): Map<string, number[]> {
  const random = new RandomStream(7, program.name);
  return new Map([...program.inputs].map(([name, { dtype, shape }]) => {
    const draw = dtype === "i32" ? () => random.integer(bounds[name]!) : () => random.normal();
    return [name, Array.from({ length: elementCount(shape) }, draw)];
  }));
}

/** Runs a program once without weights; all its tensors by name. */
export async function runOn(
  device: Device,
  program: Program,
  data: ReadonlyMap<string, number[]>,
): Promise<Map<string, HostArray>> {
  return await (await prepareOn(device, program))(data);
}

/** Compiles a program without weights; the result runs it and returns all its tensors by name. */
export async function prepareOn(
  device: Device,
  program: Program,
): Promise<(data: ReadonlyMap<string, number[]>) => Promise<Map<string, HostArray>>> {
  const executable = await device.compile(program, new Map());
  const tensors = new Map(
    [...program.inputs, ...program.state, ...program.outputs].map(([name, type]) => [
      name,
      device.allocate(type),
    ]),
  );
  return async (data) => {
    for (const [name, values] of data) device.write(tensors.get(name)!, values);
    await executable.run(tensors);
    return new Map([...tensors].map(([name, tensor]) => [name, device.read(tensor)]));
  };
}
