/**
 * The primitive ops: the closed set every device must know and every derivative is written for.
 *
 * Each is exported as a function `(g, inputs…, static arguments) → Value`, so that model code and
 * decompositions read like the equations they implement. Elementwise ops broadcast as NumPy does;
 * negative axes count from the end and are made positive before they reach a node.
 */
export { broadcastShapes, PRIMITIVES } from "./primitives/define.ts";
export * from "./primitives/elementwise.ts";
export * from "./primitives/indexing.ts";
export * from "./primitives/movement.ts";
export * from "./primitives/products.ts";
