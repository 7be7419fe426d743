/**
 * A program in parts, each on a session of its own, one after the other; see `core/graph/split.ts`.
 *
 * Most of the time to open a model goes into packing its matrices, which the library does on one thread
 * for each session: with two sessions it takes half as long.
 */
import type { MemoryPlan, Section } from "../../../graph/memory_plan.ts";
import type { Node, Program } from "../../../graph/program.ts";
import { splitProgram } from "../../../graph/split.ts";
import { elementCount, tensorBytes } from "../../../graph/types.ts";
import type { Bindings, DeviceTensor, Executable, Weights } from "../../device.ts";

/** Elements of matrices that are worth a session of their own, and sessions at most. */
const [LEAST_ELEMENTS, MOST_SESSIONS] = [2 ** 24, 4];

/** Parts of a prepared program for a device with some threads, of at least `least` elements each. */
export function partsOf(
  program: Program,
  weights: Weights,
  { threads, least = LEAST_ELEMENTS }: {
    readonly threads: number;
    readonly least?: number | undefined;
  },
): Program[] {
  const fixed = new Map([...program.parameters].map(([name, value]) => [value, weights.has(name)]));
  const cost = ({ op, inputs: [, weight] }: Node) =>
    op.name === "linear" && fixed.get(weight!) ? elementCount(weight!.shape) : 0;
  const elements = program.nodes.reduce((sum, node) => sum + cost(node), 0);
  const parts = Math.min(threads, MOST_SESSIONS, Math.floor(elements / least));
  return parts > 1 ? splitProgram(program, { parts, cost }) : [program];
}

/**
 * What a program in parts needs: each session keeps its own weights and temporaries, and what passes from
 * one part to the next is kept besides. The plans have sizes of sections only.
 */
export function planOfParts(program: Program, plans: readonly MemoryPlan[]): MemoryPlan {
  const sum = (bytes: readonly number[]) => bytes.reduce((total, each) => total + each, 0);
  const all = (section: Section) => sum(plans.map(({ sections }) => sections[section]));
  const sections = {
    inputs: sum([...program.inputs.values()].map(tensorBytes)), // what passes is an output already
    parameters: all("parameters"),
    state: all("state"),
    outputs: all("outputs"),
    temporaries: all("temporaries"),
  };
  return { placements: new Map(), sections, totalBytes: sum(Object.values(sections)) };
}

/** One part, and the names that it is bound to. */
interface Part {
  readonly executable: Executable;
  readonly names: readonly string[];
}

export class ChainedExecutable implements Executable {
  readonly #parts: readonly Part[];
  /** What one part leaves for later ones. */
  readonly #passed: ReadonlyMap<string, DeviceTensor>;

  /** `passed` holds a tensor for every output of a part that the whole program does not have. */
  constructor(
    parts: readonly { readonly program: Program; readonly executable: Executable }[],
    weights: Weights,
    passed: ReadonlyMap<string, DeviceTensor>,
  ) {
    this.#passed = passed;
    this.#parts = parts.map(({ program, executable }) => ({
      executable,
      names: [program.inputs, program.parameters, program.state, program.outputs]
        .flatMap((given) => [...given.keys()]).filter((name) => !weights.has(name)),
    }));
  }

  async run(bindings: Bindings): Promise<void> {
    for (const { executable, names } of this.#parts) {
      const bound = names.flatMap((name): [string, DeviceTensor][] => {
        const tensor = bindings.get(name) ?? this.#passed.get(name);
        return tensor ? [[name, tensor]] : [];
      });
      await executable.run(new Map(bound));
    }
  }
}
