/**
 * The nodes of a program, each alone on a device beside the reference: the first kernel that is wrong is
 * found by its op, whatever the ones after it make of its result.
 *
 * The program is fused as the device would fuse it, and computed node by node on the reference; each node
 * gets the reference's values as inputs. Nodes of equal op, attributes and types are run once.
 */
import { fromF32 } from "../../base/dtype.ts";
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
 */
export async function* compareNodes(
  device: Device & { readonly cacheType: ComputeType },
  reference: Device,
  { program, data }: {
    readonly program: Program;
    readonly data: ReadonlyMap<string, ArrayLike<number>>;
  },
): AsyncGenerator<NodeComparison> {
  const fused = fusedFor(program, device.cacheType);
  const values = new Map<Value, ArrayLike<number>>();
  for (const given of [fused.inputs, fused.parameters, fused.state]) {
    for (const [name, value] of given) values.set(value, data.get(name)!);
  }
  const seen = new Set<string>();
  for (const node of fused.nodes) {
    const inputs = node.inputs.map((value) => values.get(value)!);
    const expected = await runNode(reference, node, inputs, true);
    node.outputs.forEach((value, i) => values.set(value, expected[i]!));
    const types = [...node.inputs, ...node.outputs].map(formatType);
    const key = `${node.op.name} ${types} ${JSON.stringify(node.attributes)}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const found = await runNode(device, node, inputs, false).catch((error: Error) => {
      error.message = `op ${node.op.name} of ${types.join(", ")}: ${error.message}`;
      throw error;
    });
    const differences = expected.map((each, i) => relativeDifference(found[i]!, each));
    yield { op: node.op.name, difference: Math.max(...differences) };
  }
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

/** Runs one node as a program of its own. A node that works in place gets its targets as states. */
async function runNode(
  device: Device,
  { op, inputs, attributes, outputs }: Node,
  data: readonly ArrayLike<number>[],
  isReference: boolean,
): Promise<ArrayLike<number>[]> {
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
  const tensors = new Map(
    [...program.inputs, ...program.state, ...program.outputs].map(([name, type]) => {
      const tensor = device.allocate(type);
      const i = Number(name.slice(2));
      if (name.startsWith("in")) device.write(tensor, encode(data[i]!, type));
      return [name, tensor];
    }),
  );
  await executable.run(tensors);
  return outputs.map((_, i) => {
    const tensor = tensors.get(isTarget(i) ? `in${i}` : `out${i}`)!;
    return decode(device.read(tensor), tensor);
  });
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
