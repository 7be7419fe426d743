/** Outputs that are added up over runs. */
import type { Program } from "./program.ts";
import { rebuild } from "./rewrite.ts";
import type { Value } from "./value.ts";

/**
 * The program with the outputs in `names` as state tensors, to which every run adds. Each addition
 * follows the node that makes its term: at the end of the program, all terms would be in memory at once.
 */
export function accumulateOutputs(program: Program, names: Iterable<string>): Program {
  const outputs = new Map(program.outputs);
  const added = new Map<Value, string[]>();
  for (const name of names) {
    const value = outputs.get(name);
    if (!value) throw new TypeError(`cannot accumulate "${name}": no such output`);
    outputs.delete(name);
    added.getOrInsertComputed(value, () => []).push(name);
  }
  const accumulated = rebuild({ ...program, outputs }, (g, node, inputs) => {
    const made = g.apply(node.op, inputs, node.attributes);
    node.outputs.forEach((value, i) => {
      for (const name of added.get(value) ?? []) {
        const sum = g.state(name, value);
        g.update(name, sum.assign(sum.add(made[i]!)));
      }
      added.delete(value);
    });
    return made;
  });
  const [given] = added.values();
  if (given) throw new TypeError(`cannot accumulate "${given[0]}": no node computes it`);
  return accumulated;
}
