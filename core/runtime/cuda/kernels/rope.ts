/** Rotary embedding, writes into a cache, and both as one launch. */
import cacheText from "../../../../kernels/forward/kv_cache.cu" with { type: "text" };
import ropeText from "../../../../kernels/forward/rope.cu" with { type: "text" };
import * as p from "../../../graph/primitives.ts";
import type { Value } from "../../../graph/value.ts";
import { rope } from "../../../ops/rope.ts";
import { rotateAndWrite } from "../fuse/cache_writes.ts";
import type { Lowering } from "../lowering.ts";
import { each, kernel, kernelFile, packStep } from "./define.ts";
import { gradientRule, listRule, type Rule, rule } from "./rule.ts";
import { rowsOf } from "./sums.ts";

export const ROPE = kernelFile("forward/rope.cu", ropeText);
export const KV_CACHE = kernelFile("forward/kv_cache.cu", cacheText);

const rotate = kernel(
  ROPE,
  "rope *y *x *cosines *sines rows heads half direction:f32",
  ({ rows, heads, half }) => each(rows! * heads! * half!),
);
const rotateAndWriteSlots = kernel(
  ROPE,
  "rope_write_slots *keyCache *valueCache *y *q *k *v *cosines *sines *start R starts T H K S half",
  ({ R, T, H, K, half }) => each(R! * T! * (H! + 2 * K!) * half!),
);
const writeSlots = kernel(
  KV_CACHE,
  "write_slots *cache *update *start R T K S D",
  (sizes) => each(sizes.R! * sizes.T! * sizes.K! * sizes.D!, packStep(sizes, sizes.D!)),
);

/** x [R, T, heads·D] rotated by the angle of its position, or by the negative one. */
function rotated(
  l: Lowering,
  { x, cos, sin }: Readonly<Record<"x" | "cos" | "sin", Value>>,
  { heads, direction, reuse }: { heads: number; direction: 1 | -1; reuse?: "x" },
): Value {
  const [rows, width] = rowsOf(x.shape);
  return l.launch(rotate, {
    reads: { x: l.operand(x), cosines: l.f32(cos), sines: l.f32(sin) },
    writes: { y: l.type(x.shape) },
    scalars: { rows, heads, half: width / heads / 2, direction },
    ...(reuse && { reuse }),
  })[0]!;
}

export const ROPE_RULES: readonly Rule[] = [
  rule(rope, (l, inputs, { heads }) => [rotated(l, inputs, { heads, direction: 1, reuse: "x" })]),
  gradientRule(rope, (l, { cos, sin }, { upstream, attributes: { heads } }) => ({
    x: () => rotated(l, { x: upstream, cos, sin }, { heads, direction: -1 }),
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

export const WRITE_SLOTS: Rule = listRule(p.writeSlots, (l, [state, update, start]) => {
  const cache = l.get(state);
  const [R, K, S, D] = cache.shape as [number, number, number, number];
  const dtype = cache.dtype === "bf16" ? "bf16" : "f32";
  return l.launch(writeSlots, {
    updates: { cache },
    reads: { update: l.cast(l.get(update), dtype), start: l.get(start) },
    scalars: { R, T: update.shape[2]!, K, S, D },
    defines: { BF16: Number(dtype === "bf16") },
  });
});
