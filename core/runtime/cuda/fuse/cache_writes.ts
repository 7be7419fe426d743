/**
 * Rope of queries and keys and the writes of keys and values into the cache become one launch instead of
 * four; heads are read where they lie, without a transpose.
 *
 *   write_slots(cache, transpose(update), start)   →   write_tokens(cache, update, start)
 *
 *   q = rope(…);  keys = write_tokens(…, rope(…));  values = write_tokens(…)
 *                                                  →   keys, values, q = rotate_and_write(…)
 */
import { cast, reshape, transpose, writeSlots } from "../../../graph/primitives.ts";
import { isNode, type Node, type Op, type Program } from "../../../graph/program.ts";
import { substitute, type Substitution } from "../../../graph/substitute.ts";
import type { DType } from "../../../graph/types.ts";
import { Uses } from "../../../graph/uses.ts";
import type { Value } from "../../../graph/value.ts";
import { attentionOp } from "../../../ops/attention.ts";
import { modelOp } from "../../../ops/define.ts";
import { repeat, repeatStreams } from "../../../ops/repeat_streams.ts";
import { rope } from "../../../ops/rope.ts";

/**
 * cache [R, K, S, D], start [starts] i32 for every R / starts blocks of rows, update [R, T, K, D] where
 * tokens come first, else [R, K, T, D] → the cache, written where it lies
 */
export const writeTokens = modelOp<{ tokensFirst: boolean }>()({
  name: "write_tokens",
  inputs: ["cache", "update", "start"],
  infer: ({ cache }) => cache,
  decompose({ cache, update, start }, { tokensFirst }) {
    const heads = tokensFirst ? update.transpose([0, 2, 1, 3]) : update;
    const blocks = cache.shape[0]! / start.shape[0]!;
    return cache.writeSlots(heads.cast(cache.dtype), repeatStreams(start, blocks));
  },
  memory: "required",
});

/**
 * Projections q [R, T, H·D], k [R, T, K·D] and v [R, T, K, D], tables [R, T, D/2] → the two caches, and
 * the turned queries [R, T, H, D]
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
    const turned = rope({ x: k, cos, sin }, { heads: K }).reshape([R, T, K, D]);
    const write = (cache: Value, update: Value) =>
      writeTokens({ cache, update, start }, { tokensFirst: true });
    return [
      write(keyCache, turned),
      write(valueCache, v),
      rope({ x: q, cos, sin }, { heads }).reshape([R, T, heads, D]),
    ];
  },
  memory: "required",
});

/** Reads heads and starts where they lie before they are moved and repeated. */
export function writeInPlace(program: Program): Program {
  const uses = new Uses(program);
  return substitute(
    program,
    program.nodes.flatMap((node): Substitution[] => {
      if (!isNode(node, writeSlots)) return [];
      const [cache, update, start] = node.inputs;
      const moved = behindViews(uses, update, [cast]);
      const byToken = isNode(moved, transpose) && moved.attributes.order.join() === "0,2,1,3"
        ? moved.inputs[0]
        : undefined;
      const firstStart = repeat.of(uses.maker(start))?.inputs.x ?? start;
      return [{
        op: writeTokens.op,
        inputs: [cache, byToken ?? update, firstStart],
        attributes: { tokensFirst: byToken !== undefined },
        results: [node.outputs],
      }];
    }),
  );
}

/** Joins what one attention reads of a cache in the type `elements`. */
export function rotateWhileWriting(program: Program, elements: DType): Program {
  const uses = new Uses(program);
  const views: readonly Op[] = [reshape, cast];
  const behind = (value: Value) => behindViews(uses, value, views);
  return substitute(
    program,
    program.nodes.flatMap((node): Substitution[] => {
      if (!isNode(node, attentionOp)) return [];
      const [q, keys, values] = node.inputs;
      const turned = rope.of(behind(q));
      const [key, value] = [keys, values].map((each) => writeTokens.of(behind(each)));
      const turnedKey = key && rope.of(behind(key.inputs.update));
      if (!turned || !key || !value || !turnedKey) return [];
      const { x, cos, sin } = turned.inputs;
      const fits = key.attributes.tokensFirst && value.attributes.tokensFirst &&
        turnedKey.inputs.cos === cos && turnedKey.inputs.sin === sin &&
        key.inputs.start === value.inputs.start &&
        [key, value].every(({ inputs: { cache } }) => cache.dtype === elements);
      if (!fits) return [];
      return [{
        op: rotateAndWrite.op,
        inputs: [
          ...[key.inputs.cache, value.inputs.cache, x, turnedKey.inputs.x, value.inputs.update],
          ...[cos, sin, key.inputs.start],
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
