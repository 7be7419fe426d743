/**
 * Tensors of any rank as the four axes of elementwise kernels and copies: neighbouring axes become one where
 * every operand has them in one stride, and axes of size 1 are dropped.
 */
import { denseStrides } from "../../graph/strides.ts";
import { elementCount, type Shape } from "../../graph/types.ts";

/** Axes that the elementwise kernels and `copy` know. */
const AXES = 4;

/** Offsets and strides of the two tensors of `copy`, in elements; all lists have four entries. */
export interface Layout {
  readonly sizes: readonly number[];
  readonly targetFirst: number;
  readonly targetStrides: readonly number[];
  readonly sourceFirst: number;
  readonly sourceStrides: readonly number[];
}

/**
 * Merges axes until there are `axes` of them, with strides of every operand.
 * @throws {TypeError} when more are needed
 */
export function collapse(
  shape: Shape,
  operands: readonly (readonly number[])[],
  axes = AXES,
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

/** A tensor read by strides into a dense one. */
export function toDense(shape: Shape, sourceStrides: readonly number[], sourceFirst = 0): Layout {
  const { sizes, strides } = collapse(shape, [denseStrides(shape), sourceStrides]);
  const [target, source] = strides as [number[], number[]];
  return { sizes, targetFirst: 0, targetStrides: target, sourceFirst, sourceStrides: source };
}

/** A dense tensor as it is. */
export function dense(shape: Shape): Layout {
  return toDense(shape, denseStrides(shape));
}

/** Sizes before, of and after an axis. */
export function around(shape: Shape, axis: number): [outer: number, size: number, inner: number] {
  return [
    elementCount(shape.slice(0, axis)),
    shape[axis]!,
    elementCount(shape.slice(axis + 1)),
  ];
}
