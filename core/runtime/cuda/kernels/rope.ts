/** Rotary embedding, also as one launch with the writes of keys and values into a cache. */
import ropeText from "../../../../kernels/forward/rope.cu" with { type: "text" };
import type { Value } from "../../../graph/value.ts";
import { rope } from "../../../ops/rope.ts";
import { rotateAndWrite } from "../cache_writes.ts";
import type { Lowering } from "../lowering.ts";
import { each, kernel, kernelFile } from "./define.ts";
import { rowsOf } from "./reduce.ts";
import { gradientRule, type Rule, rule } from "./rule.ts";

export const ROPE = kernelFile("forward/rope.cu", ropeText);

const rotate = kernel(ROPE, "rope", ({ rows, heads, half }) => each(rows! * heads! * half!));
const rotateAndWriteSlots = kernel(
  ROPE,
  "rope_write_slots",
  ({ R, T, H, K, half }) => each(R! * T! * (H! + 2 * K!) * half!),
);

/** x [R, T, heads·D] rotated by the angle of its position, or by the negative one. */
function rotated(
  l: Lowering,
  { x, cos, sin }: Readonly<Record<"x" | "cos" | "sin", Value>>,
  heads: number,
  direction: 1 | -1,
): Value {
  const [rows, width] = rowsOf(x.shape);
  return l.launch(rotate, {
    reads: { x: l.operand(x), cosines: l.f32(cos), sines: l.f32(sin) },
    writes: { y: l.type(x.shape) },
    scalars: { rows, heads, half: width / heads / 2, direction },
  })[0]!;
}

export const ROPE_RULES: readonly Rule[] = [
  rule(rope, (l, inputs, { heads }) => [rotated(l, inputs, heads, 1)]),
  gradientRule(rope, (l, { cos, sin }, { upstream, attributes: { heads } }) => ({
    x: rotated(l, { x: upstream, cos, sin }, heads, -1),
  })),
  rule(rotateAndWrite, (l, inputs, _, [, , y]) => {
    const { keyCache, valueCache, q, k, v, cos, sin, start } = inputs;
    const [R, T, H, D] = y.shape as [number, number, number, number];
    const [, K, S] = keyCache.shape as [number, number, number];
    return l.launch(rotateAndWriteSlots, {
      updates: { keyCache: l.get(keyCache), valueCache: l.get(valueCache) },
      reads: {
        ...{ q: l.operand(q), k: l.operand(k), v: l.operand(v) },
        ...{ cosines: l.f32(cos), sines: l.f32(sin), start: l.get(start) },
      },
      writes: { y: l.type(y.shape) },
      scalars: { R, starts: start.shape[0]!, T, H, K, S, half: D / 2 },
    });
  }),
];
