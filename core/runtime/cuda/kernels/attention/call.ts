/** The inputs of one attention by name, its sizes, and what they fit. */
import type { AttentionAttributes } from "../../../../ops/attention.ts";
import type { Value } from "../../../../graph/value.ts";
import type { Lowering } from "../../lowering.ts";

/** Queries of a key head: up to here the slots are what takes time, from here on the products. */
export const FEW_QUERIES = 16;

/** Sizes by their letters, as kernels take them. */
export type AttentionSizes = Readonly<
  Record<"R" | "B" | "T" | "S" | "K" | "G" | "M" | "rows" | "P" | "scale", number>
>;

/** One attention on its way to a launch. */
export interface AttentionCall {
  /** What the kernels read, by the names of their arguments. */
  readonly reads: {
    readonly q: Value;
    readonly keys: Value;
    readonly values: Value;
    readonly first: Value | undefined;
    readonly last: Value;
    readonly table: Value | undefined;
    readonly prefixKeys: Value | undefined;
    readonly prefixValues: Value | undefined;
  };
  readonly numbers: AttentionSizes;
  readonly macros: { readonly HEAD_DIM: number };
  /** Heads of all queries: rows · T · H. */
  readonly heads: number;
}

/** Reads the inputs of an attention node, in the order of its op. */
export function attentionCall(
  l: Lowering,
  inputs: readonly Value[],
  { packed, paged }: AttentionAttributes,
): AttentionCall {
  const [q, keys, values, last, ...rest] = inputs as [Value, Value, Value, Value, ...Value[]];
  const first = packed ? rest.shift() : undefined;
  const table = paged ? rest.shift() : undefined;
  const [prefixKeys, prefixValues] = rest;
  const [R, T, H, D] = q.shape as [number, number, number, number];
  const [, K, S] = keys.shape as [number, number, number];
  const B = last.shape[0]!;
  const P = prefixKeys ? prefixKeys.shape[0]! : R / B;
  if (D % 4 !== 0 || D > 128) {
    throw new TypeError(
      `a head size of ${D} is not supported on this device, expected a multiple of 4 up to 128`,
    );
  }
  return {
    reads: {
      q: l.element(q),
      keys: l.element(keys),
      values: l.element(values),
      first: first && l.get(first),
      last: l.get(last),
      table: table && l.get(table),
      prefixKeys: prefixKeys && l.element(prefixKeys),
      prefixValues: prefixValues && l.element(prefixValues),
    },
    numbers: {
      ...{ R, B, T, S, K, G: H / K, M: prefixKeys ? prefixKeys.shape[2]! : 0 },
      ...{ rows: P * B, P, scale: D ** -0.5 },
    },
    macros: { HEAD_DIM: D },
    heads: P * B * T * H,
  };
}

/** Whether heads fit the products of tensor cores, and the sums of a query into registers. */
export function fitsTensorCores(l: Lowering, { macros: { HEAD_DIM } }: AttentionCall): boolean {
  return l.elementType === "bf16" && HEAD_DIM % 16 === 0 && HEAD_DIM <= 128;
}

/** Whether there are also queries enough, and none reads through a table. */
export function usesTensorCores(l: Lowering, call: AttentionCall): boolean {
  const { G, T } = call.numbers;
  return fitsTensorCores(l, call) && G * T >= FEW_QUERIES && !call.reads.table;
}
