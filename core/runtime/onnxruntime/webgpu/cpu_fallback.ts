/**
 * The part of a program that is computed on the processor: sines and cosines, and what leads to them.
 *
 * WGSL promises a sine only to 2^-11, and only for angles up to π; the position of a late token is
 * thousands of turns away. Their tables are small and depend on nothing but positions, so plain
 * TypeScript computes them, as the reference device does, and they are bound as inputs.
 */
import { dropUnread } from "../../../graph/rewrite.ts";
import type { Node, Program } from "../../../graph/program.ts";
import { elementCount } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import type { Bindings, HostTensor, Weights } from "../../device.ts";
import { ReferenceDevice } from "../../reference/device.ts";
import type { GpuTensor } from "./tensor.ts";

/** A program in two parts. */
export interface Split {
  /** Part that stays on the processor; its outputs are inputs of `rest`. */
  readonly host: Program | undefined;
  readonly rest: Program;
}

/** Takes out the nodes that `stays` picks, with all they need. */
export function split(program: Program, stays: (node: Node) => boolean): Split {
  const picked = program.nodes.filter(stays);
  if (picked.length === 0) return { host: undefined, rest: program };
  const results = new Map(picked.map(({ outputs }, i) => [`host.${i}`, outputs[0]!]));
  const rest = dropUnread({
    ...program,
    inputs: new Map([...program.inputs, ...results]),
    nodes: program.nodes.filter((node) => !stays(node)),
  });
  const host = dropUnread({ ...program, updates: new Map(), outputs: results });
  const read = new Set<Value>(host.nodes.flatMap(({ inputs }) => inputs));
  const only = (values: ReadonlyMap<string, Value>) =>
    new Map([...values].filter(([, value]) => read.has(value)));
  return {
    host: {
      ...host,
      inputs: only(new Map([...program.inputs, ...program.state])),
      parameters: only(program.parameters),
      state: new Map(),
    },
    rest,
  };
}

/** The part on the processor, ready to run. */
export interface CpuFallback {
  /** Results on the GPU, by the names under which the rest expects them. */
  readonly results: ReadonlyMap<string, GpuTensor>;
  /** Computes the results from the tensors that the whole program is run with. */
  run(bindings: Bindings): Promise<void>;
}

/** Makes the part runnable; `allocate` gives it tensors for its results. */
export async function compileFallback(
  program: Program,
  weights: Weights,
  allocate: (value: Value) => GpuTensor,
): Promise<CpuFallback> {
  const executable = await new ReferenceDevice("f32").compile(program, weights);
  const results = new Map([...program.outputs].map(([name, value]) => [name, allocate(value)]));
  const run = async (bindings: Bindings) => {
    const host = new Map<string, HostTensor>();
    for (const values of [program.inputs, program.parameters]) {
      for (const [name, { dtype, shape }] of values) {
        const bound = bindings.get(name) as GpuTensor | undefined;
        if (bound) host.set(name, { dtype, shape, data: bound.read() });
      }
    }
    for (const [name, { dtype, shape }] of program.outputs) {
      host.set(name, { dtype, shape, data: new Float32Array(elementCount(shape)) });
    }
    await executable.run(host);
    for (const [name, tensor] of results) tensor.write(host.get(name)!.data);
  };
  return { results, run };
}
