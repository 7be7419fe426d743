/**
 * The primitive ops: the closed set every device must know and every derivative is written for. They are
 * applied by the methods of `Value`.
 */
import { ELEMENTWISE } from "./primitives/elementwise.ts";
import { INDEXING } from "./primitives/indexing.ts";
import { MOVEMENT } from "./primitives/movement.ts";
import { PRODUCTS } from "./primitives/products.ts";
import type { Primitive } from "./types.ts";

export { broadcastShapes } from "./primitives/shapes.ts";

export const { add, sub, mul, div, lessEqual, exp, log, sqrt, sin, cos, sigmoid } = ELEMENTWISE;
export const { select, cast, constant, iota } = ELEMENTWISE;
export const { gather, takeLast, scatterAdd, addLast, assign, writeSlots } = INDEXING;
export const { reshape, transpose, broadcast, slice, concat, recompute } = MOVEMENT;
export const { sum, max, argmax, matmul } = PRODUCTS;

const ALL = { ...ELEMENTWISE, ...INDEXING, ...MOVEMENT, ...PRODUCTS };

/** Names of the primitives; a device's table of rules has an entry for each. */
export type PrimitiveName = typeof ALL[keyof typeof ALL]["name"];

/** Attributes of the primitive of this name, in which its entry of a table of rules reads them. */
export type AttributesOf<N extends PrimitiveName> =
  Extract<typeof ALL[keyof typeof ALL], { readonly name: N }> extends Primitive<infer A> ? A
    : never;

/** All primitives by name. */
export const PRIMITIVES: ReadonlyMap<string, Primitive> = new Map(
  Object.values(ALL).map((op) => [op.name, op as Primitive]),
);
