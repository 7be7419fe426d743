/** Primitives that move elements without computing: other shapes, orders and parts. */
import { elementCount, formatType, type Shape, type TensorType } from "../types.ts";
import { broadcastShapes, type Named, type One } from "./shapes.ts";

const reshape: Named<"reshape", { shape: Shape }> = {
  name: "reshape",
  infer([x]: One, { shape }) {
    if (elementCount(x.shape) !== elementCount(shape)) {
      throw new TypeError(`cannot reshape ${formatType(x)} to [${shape.join(", ")}]`);
    }
    return [{ dtype: x.dtype, shape }];
  },
  memory: "view",
};

const transpose: Named<"transpose", { order: readonly number[] }> = {
  name: "transpose",
  infer([x]: One, { order }) {
    if (order.length !== x.shape.length || new Set(order).size !== order.length) {
      throw new TypeError(`cannot transpose ${formatType(x)} by [${order.join(", ")}]`);
    }
    return [{ dtype: x.dtype, shape: order.map((axis) => x.shape[axis]!) }];
  },
};

const broadcast: Named<"broadcast", { shape: Shape }> = {
  name: "broadcast",
  infer([x]: One, { shape }) {
    const result = broadcastShapes(x.shape, shape);
    if (result.some((size, axis) => size !== shape[axis])) {
      throw new TypeError(`cannot broadcast ${formatType(x)} to [${shape.join(", ")}]`);
    }
    return [{ dtype: x.dtype, shape }];
  },
};

const slice: Named<"slice", { axis: number; start: number; end: number }> = {
  name: "slice",
  infer([x]: One, { axis, start, end }) {
    if (start < 0 || end > x.shape[axis]! || start > end) {
      throw new TypeError(`cannot slice ${start}..${end} of axis ${axis} of ${formatType(x)}`);
    }
    return [{ dtype: x.dtype, shape: x.shape.map((n, i) => i === axis ? end - start : n) }];
  },
};

const concat: Named<"concat", { axis: number }> = {
  name: "concat",
  infer(inputs: readonly TensorType[], { axis }) {
    const [first, ...others] = inputs as readonly [TensorType, ...TensorType[]];
    const fits = others.every((x) =>
      x.dtype === first.dtype && x.shape.length === first.shape.length &&
      x.shape.every((size, i) => i === axis || size === first.shape[i])
    );
    if (!fits) throw new TypeError(`cannot join ${inputs.map(formatType).join(" and ")}`);
    const total = inputs.reduce((size, x) => size + x.shape[axis]!, 0);
    return [{ dtype: first.dtype, shape: first.shape.map((n, i) => i === axis ? total : n) }];
  },
};

const recompute: Named<"recompute", { segment: number }> = {
  name: "recompute",
  infer: ([x]: One) => [x],
  memory: "view",
};

export const MOVEMENT = { reshape, transpose, broadcast, slice, concat, recompute } as const;
