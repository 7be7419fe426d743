/**
 * The meaning of every primitive, as plain loops.
 *
 * This file is the reference of all other devices, so it is written to be read, not to be fast: one function per
 * primitive, results stored into arrays the caller allocated. In f64 mode all `f32` tensors are
 * Float64Array and nothing is rounded.
 */
import type { AttributesOf, PrimitiveName } from "../../graph/primitives.ts";
import type { Node } from "../../graph/program.ts";
import { broadcastStrides, denseStrides } from "../../graph/strides.ts";
import {
  type Attributes,
  elementCount,
  type Operands,
  type RulesByName,
  type Shape,
} from "../../graph/types.ts";
import { sample as drawToken, SAMPLING_NUMBERS } from "../../base/sampling.ts";
import type { HostArray } from "../device.ts";

/** A tensor under evaluation. */
export interface Operand {
  readonly shape: Shape;
  readonly data: HostArray;
}

type Evaluate<A extends Attributes = Attributes> = (
  out: Operand,
  inputs: Operands<Operand>,
  attributes: A,
) => void;

/** The function of the primitive `N`. */
type EvaluateOf<N extends PrimitiveName> = Evaluate<AttributesOf<N>>;

/**
 * Visits every element of `shape` in order with the matching flat index into tensors whose strides
 * are given (0 along a broadcast axis).
 */
function walk(
  shape: Shape,
  strides: readonly (readonly number[])[],
  visit: (flat: number, indices: readonly number[]) => void,
): void {
  const count = elementCount(shape);
  const position = new Array<number>(shape.length).fill(0);
  const indices = strides.map(() => 0);
  for (let flat = 0; flat < count; flat++) {
    visit(flat, indices);
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      position[axis]!++;
      strides.forEach((stride, i) => indices[i]! += stride[axis]!);
      if (position[axis]! < shape[axis]!) break;
      strides.forEach((stride, i) => indices[i]! -= stride[axis]! * shape[axis]!);
      position[axis] = 0;
    }
  }
}

function elementwise(f: (a: number, b: number, c: number) => number): Evaluate {
  return (out, inputs) => {
    const strides = inputs.map((x) => broadcastStrides(x.shape, out.shape));
    walk(out.shape, strides, (flat, at) => {
      const [a, b, c] = inputs.map((x, i) => x.data[at[i]!]!) as [number, number, number];
      out.data[flat] = f(a, b, c);
    });
  };
}

/** Folds one axis; `step` gets the accumulator, the element and its index along the axis. */
function fold(
  initial: number,
  step: (accumulator: number, element: number) => number,
): Evaluate<{ axis: number }> {
  return (out, [x], { axis }) => {
    const stride = denseStrides(x.shape);
    const size = x.shape[axis]!;
    walk(out.shape, [stride.map((s, i) => i === axis ? 0 : s)], (flat, [at]) => {
      let accumulator = initial;
      for (let i = 0; i < size; i++) {
        accumulator = step(accumulator, x.data[at! + i * stride[axis]!]!);
      }
      out.data[flat] = accumulator;
    });
  };
}

const argmax: EvaluateOf<"argmax"> = (out, [x], { axis }) => {
  const stride = denseStrides(x.shape);
  const size = x.shape[axis]!;
  walk(out.shape, [stride.map((s, i) => i === axis ? 0 : s)], (flat, [at]) => {
    let best = 0;
    const get = (i: number) => x.data[at! + i * stride[axis]!]!;
    for (let i = 1; i < size; i++) if (get(i) > get(best)) best = i;
    out.data[flat] = best;
  });
};

const matmul: EvaluateOf<"matmul"> = (out, [a, b], { transposeA, transposeB, scale }) => {
  const [m, n] = out.shape.slice(-2) as [number, number];
  const k = a.shape.at(transposeA ? -2 : -1)!;
  const batch = out.shape.slice(0, -2);
  const matrixStrides = (x: Operand) => {
    const leading = broadcastStrides(x.shape.slice(0, -2), batch);
    const matrix = x.shape.at(-1)! * x.shape.at(-2)!;
    return leading.map((stride) => stride * matrix);
  };
  const [aRow, aColumn] = transposeA ? [1, m] : [k, 1];
  const [bRow, bColumn] = transposeB ? [1, k] : [n, 1];
  walk(batch, [matrixStrides(a), matrixStrides(b)], (flat, [atA, atB]) => {
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let total = 0;
        for (let l = 0; l < k; l++) {
          const x = a.data[atA! + i * aRow! + l * aColumn!]!;
          total += x * b.data[atB! + l * bRow! + j * bColumn!]!;
        }
        out.data[(flat * m + i) * n + j] = total * scale;
      }
    }
  });
};

function copyInto(out: Operand, x: Operand): void {
  if (out.data !== x.data) out.data.set(x.data);
}

const copy: Evaluate = (out, [x]) => copyInto(out, x);

const transpose: EvaluateOf<"transpose"> = (out, [x], { order }) => {
  const strides = denseStrides(x.shape);
  const permuted = order.map((axis) => strides[axis]!);
  walk(out.shape, [permuted], (flat, [at]) => out.data[flat] = x.data[at!]!);
};

const broadcast: Evaluate = (out, [x]) => {
  walk(out.shape, [broadcastStrides(x.shape, out.shape)], (flat, [at]) => {
    out.data[flat] = x.data[at!]!;
  });
};

const slice: EvaluateOf<"slice"> = (out, [x], { axis, start }) => {
  const strides = denseStrides(x.shape);
  const first = start * strides[axis]!;
  walk(out.shape, [strides], (flat, [at]) => out.data[flat] = x.data[first + at!]!);
};

const concat: EvaluateOf<"concat"> = (out, inputs, { axis }) => {
  const strides = denseStrides(out.shape);
  let first = 0;
  for (const x of inputs) {
    walk(x.shape, [strides], (flat, [at]) => out.data[first + at!] = x.data[flat]!);
    first += x.shape[axis]! * strides[axis]!;
  }
};

const gather: EvaluateOf<"gather"> = (out, [x, indices], { axis }) => {
  const size = x.shape[axis]!;
  const inner = denseStrides(x.shape)[axis]!;
  const outer = x.data.length / (size * inner);
  let at = 0;
  for (let o = 0; o < outer; o++) {
    for (const index of indices.data) {
      if (index < 0 || index >= size) throw new RangeError(`cannot gather ${index} of ${size}`);
      for (let i = 0; i < inner; i++) out.data[at++] = x.data[(o * size + index) * inner + i]!;
    }
  }
};

const takeLast: Evaluate = (out, [x, indices]) => {
  const size = x.shape.at(-1)!;
  indices.data.forEach((index, i) => out.data[i] = x.data[i * size + index]!);
};

const scatterAdd: EvaluateOf<"scatter_add"> = (out, [x, indices, update], { axis }) => {
  copyInto(out, x);
  const size = out.shape[axis]!;
  const inner = denseStrides(out.shape)[axis]!;
  const outer = out.data.length / (size * inner);
  let at = 0;
  for (let o = 0; o < outer; o++) {
    for (const index of indices.data) {
      if (index < 0 || index >= size) throw new RangeError(`cannot add at ${index} of ${size}`);
      for (let i = 0; i < inner; i++) {
        out.data[(o * size + index) * inner + i]! += update.data[at++]!;
      }
    }
  }
};

const addLast: Evaluate = (out, [x, indices, update]) => {
  copyInto(out, x);
  const size = out.shape.at(-1)!;
  indices.data.forEach((index, i) => out.data[i * size + index]! += update.data[i]!);
};

const assign: Evaluate = (out, [, value]) => copyInto(out, value);

const writeSlots: Evaluate = (out, [buffer, update, start]) => {
  copyInto(out, buffer);
  const [R, K, T, D] = update.shape as [number, number, number, number];
  const S = out.shape[2]!;
  for (let r = 0; r < R; r++) {
    const first = start.data[r]!;
    if (first < 0 || first + T > S) {
      throw new RangeError(`cannot write slots ${first}+${T} of ${S}`);
    }
    for (let k = 0; k < K; k++) {
      for (let i = 0; i < T * D; i++) {
        out.data[((r * K + k) * S + first) * D + i] = update.data[(r * K + k) * T * D + i]!;
      }
    }
  }
};

const sample: Evaluate = (out, [logits, sampling]) => {
  const V = logits.shape[1]!;
  const row = ({ data }: Operand, n: number, size: number) =>
    data.subarray(n * size, (n + 1) * size);
  for (let n = 0; n < out.data.length; n++) {
    const scores = row(logits, n, V);
    const numbers = row(sampling, n, SAMPLING_NUMBERS);
    const [temperature, topK, topP, minP, high, low] = Array.from(numbers) as Six;
    const options = { temperature, topK, topP, minP };
    const uniform = () => high + low;
    out.data[n] = scores.some(Number.isNaN) ? -1 : drawToken(scores, options, { uniform });
  }
};

type Six = [number, number, number, number, number, number];

/** Evaluation of each primitive; the compiler checks that none is missing. */
const PRIMITIVES: { readonly [N in PrimitiveName]: EvaluateOf<N> } = {
  add: elementwise((a, b) => a + b),
  sub: elementwise((a, b) => a - b),
  mul: elementwise((a, b) => a * b),
  div: elementwise((a, b) => a / b),
  less_equal: elementwise((a, b) => a <= b ? 1 : 0),
  select: elementwise((condition, a, b) => condition ? a : b),
  exp: elementwise((x) => Math.exp(x)),
  log: elementwise((x) => Math.log(x)),
  sqrt: elementwise((x) => Math.sqrt(x)),
  sin: elementwise((x) => Math.sin(x)),
  cos: elementwise((x) => Math.cos(x)),
  sigmoid: elementwise((x) => 1 / (1 + Math.exp(-x))),
  cast: elementwise((x) => x),
  constant: (out, _, { data }) => out.data.set(data),
  iota: (out) => out.data.forEach((_, i) => out.data[i] = i),
  sum: fold(0, (total, x) => total + x),
  max: fold(-Infinity, Math.max),
  argmax,
  matmul,
  reshape: copy,
  recompute: copy,
  transpose,
  broadcast,
  slice,
  concat,
  gather,
  take_last: takeLast,
  scatter_add: scatterAdd,
  add_last: addLast,
  assign,
  write_slots: writeSlots,
};

/** By name, and with `sample`, which has no decomposition. */
const EVALUATE: RulesByName<Evaluate> = { ...PRIMITIVES, sample };

/** Computes the result of a node into the array of `out`. */
export function evaluate({ op, attributes }: Node, out: Operand, inputs: readonly Operand[]): void {
  const rule = EVALUATE[op.name];
  if (!rule) throw new TypeError(`cannot evaluate "${op.name}": not a primitive`);
  rule(out, inputs as Operands<Operand>, attributes);
}
