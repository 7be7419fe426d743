/**
 * Attention and its gradient as launches.
 *
 * There are four ways, chosen by sizes alone, so that a captured launch stays valid:
 *
 *   split    few queries over many slots, as in decoding: the slots are shared out over blocks,
 *            which use tensor cores as well where heads fit
 *   mma      bf16 on tensor cores, where a head is a multiple of 16 and there are queries enough
 *   wgmma    the same on Hopper with heads of 64 or 128, where autotuning finds it faster
 *   simple   everything else, and many queries that read through a table
 *
 * The gradient has no split of its own, since training has no single queries.
 */
import type { Value } from "../../../graph/value.ts";
import { type AttentionCall, attentionCall } from "./attention_call.ts";
import { f32, gradientRule, sumPartials } from "./gradient_rule.ts";
import type { Lowering, Rule } from "./lowering.ts";
import { rotateTogether } from "./rotation.ts";

/** Queries of a key head: up to here the slots are what takes time, from here on the products. */
const FEW_QUERIES = 16;
/** Slots from which sharing them out is worth a second launch. */
const MANY_SLOTS = 128;
/** Fewest slots of one block, and blocks that keep the largest devices busy. */
const [LEAST_CHUNK, ENOUGH_BLOCKS] = [64, 2 * 132];
/** Tiles of queries that are worth a partial sum of their own. */
const ITEMS_PER_CHUNK = 4;

/** Whether heads fit the products of tensor cores, and the sums of a query into registers. */
function fitsTensorCores(l: Lowering, { macros: { HEAD_DIM } }: AttentionCall): boolean {
  return l.elementType === "bf16" && HEAD_DIM % 16 === 0 && HEAD_DIM <= 128;
}

function usesTensorCores(l: Lowering, call: AttentionCall): boolean {
  const { G, T } = call.numbers as { G: number; T: number };
  return fitsTensorCores(l, call) && G * T >= FEW_QUERIES && !call.reads.table;
}

/** Whether it runs on warpgroups, which the device decides where it can. */
function usesWarpgroups(l: Lowering, call: AttentionCall): boolean {
  const { numbers, macros } = call;
  const fits = usesTensorCores(l, call) && [64, 128].includes(macros.HEAD_DIM);
  return fits && l.choices.wgmma?.({ ...numbers, ...macros }) === true;
}

/** Whether there are few queries, many slots, and heads that the kernel of the type can read. */
function splits(l: Lowering, call: AttentionCall): boolean {
  const { G, T, S } = call.numbers as { G: number; T: number; S: number };
  const fits = l.elementType === "bf16"
    ? fitsTensorCores(l, call)
    : [4, 8, 16, 32, 64, 128].includes(call.macros.HEAD_DIM);
  return G * T <= FEW_QUERIES && S >= MANY_SLOTS && fits;
}

/** The largest power of two of slots that leaves blocks enough. */
function chunkOf({ numbers }: AttentionCall): number {
  const { rows, K, S, M } = numbers as Record<string, number>;
  const heads = rows! * K!;
  let chunk = LEAST_CHUNK;
  while (chunk < S! && heads * (Math.sign(M!) + S! / (2 * chunk)) >= ENOUGH_BLOCKS) chunk *= 2;
  return chunk;
}

function splitAttention(l: Lowering, call: AttentionCall, y: Value, saves: boolean): Value[] {
  const { reads, numbers, macros } = call;
  const { rows, T, K, G, S, M } = numbers as Record<string, number>;
  const chunk = chunkOf(call);
  const count = Math.sign(M!) + Math.ceil(S! / chunk);
  const heads = rows! * T! * K! * G!;
  const entry = l.elementType === "bf16" ? "attention_split_mma" : "attention_split";
  const [partial, peaks, totals] = l.launch(entry, {
    reads,
    writes: {
      partial: f32(count, heads, macros.HEAD_DIM),
      peaks: f32(count, heads),
      totals: f32(count, heads),
    },
    numbers: { ...numbers, chunk },
    macros,
  });
  return l.launch("attention_combine", {
    reads: { partial, peaks, totals },
    writes: attentionWrites(l, call, y, saves),
    numbers: { heads, splits: count },
    macros,
  });
}

function attentionWrites(l: Lowering, { numbers }: AttentionCall, y: Value, saves: boolean) {
  const { rows, T, K, G } = numbers as Record<string, number>;
  const normalizer = saves ? f32(rows!, T!, K! * G!) : undefined;
  return { out: l.elements(y.shape), normalizer };
}

/** Attention of queries over a learned prefix and text. */
export const attention: Rule = (l, node) => {
  rotateTogether(l, node);
  const call = attentionCall(l, node.inputs, node.attributes);
  const [y] = node.outputs as [Value];
  const saves = l.isDifferentiated(node);
  const { reads, numbers, macros } = call;
  const whole = () => {
    const mma = usesTensorCores(l, call) ? "attention_mma" : "attention";
    const entry = usesWarpgroups(l, call) ? "attention_wgmma" : mma;
    return l.launch(entry, { reads, writes: attentionWrites(l, call, y, saves), numbers, macros });
  };
  const [out, normalizer] = splits(l, call) ? splitAttention(l, call, y, saves) : whole();
  if (saves) l.save(y, normalizer!);
  return [out!];
};

/** The gradient of `attention`. */
export const attentionGradient = gradientRule((l, { inputs, output, upstream, attributes }) => {
  if (attributes.paged) throw new TypeError("cannot differentiate attention through a table");
  const call = attentionCall(l, inputs, attributes);
  const { reads, numbers, macros } = call;
  const { rows, T, K, G } = numbers as Record<string, number>;
  const [dout, normalizer] = [l.element(upstream), l.savedBy(output)];
  const heads = rows! * T! * K! * G!;
  const [delta] = l.launch("attention_delta", {
    reads: { dout, out: l.element(output) },
    writes: { delta: f32(heads) },
    numbers: { heads },
    macros,
  });
  const all = { ...reads, dout, normalizer, delta };
  const suffix = usesTensorCores(l, call) ? "_mma" : "";
  const like = (value: Value) => l.elements(value.shape);
  const byQueries = once(() => {
    const writes = { dq: like(reads.q) };
    return l.launch(`attention_queries${suffix}`, { reads: all, writes, numbers, macros });
  });
  const byKeys = once(() => {
    const writes = { dkeys: like(reads.keys), dvalues: like(reads.values) };
    return l.launch(`attention_keys${suffix}`, { reads: all, writes, numbers, macros });
  });
  const byPrefix = once(() => prefixGradients(l, call, all, suffix));
  const prefix = attributes.packed ? 5 : 4; // number of the input that holds the prefix keys
  return (input) => {
    if (input === 0) return byQueries()[0]!;
    return input < 3 ? byKeys()[input - 1]! : byPrefix()[input - prefix]!;
  };
});

/** Few slots and all queries: the queries are shared out, and what each share gives is added up. */
function prefixGradients(
  l: Lowering,
  { reads: { prefixKeys }, numbers, macros }: AttentionCall,
  reads: Readonly<Record<string, Value | undefined>>,
  suffix: string,
): Value[] {
  const { P, B, T, K, G, M } = numbers as Record<string, number>;
  const tile = suffix && macros.HEAD_DIM <= 64 ? 32 : 16;
  const items = B! * Math.ceil(G! * T! / tile);
  const wanted = Math.ceil(ENOUGH_BLOCKS / (P! * K! * Math.ceil(M! / (suffix ? 64 : 16))));
  const chunks = Math.min(wanted, Math.ceil(items / ITEMS_PER_CHUNK));
  const size = P! * K! * M! * macros.HEAD_DIM;
  const partials = l.launch(`attention_prefix${suffix}`, {
    reads,
    writes: { partialKeys: f32(chunks, size), partialValues: f32(chunks, size) },
    numbers: { ...numbers, chunks },
    macros,
  });
  return partials.map((partial) =>
    l.view(chunks > 1 ? sumPartials(l, partial) : partial, prefixKeys!.shape)
  );
}

/** Makes something when it is first asked for. */
function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => made ??= make();
}
