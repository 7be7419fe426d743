/** Primitives that read and write by index, and those that write state in place. */
import type { Builder } from "../builder.ts";
import { formatType, type Value } from "../types.ts";
import { axisOf, primitive } from "./define.ts";

const gatherOp = primitive<{ axis: number }>({
  name: "gather",
  infer([x, indices], { axis }) {
    if (indices!.dtype !== "i32") throw new TypeError(`Cannot index by ${formatType(indices!)}`);
    const shape = [...x!.shape.slice(0, axis), ...indices!.shape, ...x!.shape.slice(axis + 1)];
    return [{ dtype: x!.dtype, shape }];
  },
});

/** Entries of one axis by index; that axis becomes the axes of `indices`. */
export function gather(g: Builder, x: Value, indices: Value, axis: number): Value {
  return g.apply1(gatherOp, [x, indices], { axis: axisOf(x, axis) });
}

const takeLastOp = primitive({
  name: "take_last",
  infer([x, indices]) {
    if (x!.shape.slice(0, -1).join() !== indices!.shape.join() || indices!.dtype !== "i32") {
      throw new TypeError(`Cannot take from ${formatType(x!)} by ${formatType(indices!)}`);
    }
    return [{ dtype: x!.dtype, shape: indices!.shape }];
  },
});

/** One element of each last-axis row: `out[i] = x[i, indices[i]]`. */
export function takeLast(g: Builder, x: Value, indices: Value): Value {
  return g.apply1(takeLastOp, [x, indices], {});
}

const scatterAddOp = primitive<{ axis: number }>({
  name: "scatter_add",
  infer([x, indices, update], { axis }) {
    const expected = [...x!.shape.slice(0, axis), ...indices!.shape, ...x!.shape.slice(axis + 1)];
    if (update!.shape.join() !== expected.join() || indices!.dtype !== "i32") {
      throw new TypeError(
        `Cannot add ${formatType(update!)} to ${formatType(x!)} at ${formatType(indices!)}`,
      );
    }
    return [x!];
  },
  memory: "allowed",
});

/** x with entries of `update` added along one axis by index, repeated indices too: undoes `gather`. */
export function scatterAdd(
  g: Builder,
  x: Value,
  indices: Value,
  update: Value,
  axis: number,
): Value {
  return g.apply1(scatterAddOp, [x, indices, update], { axis: axisOf(x, axis) });
}

const addLastOp = primitive({
  name: "add_last",
  infer([x, indices, update]) {
    const rows = x!.shape.slice(0, -1).join();
    const fits = rows === indices!.shape.join() && rows === update!.shape.join();
    if (!fits || indices!.dtype !== "i32") {
      throw new TypeError(
        `Cannot add ${formatType(update!)} to ${formatType(x!)} at ${formatType(indices!)}`,
      );
    }
    return [x!];
  },
  memory: "allowed",
});

/** x with one element of each last-axis row raised: `out[i, indices[i]] += update[i]`. */
export function addLast(g: Builder, x: Value, indices: Value, update: Value): Value {
  return g.apply1(addLastOp, [x, indices, update], {});
}

const assignOp = primitive({
  name: "assign",
  infer([buffer, value]) {
    if (formatType(buffer!) !== formatType(value!)) {
      throw new TypeError(`Cannot assign ${formatType(value!)} to ${formatType(buffer!)}`);
    }
    return [buffer!];
  },
  memory: "required",
});

/** `value`, in the memory of `buffer`. */
export function assign(g: Builder, buffer: Value, value: Value): Value {
  return g.apply1(assignOp, [buffer, value], {});
}

const writeSlotsOp = primitive({
  name: "write_slots",
  infer([buffer, update, start]) {
    const [R, K, S, D] = buffer!.shape;
    const fits = update!.shape.length === 4 && update!.shape[0] === R && update!.shape[1] === K &&
      update!.shape[2]! <= S! && update!.shape[3] === D && start!.shape.join() === `${R}`;
    if (!fits) {
      throw new TypeError(
        `Cannot write ${formatType(update!)} into ${formatType(buffer!)} at ${formatType(start!)}`,
      );
    }
    return [buffer!];
  },
  memory: "required",
});

/**
 * Overwrites slots `start[r] …` of axis 2 of row r: buffer [R, K, S, D], update [R, K, T, D],
 * start [R] i32. The result lies in the buffer's own memory.
 */
export function writeSlots(g: Builder, buffer: Value, update: Value, start: Value): Value {
  return g.apply1(writeSlotsOp, [buffer, update, start], {});
}
