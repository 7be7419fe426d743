/**
 * Program → program: several nodes become one that computes the same.
 *
 * A fusion finds places where it fits and says for each which op takes what and gives what; the node is
 * put where the first of the values it stands for was computed, or as soon after as its inputs are there.
 * Everything that reads one of those values later reads the new one, and what is then unread goes.
 */
import type { Op, Program } from "./program.ts";
import { dropUnread, rebuild } from "./rewrite.ts";
import type { Attributes } from "./types.ts";
import { Uses } from "./uses.ts";
import type { Value } from "./value.ts";

/** One node in place of several. */
export interface Substitution {
  readonly op: Op;
  /** Values of the program. */
  readonly inputs: readonly Value[];
  readonly attributes: Attributes;
  /** By output of the node, the values of the program that it stands for. */
  readonly results: readonly (readonly Value[])[];
}

/** Rewrites a program at every place that is given. */
export function substitute(program: Program, places: readonly Substitution[]): Program {
  if (places.length === 0) return program;
  const uses = new Uses(program);
  const made = (value: Value) => {
    const maker = uses.maker(value);
    return maker ? uses.place(maker) : -1;
  };
  const due = Map.groupBy(
    places,
    ({ inputs, results }) =>
      Math.max(...inputs.map((value) => made(value) + 1), Math.min(...results.flat().map(made))),
  );
  return dropUnread(rebuild(program, (g, node, inputs, names) => {
    for (const place of due.get(uses.place(node)) ?? []) {
      const outputs = g.apply(place.op, place.inputs.map(names.get), place.attributes);
      place.results.forEach((old, i) => old.forEach((value) => names.set(value, outputs[i]!)));
    }
    // The inputs may be among what has just been replaced.
    return g.apply(node.op, inputs.map((_, i) => names.get(node.inputs[i]!)), node.attributes);
  }));
}
