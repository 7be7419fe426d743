/**
 * Attention as launches.
 *
 * There are four ways, chosen by sizes alone, so that a captured launch stays valid:
 *
 *   split    few queries over many slots, as in decoding: the slots are shared out over blocks,
 *            which use tensor cores as well where heads fit
 *   mma      bf16 on tensor cores, where a head is a multiple of 16 and there are queries enough
 *   wgmma    the same on Hopper with heads of 64 or 128, where autotuning finds it faster
 *   simple   everything else, and many queries that read through a table
 */
import type { Value } from "../../../../graph/value.ts";
import { type AttentionAttributes, attentionOp } from "../../../../ops/attention.ts";
import { attentionWithStatistic } from "../../fuse/statistics.ts";
import type { Lowering } from "../../lowering.ts";
import type { Kernel } from "../define.ts";
import { listRule, type Rule } from "../rule.ts";
import { f32 } from "../sums.ts";
import {
  type AttentionCall,
  attentionCall,
  FEW_QUERIES,
  fitsTensorCores,
  usesTensorCores,
} from "./call.ts";
import { combine, mma, simple, split, splitMma, wgmma } from "./kernels.ts";

/** Slots from which sharing them out is worth a second launch. */
const MANY_SLOTS = 128;
/** Fewest slots of one block, and blocks that keep the largest devices busy. */
const [LEAST_CHUNK, ENOUGH_BLOCKS] = [64, 2 * 132];

/** Where there are few queries, many slots, and heads that it can read: the kernel that shares them out. */
function splitKernel(l: Lowering, call: AttentionCall): Kernel | undefined {
  const { G, T, S } = call.numbers;
  if (G * T > FEW_QUERIES || S < MANY_SLOTS) return undefined;
  if (l.elementType === "bf16") return fitsTensorCores(l, call) ? splitMma : undefined;
  return [4, 8, 16, 32, 64, 128].includes(call.macros.HEAD_DIM) ? split : undefined;
}

/** The kernel that takes all slots; on warpgroups where it could and the device wants it. */
function wholeKernel(l: Lowering, call: AttentionCall): Kernel {
  if (!usesTensorCores(l, call)) return simple;
  const { numbers, macros } = call;
  const fits = [64, 128].includes(macros.HEAD_DIM);
  return fits && l.choices.wgmma?.({ ...numbers, ...macros }) === true ? wgmma : mma;
}

/** The largest power of two of slots that leaves blocks enough. */
function chunkOf({ numbers: { rows, K, S, M } }: AttentionCall): number {
  const heads = rows * K;
  let chunk = LEAST_CHUNK;
  while (chunk < S && heads * (Math.sign(M) + S / (2 * chunk)) >= ENOUGH_BLOCKS) chunk *= 2;
  return chunk;
}

/** What shares of the slots give, by the kernel that combines them. */
function partials(l: Lowering, shared: Kernel, call: AttentionCall) {
  const { reads, numbers, macros, heads } = call;
  const chunk = chunkOf(call);
  const splits = Math.sign(numbers.M) + Math.ceil(numbers.S / chunk);
  const [partial, peaks, totals] = l.launch(shared, {
    reads,
    writes: {
      partial: f32(splits, heads, macros.HEAD_DIM),
      peaks: f32(splits, heads),
      totals: f32(splits, heads),
    },
    numbers: { ...numbers, chunk },
    macros,
  });
  return { reads: { partial, peaks, totals }, numbers: { heads, splits }, macros };
}

/** Attention of queries over a learned prefix and text, to `out` and, where it is kept, `normalizer`. */
function lowerAttention(
  l: Lowering,
  inputs: readonly Value[],
  attributes: AttentionAttributes,
  [out, normalizer]: readonly [Value, Value?, ...Value[]],
): Value[] {
  const call = attentionCall(l, inputs, attributes);
  const writes = { out: l.elements(out.shape), normalizer };
  const shared = splitKernel(l, call);
  return shared
    ? l.launch(combine, { ...partials(l, shared, call), writes })
    : l.launch(wholeKernel(l, call), { ...call, writes });
}

export const ATTENTION_RULES: readonly Rule[] = [attentionOp, attentionWithStatistic.forward].map(
  (op) => listRule<AttentionAttributes>(op, lowerAttention),
);
