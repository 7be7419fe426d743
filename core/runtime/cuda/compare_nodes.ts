/**
 * The nodes of a program, each alone on a device beside the reference: the first kernel that is wrong is
 * found by its op, whatever the ones after it make of its result.
 *
 * The program is fused as the device would fuse it, and computed node by node on the reference; each node
 * gets the reference's values as inputs, rounded to the compute dtype, so that what differs is the kernel's
 * own rounding. Nodes of equal op, attributes and types are compared once.
 */
import { fromF32, toF32 } from "../../base/dtype.ts";
import { NumericalError } from "../../base/errors.ts";
import { Builder } from "../../graph/builder.ts";
import type { Node, Program } from "../../graph/program.ts";
import { formatType, type TensorType } from "../../graph/types.ts";
import type { Value } from "../../graph/value.ts";
import type { Device, HostArray } from "../device.ts";
import { fusedFor } from "./lower.ts";
import type { ComputeType } from "./memory.ts";

/** A node on the device beside the reference. */
export interface NodeComparison {
  readonly op: string;
  /** Largest difference, relative to the largest number expected. */
  readonly difference: number;
}

/**
 * Compares the nodes of a program. An error of a node says its op and types.
 * @param data the program's inputs, parameters and states by name
 * @param seen the nodes that were compared before, in this program and in others
 * @param once false if a second run, of a captured graph, has to give the same bits
 */
export async function* compareNodes(
  device: Device & { readonly cacheType: ComputeType },
  reference: Device,
  { program, data, seen, once }: {
    readonly program: Program;
    readonly data: ReadonlyMap<string, ArrayLike<number>>;
    readonly seen: Set<string>;
    readonly once: boolean;
  },
): AsyncGenerator<NodeComparison> {
  const fused = fusedFor(program, device.cacheType);
  const values = new Map<Value, ArrayLike<number>>();
  for (const given of [fused.inputs, fused.parameters, fused.state]) {
    for (const [name, value] of given) values.set(value, data.get(name)!);
  }
  for (const node of fused.nodes) {
    const inputs = node.inputs.map((value) => {
      const data = values.get(value)!;
      return value.dtype === "f32" ? roundTo(device.cacheType, data) : data;
    });
    const [expected] = await runNode(reference, node, inputs, { isReference: true, times: 1 });
    node.outputs.forEach((value, i) => values.set(value, expected![i]!));
    const types = [...node.inputs, ...node.outputs].map(formatType);
    const key = `${node.op.name} ${types} ${JSON.stringify(node.attributes)}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const given = { inputs, expected: expected!, times: once ? 1 : 2 };
    const difference = await compareNode(device, node, given).catch((error: Error) => {
      error.message = `op ${node.op.name} of ${types.join(", ")}: ${error.message}`;
      throw error;
    });
    yield { op: node.op.name, difference };
  }
}

/** Runs a node on the device. @throws {NumericalError} if results of two runs differ */
async function compareNode(
  device: Device,
  node: Node,
  { inputs, expected, times }: {
    readonly inputs: readonly ArrayLike<number>[];
    readonly expected: readonly ArrayLike<number>[];
    readonly times: number;
  },
): Promise<number> {
  const [found, again] = await runNode(device, node, inputs, { isReference: false, times });
  if (again && !areSame(found!, again)) throw new NumericalError("two runs differ");
  return Math.max(...expected.map((each, i) => relativeDifference(found![i]!, each)));
}

/** Largest difference of two tensors, relative to the largest number of the second; NaN if one has any. */
export function relativeDifference(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  let difference = 0, largest = 0;
  for (let i = 0; i < expected.length; i++) {
    const isEqual = found[i] === expected[i]; // infinities, too
    if (!isEqual) difference = Math.max(difference, Math.abs(found[i]! - expected[i]!));
    largest = Math.max(largest, Math.abs(expected[i]!));
  }
  return difference === 0 ? 0 : difference / largest;
}

/** Returns whether two lists of tensors are equal bit for bit. */
function areSame(one: readonly ArrayLike<number>[], other: readonly ArrayLike<number>[]): boolean {
  return one.every((values, i) =>
    Array.prototype.every.call(values, (x, j) => Object.is(x, other[i]![j]))
  );
}

/** Runs one node as a program of its own. A node that works in place gets its targets as states. */
async function runNode(
  device: Device,
  { op, inputs, attributes, outputs }: Node,
  data: readonly ArrayLike<number>[],
  { isReference, times }: { readonly isReference: boolean; readonly times: number },
): Promise<ArrayLike<number>[][]> {
  const typeOf = ({ dtype, shape }: TensorType): TensorType => ({
    dtype: dtype === "bf16" && isReference ? "f32" : dtype,
    shape,
  });
  const g = new Builder(op.name);
  const isTarget = (i: number) =>
    op.memory === "required" && i < outputs.length &&
    formatType(inputs[i]!) === formatType(outputs[i]!);
  const given = inputs.map((value, i) => {
    const type = typeOf(value);
    return isTarget(i) ? g.state(`in${i}`, type) : g.input(`in${i}`, type);
  });
  g.apply(op, given, attributes).forEach((value, i) => {
    if (isTarget(i)) g.update(`in${i}`, value);
    else g.output(`out${i}`, value);
  });
  const program = g.build();
  const executable = await device.compile(program, new Map());
  const types = [...program.inputs, ...program.state, ...program.outputs];
  const tensors = new Map(types.map(([name, type]) => [name, device.allocate(type)]));
  const encoded = given.map((type, i) => encode(data[i]!, type));
  const found: ArrayLike<number>[][] = [];
  for (let run = 0; run < times; run++) {
    encoded.forEach((values, i) => device.write(tensors.get(`in${i}`)!, values));
    await executable.run(tensors);
    found.push(outputs.map((_, i) => {
      const tensor = tensors.get(isTarget(i) ? `in${i}` : `out${i}`)!;
      return decode(device.read(tensor), tensor);
    }));
  }
  return found;
}

function roundTo(type: ComputeType, data: ArrayLike<number>): ArrayLike<number> {
  return type === "f32" ? data : toF32(fromF32(Float32Array.from(data), type), type);
}

function encode(data: ArrayLike<number>, { dtype }: TensorType): ArrayLike<number> {
  if (dtype !== "bf16") return data;
  return new Uint16Array(fromF32(Float32Array.from(data), "bf16").slice().buffer);
}

function decode(data: HostArray, { dtype }: TensorType): ArrayLike<number> {
  if (dtype !== "bf16") return data.slice();
  const bits = Uint32Array.from(data, (x) => x << 16);
  return new Float32Array(bits.buffer);
}
