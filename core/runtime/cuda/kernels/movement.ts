/** Primitives that move elements: other shapes, orders and parts, and new contents of a state. */
import * as p from "../../../graph/primitives.ts";
import { broadcastStrides, denseStrides } from "../../../graph/strides.ts";
import {
  type Attributes,
  elementBytes,
  elementCount,
  type Primitive,
} from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import type { Lowering } from "../lowering.ts";
import { around, collapse, dense, toDense } from "../strides.ts";
import { gather as gatherKernel } from "./copies.ts";
import { listRule, type Rule } from "./rule.ts";

/** A copy of an operand in f32, to be changed where it lies. */
export function ownCopy(l: Lowering, value: Value): Value {
  const x = l.f32(value);
  return l.copy(x, x, dense(x.shape));
}

/** A rule that changes nothing but the shape. */
function viewed<A extends Attributes>(op: Primitive<A>): Rule {
  return listRule(op, (l, [x], _, [y]) => [l.view(l.get(x), y.shape)]);
}

export const RESHAPE: Rule = viewed(p.reshape);
export const RECOMPUTE: Rule = viewed(p.recompute);

/** A rule that reads its operand by other strides. */
function moved<A extends Attributes>(
  op: Primitive<A>,
  walk: (x: Value, attributes: A, y: Value) => {
    readonly strides: readonly number[];
    readonly first?: number;
  },
): Rule {
  return listRule(op, (l, [input], attributes, [y]) => {
    const x = l.get(input);
    const { strides, first } = walk(input, attributes, y);
    return [l.copy(x, { dtype: x.dtype, shape: y.shape }, toDense(y.shape, strides, first))];
  });
}

export const TRANSPOSE: Rule = moved(p.transpose, (x, { order }) => {
  const own = denseStrides(x.shape);
  return { strides: order.map((axis) => own[axis]!) };
});

export const BROADCAST: Rule = moved(p.broadcast, (x, { shape }) => ({
  strides: broadcastStrides(x.shape, shape),
}));

export const SLICE: Rule = moved(p.slice, (x, { axis, start }) => {
  const strides = denseStrides(x.shape);
  return { strides, first: start * strides[axis]! };
});

export const CONCAT: Rule = listRule(p.concat, (l, inputs, { axis }, [y]) => {
  const areBf16 = inputs.every((value) => l.get(value).dtype === "bf16");
  const isFloat = y.dtype === "f32";
  const strides = denseStrides(y.shape);
  let start = 0;
  let whole: Value | undefined;
  for (const input of inputs) {
    const part = isFloat && !areBf16 ? l.f32(input) : l.get(input);
    const { sizes, strides: [targetStrides, sourceStrides] } = collapse(
      part.shape,
      [strides, denseStrides(part.shape)],
    );
    whole = l.copy(part, { dtype: part.dtype, shape: y.shape }, {
      sizes,
      targetFirst: start * strides[axis]!,
      targetStrides: targetStrides!,
      sourceFirst: 0,
      sourceStrides: sourceStrides!,
    }, whole);
    start += part.shape[axis]!;
  }
  return [whole!];
});

export const GATHER: Rule = listRule(p.gather, (l, inputs, { axis }, [y]) => {
  const x = l.get(inputs[0]), indices = l.get(inputs[1]);
  const [outer, size, inner] = around(x.shape, axis);
  return l.launch(gatherKernel, {
    reads: { x, indices },
    writes: { y: { dtype: x.dtype, shape: y.shape } },
    scalars: { outer, size, count: elementCount(indices.shape), inner },
    defines: { BYTES: elementBytes(x.dtype) },
  });
});

export const ASSIGN: Rule = listRule(p.assign, (l, [state, value]) => {
  const target = l.get(state);
  const source = target.dtype === "f32" ? l.f32(value) : l.get(value);
  return [l.copy(source, source, dense(source.shape), target)];
});
