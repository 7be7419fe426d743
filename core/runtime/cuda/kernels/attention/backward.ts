/**
 * The gradient of attention as launches: by queries, by keys and values, and by the prefix, whose few slots
 * see all queries. It has no split of its own, since training has no single queries.
 */
import type { GradientAttributes } from "../../../../graph/differentiate.ts";
import type { Value } from "../../../../graph/value.ts";
import type { AttentionAttributes } from "../../../../ops/attention.ts";
import { attentionWithStatistic } from "../../fuse/statistics.ts";
import type { Lowering } from "../../lowering.ts";
import { listRule, once, type Rule } from "../rule.ts";
import { f32, sumPartials } from "../sums.ts";
import { type AttentionCall, attentionCall, usesTensorCores } from "./call.ts";
import { backward, type BackwardKernels, backwardMma, delta as deltaKernel } from "./kernels.ts";

/** Blocks that keep the largest devices busy, and tiles of queries worth a partial sum of their own. */
const [ENOUGH_BLOCKS, ITEMS_PER_CHUNK] = [2 * 132, 4];

/** What the three kernels read. */
type Reads = Readonly<Record<string, Value | undefined>>;

/** The queries are shared out, and what each share gives is added up. */
function prefixGradients(
  l: Lowering,
  kernels: BackwardKernels,
  { reads: { prefixKeys }, numbers, macros }: AttentionCall,
  reads: Reads,
): Value[] {
  const { P, B, T, K, G, M } = numbers;
  const queries = kernels === backwardMma && macros.HEAD_DIM <= 64 ? 32 : 16;
  const items = B * Math.ceil(G * T / queries);
  const wanted = Math.ceil(ENOUGH_BLOCKS / (P * K * Math.ceil(M / kernels.tile)));
  const chunks = Math.min(wanted, Math.ceil(items / ITEMS_PER_CHUNK));
  const size = P * K * M * macros.HEAD_DIM;
  const partials = l.launch(kernels.prefix, {
    reads,
    writes: { partialKeys: f32(chunks, size), partialValues: f32(chunks, size) },
    numbers: { ...numbers, chunks },
    macros,
  });
  return partials.map((partial) =>
    l.view(chunks > 1 ? sumPartials(l, partial) : partial, prefixKeys!.shape)
  );
}

/** Inputs are those of attention, then its output, the upstream gradient and the normalizer. */
function lowerGradient(
  l: Lowering,
  all: readonly Value[],
  { op, wanted }: GradientAttributes,
): Value[] {
  const attributes = op as AttentionAttributes;
  if (attributes.paged) throw new TypeError("cannot differentiate attention through a table");
  const [output, upstream, normalizer] = all.slice(-3) as [Value, Value, Value];
  const call = attentionCall(l, all.slice(0, -3), attributes);
  const { reads, numbers, macros, heads } = call;
  const dout = l.element(upstream);
  const [delta] = l.launch(deltaKernel, {
    reads: { dout, out: l.element(output) },
    writes: { delta: f32(heads) },
    numbers: { heads },
    macros,
  });
  const read: Reads = { ...reads, dout, normalizer: l.get(normalizer), delta };
  const kernels = usesTensorCores(l, call) ? backwardMma : backward;
  const like = (value: Value) => l.elements(value.shape);
  const byQueries = once(() => {
    const writes = { dq: like(reads.q) };
    return l.launch(kernels.queries, { reads: read, writes, numbers, macros });
  });
  const byKeys = once(() => {
    const writes = { dkeys: like(reads.keys), dvalues: like(reads.values) };
    return l.launch(kernels.keys, { reads: read, writes, numbers, macros });
  });
  const byPrefix = once(() => prefixGradients(l, kernels, call, read));
  const prefix = attributes.packed ? 5 : 4; // number of the input that holds the prefix keys
  return wanted.map((input) => {
    if (input === 0) return byQueries()[0]!;
    return input < 3 ? byKeys()[input - 1]! : byPrefix()[input - prefix]!;
  });
}

export const ATTENTION_GRADIENT: Rule = listRule(
  attentionWithStatistic.backward,
  lowerGradient,
);
