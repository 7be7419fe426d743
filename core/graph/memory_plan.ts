/**
 * Decides, before anything is allocated, where every tensor of a program lies.
 *
 * Values that share memory (a reshape and its source; an elementwise result written over an input
 * that is not needed any more; a state tensor and its update) form one *buffer*. Buffers of
 * parameters, state, inputs and outputs live for the whole run, each in its own section; the rest are
 * temporaries, packed into one arena so that two of them overlap only when their lifetimes do not.
 *
 * Easy to get wrong: an output may take the memory of an input only if every other reader of
 * that input comes earlier in the program. Breaking it gives silently wrong numbers.
 */
import type { Node, Program } from "./program.ts";
import { type DType, elementBytes, elementCount } from "./types.ts";
import type { Value } from "./value.ts";

/** Every offset is a multiple of this: a cache line, and enough for any vector load. */
const ALIGNMENT = 64;

/** Arena of a value. Constants count as temporaries. */
export type Section = "inputs" | "parameters" | "state" | "outputs" | "temporaries";

/** Place of one value. */
export interface Placement {
  readonly section: Section;
  /** Bytes from the start of the section. */
  readonly offset: number;
  readonly bytes: number;
}

/** Placement of every value, and the size of every section. */
export interface MemoryPlan {
  readonly placements: ReadonlyMap<Value, Placement>;
  /** Bytes of each section; their sum is what the program needs to run. */
  readonly sections: Readonly<Record<Section, number>>;
  readonly totalBytes: number;
}

/** Section and offset of a value: equal for values that share memory. */
export function placeOf({ placements }: MemoryPlan, value: Value): string {
  const { section, offset } = placements.get(value)!;
  return `${section}@${offset}`;
}

/** Storage of tensors on a device. */
export interface PlanOptions {
  readonly bytesOf?: (dtype: DType) => number;
  /** True if results may overwrite inputs where the op allows it. */
  readonly reuseInputs?: boolean;
}

interface Buffer {
  section: Section;
  bytes: number;
  /** First and last node index at which the buffer holds something needed. */
  first: number;
  last: number;
  offset: number;
  /** Everything that shares this memory so far. */
  readonly values: Value[];
}

/** Plans a program whose ops the device runs as they are. */
export function planMemory(program: Program, options: PlanOptions = {}): MemoryPlan {
  const { bytesOf = elementBytes, reuseInputs = true } = options;
  const size = (value: Value) => elementCount(value.shape) * bytesOf(value.dtype);
  const lastRead = lastReads(program);
  const buffers = new Map<Value, Buffer>();
  const all: Buffer[] = [];

  const place = (value: Value, section: Section, first: number) => {
    const last = section === "temporaries" ? first : program.nodes.length;
    const buffer = { section, bytes: size(value), first, last, offset: 0, values: [value] };
    all.push(buffer);
    buffers.set(value, buffer);
  };
  const outputs = new Set(program.outputs.values());
  for (const { op, inputs, outputs: results } of program.nodes.toReversed()) {
    if (op.memory !== "required") continue;
    // What is finished in place begins in the same place.
    results.forEach((value, i) => outputs.has(value) && outputs.add(inputs[i]!));
  }
  for (const value of program.inputs.values()) place(value, "inputs", -1);
  for (const value of program.parameters.values()) place(value, "parameters", -1);
  for (const value of program.state.values()) place(value, "state", -1);

  program.nodes.forEach((node, index) => {
    node.outputs.forEach((value, i) => {
      const input = i === 0 || node.op.memory === "required" ? node.inputs[i] : undefined;
      const source = input && buffers.get(input);
      if (source && sharesMemory(node, index, source, size(value))) {
        buffers.set(value, source);
        source.values.push(value);
      } else place(value, outputs.has(value) ? "outputs" : "temporaries", index);
      const buffer = buffers.get(value)!;
      buffer.last = Math.max(buffer.last, lastRead.get(value) ?? index);
    });
  });
  for (const [name, value] of program.updates) {
    if (buffers.get(value) !== buffers.get(program.state.get(name)!)) {
      throw new TypeError(`cannot update "${name}" in place: its new value lies elsewhere`);
    }
  }

  function sharesMemory(node: Node, index: number, source: Buffer, bytes: number): boolean {
    if (node.op.memory === "view") return !outputs.has(node.outputs[0]!);
    if (node.op.memory === "required") {
      if (source.values.some((value) => (lastRead.get(value) ?? index) > index)) {
        throw new TypeError(
          `cannot run "${node.op.name}" in place: its input is read by a later node`,
        );
      }
      return true;
    }
    return node.op.memory === "allowed" && reuseInputs && source.section === "temporaries" &&
      source.last === index && source.bytes === bytes && !outputs.has(node.outputs[0]!);
  }
  return finish(buffers, all);
}

/** Index of the last node that reads each value. */
function lastReads(program: Program): Map<Value, number> {
  const last = new Map<Value, number>();
  program.nodes.forEach((node, index) => node.inputs.forEach((value) => last.set(value, index)));
  for (const value of [...program.outputs.values(), ...program.updates.values()]) {
    last.set(value, program.nodes.length);
  }
  return last;
}

/** Gives each buffer its offset: resident sections end to end, temporaries largest first. */
function finish(buffers: Map<Value, Buffer>, all: Buffer[]): MemoryPlan {
  const align = (bytes: number) => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
  const sections = { inputs: 0, parameters: 0, state: 0, outputs: 0, temporaries: 0 };
  const placed: Buffer[] = [];
  const temporaries = all.filter((buffer) => buffer.section === "temporaries");
  for (const buffer of all) {
    if (buffer.section === "temporaries") continue;
    buffer.offset = sections[buffer.section];
    sections[buffer.section] += align(buffer.bytes);
  }
  for (const buffer of temporaries.sort((a, b) => b.bytes - a.bytes)) {
    // Lowest gap among the buffers alive at the same time; `placed` is kept in offset order.
    let offset = 0;
    for (const other of placed) {
      if (other.last < buffer.first || other.first > buffer.last) continue;
      if (other.offset - offset >= align(buffer.bytes)) break;
      offset = Math.max(offset, other.offset + align(other.bytes));
    }
    buffer.offset = offset;
    const at = placed.findIndex((other) => other.offset > offset);
    placed.splice(at < 0 ? placed.length : at, 0, buffer);
    sections.temporaries = Math.max(sections.temporaries, offset + align(buffer.bytes));
  }
  const placements = new Map<Value, Placement>();
  for (const [value, { section, offset, bytes }] of buffers) {
    placements.set(value, { section, offset, bytes });
  }
  const totalBytes = Object.values(sections).reduce((total, bytes) => total + bytes, 0);
  return { placements, sections, totalBytes };
}
