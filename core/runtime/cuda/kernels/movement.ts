/** Primitives that move elements: other shapes, orders and parts, new contents of a state. */
import * as p from "../../../graph/primitives.ts";
import { broadcastStrides, denseStrides } from "../../../graph/strides.ts";
import {
  type Attributes,
  elementBytes,
  elementCount,
  type Primitive,
} from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { listRule, type Rule } from "./rule.ts";
import { around, gather, type Walk, writeSlots } from "./strided.ts";

/** A rule that changes nothing but the shape. */
function viewed<A extends Attributes>(op: Primitive<A>): Rule {
  return listRule(op, (l, [x], _, [y]) => [l.view(l.get(x), y.shape)]);
}

/** A rule that reads its operand by other strides. */
function moved<A extends Attributes>(
  op: Primitive<A>,
  walk: (x: Value, attributes: A) => Walk,
): Rule {
  return listRule(op, (l, [x], attributes, [{ shape }]) => [
    l.copy(l.get(x), { shape, from: walk(x, attributes) }),
  ]);
}

export const MOVEMENT_RULES: readonly Rule[] = [
  viewed(p.reshape),
  viewed(p.recompute),
  moved(p.transpose, (x, { order }) => {
    const own = denseStrides(x.shape);
    return { strides: order.map((axis) => own[axis]!) };
  }),
  moved(p.broadcast, (x, { shape }) => ({ strides: broadcastStrides(x.shape, shape) })),
  moved(p.slice, (x, { axis, start }) => {
    const strides = denseStrides(x.shape);
    return { strides, first: start * strides[axis]! };
  }),
  listRule(p.concat, (l, inputs, { axis }, [y]) => {
    const areBf16 = inputs.every((value) => l.get(value).dtype === "bf16");
    const isFloat = y.dtype === "f32";
    const strides = denseStrides(y.shape);
    let first = 0;
    let whole: Value | undefined;
    for (const input of inputs) {
      const part = isFloat && !areBf16 ? l.f32(input) : l.get(input);
      const to = { dtype: part.dtype, shape: y.shape };
      whole = l.copy(part, { at: { strides, first }, to, target: whole });
      first += part.shape[axis]! * strides[axis]!;
    }
    return [whole!];
  }),
  listRule(p.gather, (l, [table, ids], { axis }, [y]) => {
    const x = l.get(table), [outer, size, inner] = around(x.shape, axis);
    return l.launch(gather, {
      reads: { x, indices: l.get(ids) },
      writes: { y: { dtype: x.dtype, shape: y.shape } },
      scalars: { outer, size, count: elementCount(ids.shape), inner },
      defines: { BYTES: elementBytes(x.dtype) },
    });
  }),
  listRule(p.assign, (l, [state, value]) => {
    const target = l.get(state);
    const source = target.dtype === "f32" ? l.f32(value) : l.get(value);
    if (l.isIn(source, target)) return [source]; // it was computed there
    return [l.copy(source, { target })];
  }),
  listRule(p.writeSlots, (l, [state, update, start]) => {
    const cache = l.get(state);
    const [R, K, S, D] = cache.shape as [number, number, number, number];
    return l.launch(writeSlots, {
      updates: { cache },
      reads: {
        update: l.cast(l.get(update), cache.dtype === "bf16" ? "bf16" : "f32"),
        start: l.get(start),
      },
      scalars: { R, T: update.shape[2]!, K, S, D },
      defines: { BYTES: elementBytes(cache.dtype) },
    });
  }),
];
