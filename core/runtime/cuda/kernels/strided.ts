/**
 * Kernels that walk tensors by strides: elementwise ops and copies. Every rule may need one, so they stand
 * without rules; those are in `elementwise.ts` and `movement.ts`.
 */
import elementwiseText from "../../../../kernels/primitive/elementwise.cu" with { type: "text" };
import movementText from "../../../../kernels/primitive/movement.cu" with { type: "text" };
import { broadcastStrides, denseStrides } from "../../../graph/strides.ts";
import { elementCount, type Shape } from "../../../graph/types.ts";
import { each, kernel, kernelFile, type Sizes } from "./define.ts";

export const ELEMENTWISE = kernelFile("primitive/elementwise.cu", elementwiseText, [{}]);
export const MOVEMENT = kernelFile("primitive/movement.cu", movementText, [
  { BYTES: 1 },
  { BYTES: 2 },
  { BYTES: 4 },
]);

const all = ({ count }: Record<string, number>) => each(count!);

export const elementwise = kernel(ELEMENTWISE, "elementwise", all);
/** From and to any strides over four axes. */
export const copy = kernel(MOVEMENT, "copy", all);
export const gather = kernel(
  MOVEMENT,
  "gather",
  ({ outer, count, inner }) => each(outer! * count! * inner!),
);
export const writeSlots = kernel(
  MOVEMENT,
  "write_slots",
  ({ R, T, K, D }) => each(R! * T! * K! * D!),
);

/** Ops of the elementwise kernel, by number; in f32 where no other type is named. */
const OPS = [
  ...["add", "sub", "mul", "div", "add i32", "sub i32", "mul i32", "div i32", "add bf16"] as const,
  ...["less_equal", "less_equal i32", "select", "exp", "log", "sqrt", "sin", "cos"] as const,
  ...["sigmoid", "f32 to bf16", "bf16 to f32", "i32 to f32", "bool to f32", "f32 to i32"] as const,
  "iota",
] as const;

/** An op of the elementwise kernel. */
export type ElementwiseOp = typeof OPS[number];

/** Returns whether the elementwise kernel has an op of this name. */
export function isElementwise(name: string): name is ElementwiseOp {
  return (OPS as readonly string[]).includes(name);
}

/** The way through a tensor: element i lies at `first` + Σ i·stride. */
export interface Walk {
  readonly strides: readonly number[];
  readonly first?: number;
}

/** The way through a dense tensor. */
export function dense(shape: Shape): Walk {
  return { strides: denseStrides(shape) };
}

/**
 * Makes axes of any number `axes` of them, with strides of every operand: neighbours become one where every
 * operand has them in one stride, and axes of size 1 are dropped.
 * @throws {TypeError} when more are needed
 */
export function collapse(
  shape: Shape,
  operands: readonly (readonly number[])[],
  axes = 4,
): { sizes: number[]; strides: number[][] } {
  const sizes: number[] = [];
  const strides: number[][] = operands.map(() => []);
  shape.forEach((size, axis) => {
    if (size === 1) return;
    const isOne = sizes.length > 0 &&
      operands.every((own, i) => strides[i]!.at(-1) === own[axis]! * size);
    if (isOne) sizes[sizes.length - 1]! *= size;
    else sizes.push(size);
    operands.forEach((own, i) => {
      if (isOne) strides[i]!.pop();
      strides[i]!.push(own[axis]!);
    });
  });
  if (sizes.length > axes) {
    throw new TypeError(`cannot walk [${shape.join(", ")}]: more than ${axes} separate axes`);
  }
  while (sizes.length < axes) {
    sizes.unshift(1);
    for (const own of strides) own.unshift(0);
  }
  return { sizes, strides };
}

/** Strides by the names of their arguments: a letter and the number of the axis. */
export function named(letter: string, strides: readonly number[]): Record<string, number> {
  return Object.fromEntries(strides.map((stride, axis) => [`${letter}${axis}`, stride]));
}

/** Scalar arguments of an elementwise launch over operands of some shapes; there are up to three. */
export function elementwiseScalars(
  op: ElementwiseOp,
  shape: Shape,
  operands: readonly Shape[],
): Sizes {
  const lists = ["a", "b", "c"].map((_, i) => broadcastStrides(operands[i] ?? [], shape));
  const { sizes: [, n1, n2, n3], strides: [a, b, c] } = collapse(shape, lists);
  return {
    ...{ count: elementCount(shape), op: OPS.indexOf(op), n1: n1!, n2: n2!, n3: n3! },
    ...named("a", a!),
    ...named("b", b!),
    ...named("c", c!),
  };
}

/** Scalar arguments of a strided copy. */
export function copyScalars(shape: Shape, target: Walk, source: Walk): Sizes {
  const { sizes: [, n1, n2, n3], strides: [y, x] } = collapse(
    shape,
    [target.strides, source.strides],
  );
  return {
    ...{ count: elementCount(shape), n1: n1!, n2: n2!, n3: n3! },
    ...{ yFirst: target.first ?? 0, xFirst: source.first ?? 0 },
    ...named("y", y!),
    ...named("x", x!),
  };
}

/** Sizes before, of and after an axis. */
export function around(shape: Shape, axis: number): [outer: number, size: number, inner: number] {
  return [elementCount(shape.slice(0, axis)), shape[axis]!, elementCount(shape.slice(axis + 1))];
}
