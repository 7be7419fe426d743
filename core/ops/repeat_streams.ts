/**
 * repeat_streams: the rows of x once per stream, stream-major: [B, …] → [P·B, …].
 *
 * Kernel: none; kernels index b = row mod B instead.
 */
import type { Value } from "../graph/value.ts";
import { modelOp } from "./define.ts";

/** x [B, …] → [P·B, …]; `repeatStreams` leaves it out for one stream. */
export const repeat = modelOp<{ streams: number }>()({
  name: "repeat_streams",
  inputs: ["x"],
  infer({ x }, { streams }) {
    const [B, ...rest] = x.shape;
    return { dtype: x.dtype, shape: [streams * B!, ...rest] };
  },
  decompose({ x }, { streams }) {
    const [B, ...rest] = x.shape as [number, ...number[]];
    return x.broadcast([streams, B, ...rest]).reshape([streams * B, ...rest]);
  },
});

/** x [B, …] → [P·B, …] */
export function repeatStreams(x: Value, streams: number): Value {
  return streams === 1 ? x : repeat({ x }, { streams });
}
