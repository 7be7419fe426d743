/**
 * A program in parts, each on a session of its own, one after the other; see `core/graph/split.ts`.
 *
 * Most of the time to open a model goes into packing its matrices, which the library does on one thread
 * for each session: with two it takes half as long.
 */
import type { MemoryPlan, Section } from "../../../graph/memory_plan.ts";
import type { Node, Program } from "../../../graph/program.ts";
import { PASSING, splitProgram } from "../../../graph/split.ts";
import { elementCount, tensorBytes, type TensorType } from "../../../graph/types.ts";
import type { DeviceTensor, Executable, Weights } from "../../device.ts";

/** Elements of matrices that are worth a session of their own. */
const LEAST_ELEMENTS = 2 ** 24;

/** Two sessions decode as fast as one within 1 to 3%; four cost 6 to 13% of small models. */
const MOST_SESSIONS = 2;

/** Parts of a prepared program for a number of threads, of at least `least` elements of matrices each. */
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

/** Opens the parts of a program, all at once. */
export async function openChain(
  programs: readonly Program[],
  open: (part: Program) => Promise<Executable>,
  { weights, allocate }: {
    readonly weights: Weights;
    readonly allocate: (type: TensorType) => DeviceTensor;
  },
): Promise<Executable> {
  const executables = await Promise.all(programs.map(open));
  // What one part leaves for later ones is an output that the program itself does not have.
  const passed = new Map(
    programs.flatMap(({ outputs }) => [...outputs])
      .filter(([name]) => name.startsWith(PASSING))
      .map(([name, type]) => [name, allocate(type)]),
  );
  const parts = programs.map(({ inputs, parameters, state, outputs }, i) => ({
    executable: executables[i]!,
    names: [inputs, parameters, state, outputs]
      .flatMap((given) => [...given.keys()]).filter((name) => !weights.has(name)),
  }));
  return {
    async run(bindings) {
      for (const { executable, names } of parts) {
        const bound = names.flatMap((name): [string, DeviceTensor][] => {
          const tensor = bindings.get(name) ?? passed.get(name);
          return tensor ? [[name, tensor]] : [];
        });
        await executable.run(new Map(bound));
      }
    },
  };
}

/**
 * Memory plan of a program in parts: each session keeps its own weights, all share temporaries, and
 * what passes from one part to the next is kept besides. The plan has sizes of sections only.
 */
export function planOfParts(program: Program, plans: readonly MemoryPlan[]): MemoryPlan {
  const sum = (bytes: readonly number[]) => bytes.reduce((total, each) => total + each, 0);
  const all = (section: Section) => sum(plans.map(({ sections }) => sections[section]));
  const sections = {
    inputs: sum([...program.inputs.values()].map(tensorBytes)), // what passes is an output already
    parameters: all("parameters"),
    state: all("state"),
    outputs: all("outputs"),
    temporaries: Math.max(...plans.map((plan) => plan.sections.temporaries)),
  };
  return { placements: new Map(), sections, totalBytes: sum(Object.values(sections)) };
}
