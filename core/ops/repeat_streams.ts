/**
 * repeat_streams: the rows of x once per stream, stream-major: [B, …] → [P·B, …].
 *
 * Kernel: none; kernels index b = row mod B instead.
 */
import type { Builder } from "../graph/builder.ts";
import { broadcast, reshape } from "../graph/primitives.ts";
import type { Value } from "../graph/types.ts";
import { modelOp } from "./define.ts";

export const repeatStreamsOp = modelOp<{ streams: number }>({
  name: "repeat_streams",
  infer: ([x], { streams }) => {
    const [B, ...rest] = x!.shape;
    return [{ dtype: x!.dtype, shape: [streams * B!, ...rest] }];
  },
  decompose(g, [x], { streams }) {
    const [B, ...rest] = x!.shape as [number, ...number[]];
    return [reshape(g, broadcast(g, x!, [streams, B, ...rest]), [streams * B, ...rest])];
  },
});

/** x [B, …] → [P·B, …] */
export function repeatStreams(g: Builder, x: Value, streams: number): Value {
  return streams === 1 ? x : g.apply1(repeatStreamsOp, [x], { streams });
}
