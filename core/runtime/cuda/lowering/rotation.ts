/**
 * Rotary embedding, and all that lies between projections and attention as one launch.
 *
 * In a layer with a cache queries and keys are turned, and keys and values written where attention reads
 * them: four launches over little memory, of which a decoding step would have four per layer. Attention
 * knows all of them, so that is where they are found, and lowered a second time, as one; what was
 * lowered before is then unread.
 */
import type { Node } from "../../../graph/program.ts";
import type { Value } from "../../../graph/value.ts";
import type { Lowering, Rule } from "./lowering.ts";

export const rope: Rule = (l, { inputs: [source, cosines, sines], outputs: [y], attributes }) => {
  const heads = attributes.heads as number;
  const [R, T, width] = source!.shape as [number, number, number];
  return l.launch("rope", {
    reads: { x: l.element(source!), cosines: l.wide(cosines!), sines: l.wide(sines!) },
    writes: { y: l.elements(y!.shape) },
    numbers: { rows: R * T, heads, half: width / heads / 2, direction: 1 },
    reuse: "x",
  });
};

/** How an update of a cache comes about. */
export interface SlotWrite {
  readonly cache: Value;
  /** Slot of the first token of each sequence, [starts] */
  readonly start: Value;
  /** [R, T, K, D] where tokens come first, else [R, K, T, D] */
  readonly update: Value;
  readonly byToken: boolean;
}

/** What a `write_slots` node writes, before its heads are moved behind each other. */
export function slotWriteOf(l: Lowering, { inputs }: Node): SlotWrite {
  const [cache, update, start] = inputs as [Value, Value, Value];
  const maker = l.maker(update);
  const uncast = maker?.op.name === "cast" ? l.maker(maker.inputs[0]!) : maker;
  const byToken = uncast?.op.name === "transpose" &&
    (uncast.attributes.order as number[]).join() === "0,2,1,3";
  const repeated = l.maker(start);
  return {
    cache,
    start: repeated?.op.name === "repeat_streams" ? repeated.inputs[0]! : start,
    update: byToken ? uncast.inputs[0]! : update,
    byToken,
  };
}

/** Lets an attention node read queries and caches that one launch made, where they fit its kernel. */
export function rotateTogether(l: Lowering, { inputs }: Node): void {
  const [q, keys, values] = inputs as [Value, Value, Value];
  const [turned, ...writes] = [origin(l, q), origin(l, keys), origin(l, values)];
  if (turned?.op.name !== "rope") return;
  if (!writes.every((write) => write?.op.name === "write_slots")) return;
  const [key, value] = writes.map((write) => slotWriteOf(l, write!)) as [SlotWrite, SlotWrite];
  const turnedKey = key.byToken && value.byToken ? origin(l, key.update) : undefined;
  const [, cosines, sines] = turned.inputs as [Value, Value, Value];
  const fits = turnedKey?.op.name === "rope" && turnedKey.inputs[1] === cosines &&
    turnedKey.inputs[2] === sines && key.start === value.start &&
    [key, value].every(({ cache }) => l.get(cache).dtype === l.elementType);
  if (!fits) return;
  const [R, T, H, D] = q.shape as [number, number, number, number];
  const [, K, S] = keys.shape as [number, number, number];
  const [keyCache, valueCache, y] = l.launch("rope_write_slots", {
    updates: { keyCache: l.get(key.cache), valueCache: l.get(value.cache) },
    reads: {
      q: l.element(turned.inputs[0]!),
      k: l.element(turnedKey.inputs[0]!),
      v: l.element(value.update),
      cosines: l.wide(cosines),
      sines: l.wide(sines),
      start: l.get(key.start),
    },
    writes: { y: l.elements(q.shape) },
    numbers: { R, starts: key.start.shape[0]!, T, H, K, S, half: D / 2 },
  });
  l.replace(q, y!);
  for (
    const [read, write, cache] of [[keys, writes[0]!, keyCache!], [
      values,
      writes[1]!,
      valueCache!,
    ]] as const
  ) {
    l.replace(read, cache);
    l.replace(write.outputs[0]!, cache);
  }
}

/** The node behind a value, past those that change its shape or type only. */
function origin(l: Lowering, value: Value): Node | undefined {
  const maker = l.maker(value);
  const passes = maker?.op.name === "reshape" || maker?.op.name === "cast";
  return passes ? origin(l, maker.inputs[0]!) : maker;
}
