/**
 * Rope of queries and keys and the writes of keys and values into the cache become one launch.
 *
 *   q = rope(…);  keys = write_slots(cache, transpose(rope(…)), start);  values = write_slots(…)
 *                                                  →   keys, values, q = rotate_and_write(…)
 *
 * In decoding they are six launches over a few kilobytes: at 2 µs each in 36 layers of a 3B model 0.36 ms, a
 * fifth of a step of 1.8 ms.
 */
import { cast, reshape, transpose, writeSlots } from "../../graph/primitives.ts";
import { isNode, type Node, type Op, type Program } from "../../graph/program.ts";
import { substitute, type Substitution } from "../../graph/substitute.ts";
import type { DType } from "../../graph/types.ts";
import { Uses } from "../../graph/uses.ts";
import type { Value } from "../../graph/value.ts";
import { attentionOp } from "../../ops/attention.ts";
import { modelOp } from "../../ops/define.ts";
import { repeat, repeatStreams } from "../../ops/repeat_streams.ts";
import { rope } from "../../ops/rope.ts";

/**
 * Projections q [R, T, H·D], k [R, T, K·D] and v [R, T, K, D], tables [R, T, D/2], start [starts] i32 for every
 * R / starts blocks of rows → the two caches [R, K, S, D], and the rotated queries [R, T, H, D]
 */
export const rotateAndWrite = modelOp()({
  name: "rotate_and_write",
  inputs: ["keyCache", "valueCache", "q", "k", "v", "cos", "sin", "start"],
  infer({ keyCache, valueCache, q }) {
    const [R, T, width] = q.shape;
    const D = keyCache.shape[3]!;
    return [keyCache, valueCache, { dtype: q.dtype, shape: [R!, T!, width! / D, D] }];
  },
  decompose({ keyCache, valueCache, q, k, v, cos, sin, start }) {
    const [R, T, width] = q.shape as [number, number, number];
    const [, K, , D] = keyCache.shape as [number, number, number, number];
    const heads = width / D;
    const starts = repeatStreams(start, R / start.shape[0]!);
    const write = (cache: Value, update: Value) =>
      cache.writeSlots(update.transpose([0, 2, 1, 3]).cast(cache.dtype), starts);
    return [
      write(keyCache, rope({ x: k, cos, sin }, { heads: K }).reshape([R, T, K, D])),
      write(valueCache, v),
      rope({ x: q, cos, sin }, { heads }).reshape([R, T, heads, D]),
    ];
  },
  memory: "required",
});

/** Fuses the inputs of attention where the cache is in the compute dtype. */
export function rotateWhileWriting(program: Program, dtype: DType): Program {
  const uses = new Uses(program);
  const behind = (value: Value) => behindViews(uses, value, [reshape, cast]);
  /** A write of tokens [R, T, K, D], and its start before it is repeated. */
  const writeBehind = (value: Value) => {
    const node = behind(value);
    if (!isNode(node, writeSlots)) return undefined;
    const [cache, update, start] = node.inputs;
    const moved = behindViews(uses, update, [cast]);
    if (!isNode(moved, transpose) || moved.attributes.order.join() !== "0,2,1,3") return undefined;
    const once = repeat.of(uses.maker(start))?.inputs.x ?? start;
    return { cache, tokens: moved.inputs[0], start: once, outputs: node.outputs };
  };
  return substitute(
    program,
    program.nodes.flatMap((node): Substitution[] => {
      if (!isNode(node, attentionOp)) return [];
      const [q, keys, values] = node.inputs;
      const rotated = rope.of(behind(q))?.inputs;
      const key = writeBehind(keys), value = writeBehind(values);
      const rotatedKey = key && rope.of(behind(key.tokens))?.inputs;
      if (!rotated || !value || !rotatedKey) return [];
      const { cos, sin } = rotated;
      const fits = rotatedKey.cos === cos && rotatedKey.sin === sin &&
        key.start === value.start && key.cache.dtype === dtype && value.cache.dtype === dtype;
      if (!fits) return [];
      return [{
        op: rotateAndWrite.op,
        inputs: [
          ...[key.cache, value.cache, rotated.x, rotatedKey.x, value.tokens, cos, sin, key.start],
        ],
        attributes: {},
        results: [[keys, ...key.outputs], [values, ...value.outputs], [q]],
      }];
    }),
  );
}

/** The node behind a value, past those of the ops `views`, which change its shape or type only. */
function behindViews(uses: Uses, value: Value, views: readonly Op[]): Node | undefined {
  const maker = uses.maker(value);
  return maker && views.includes(maker.op) ? behindViews(uses, maker.inputs[0]!, views) : maker;
}
