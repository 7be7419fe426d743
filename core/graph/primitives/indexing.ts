/** Primitives that read and write by index, and those that write state in place. */
import { formatType, type TensorType } from "../types.ts";
import type { Named, Three, Two } from "./shapes.ts";

/** The shape of x with one axis replaced by the axes of the indices. */
function indexed(x: TensorType, indices: TensorType, axis: number): number[] {
  return [...x.shape.slice(0, axis), ...indices.shape, ...x.shape.slice(axis + 1)];
}

function refuseUpdate([x, indices, update]: Three): never {
  throw new TypeError(
    `cannot add ${formatType(update)} to ${formatType(x)} at ${formatType(indices)}`,
  );
}

const gather: Named<"gather", { axis: number }> = {
  name: "gather",
  infer([x, indices]: Two, { axis }) {
    if (indices.dtype !== "i32") throw new TypeError(`cannot index by ${formatType(indices)}`);
    return [{ dtype: x.dtype, shape: indexed(x, indices, axis) }];
  },
};

const takeLast: Named<"take_last"> = {
  name: "take_last",
  infer([x, indices]: Two) {
    if (x.shape.slice(0, -1).join() !== indices.shape.join() || indices.dtype !== "i32") {
      throw new TypeError(`cannot take from ${formatType(x)} by ${formatType(indices)}`);
    }
    return [{ dtype: x.dtype, shape: indices.shape }];
  },
};

const scatterAdd: Named<"scatter_add", { axis: number }> = {
  name: "scatter_add",
  infer(inputs: Three, { axis }) {
    const [x, indices, update] = inputs;
    const fits = update.shape.join() === indexed(x, indices, axis).join();
    return fits && indices.dtype === "i32" ? [x] : refuseUpdate(inputs);
  },
  memory: "allowed",
};

const addLast: Named<"add_last"> = {
  name: "add_last",
  infer(inputs: Three) {
    const [x, indices, update] = inputs;
    const rows = x.shape.slice(0, -1).join();
    const fits = rows === indices.shape.join() && rows === update.shape.join();
    return fits && indices.dtype === "i32" ? [x] : refuseUpdate(inputs);
  },
  memory: "allowed",
};

const assign: Named<"assign"> = {
  name: "assign",
  infer([buffer, value]: Two) {
    if (formatType(buffer) !== formatType(value)) {
      throw new TypeError(`cannot assign ${formatType(value)} to ${formatType(buffer)}`);
    }
    return [buffer];
  },
  memory: "required",
};

const writeSlots: Named<"write_slots"> = {
  name: "write_slots",
  infer([buffer, update, start]: Three) {
    const [R, K, S, D] = buffer.shape;
    const [rows, heads, slots, size] = update.shape;
    const fits = update.shape.length === 4 && rows === R && heads === K && slots! <= S! &&
      size === D && start.shape.join() === `${R}`;
    if (!fits) {
      throw new TypeError(
        `cannot write ${formatType(update)} into ${formatType(buffer)} at ${formatType(start)}`,
      );
    }
    return [buffer];
  },
  memory: "required",
};

export const INDEXING = { gather, takeLast, scatterAdd, addLast, assign, writeSlots } as const;
