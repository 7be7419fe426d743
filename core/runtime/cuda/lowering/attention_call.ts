/** The inputs of one attention by name, and its sizes; see core/ops/attention.ts for the letters. */
import type { Attributes } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import type { Lowering } from "./lowering.ts";

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
  readonly numbers: Readonly<Record<string, number>>;
  readonly macros: { readonly HEAD_DIM: number };
}

/** Reads the inputs of an attention node, in the order of its op. */
export function attentionCall(
  l: Lowering,
  inputs: readonly Value[],
  { packed, paged }: Attributes,
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
  };
}
