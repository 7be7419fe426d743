/** Small programs of tests, and runs of them on any device. */
import { Builder } from "../../core/graph/builder.ts";
import type { Program } from "../../core/graph/program.ts";
import type { Shape, TensorType } from "../../core/graph/types.ts";
import { Value } from "../../core/graph/value.ts";
import type { CompileOptions, Device, HostArray, Weights } from "../../core/runtime/device.ts";

/** Shape of an input in f32, or of one in i32. */
export type InputShape = Shape | { readonly i32: Shape };

/** The type of a tensor in f32. */
export const f32 = (...shape: number[]) => ({ dtype: "f32", shape }) as const;

const typeOf = (shape: InputShape): TensorType =>
  "i32" in shape ? { dtype: "i32", shape: shape.i32 } : f32(...shape);

/** A program of some inputs, and what `body` makes of them: `result`, outputs by name, or its own. */
export function programOf<N extends string>(
  name: string,
  shapes: Readonly<Record<N, InputShape>>,
  body: (inputs: Readonly<Record<N, Value>>, g: Builder) => Value | Record<string, Value> | void,
): Program {
  const g = new Builder(name);
  const inputs = Object.entries<InputShape>(shapes).map((
    [key, shape],
  ) => [key, g.input(key, typeOf(shape))]);
  const made = body(Object.fromEntries(inputs), g) ?? {};
  const outputs = made instanceof Value ? { result: made } : made;
  for (const [key, value] of Object.entries(outputs)) g.output(key, value);
  return g.build();
}

/** Values of tensors by name. */
export type Data =
  | ReadonlyMap<string, ArrayLike<number>>
  | Readonly<
    Record<string, ArrayLike<number>>
  >;

/** Compiles a program; the result runs it and returns all its tensors, parameters among them. */
export async function prepareOn(
  device: Device,
  program: Program,
  weights: Weights = new Map(),
  options: CompileOptions = {},
): Promise<(data: Data) => Promise<Map<string, HostArray>>> {
  const executable = await device.compile(program, weights, options);
  const parameters = [...program.parameters].filter(([name]) => !weights.has(name));
  const types = [...program.inputs, ...program.state, ...parameters, ...program.outputs];
  const tensors = new Map(types.map(([name, type]) => [name, device.allocate(type)]));
  return async (data) => {
    const values = data instanceof Map ? data : Object.entries(data);
    for (const [name, array] of values) device.write(tensors.get(name)!, array);
    await executable.run(tensors);
    return new Map([...tensors].map(([name, tensor]) => [name, device.read(tensor)]));
  };
}

/** Runs a program once; all its tensors by name. */
export async function runOn(
  device: Device,
  program: Program,
  data: Data,
  ...compiled: [weights?: Weights, options?: CompileOptions]
): Promise<Map<string, HostArray>> {
  return await (await prepareOn(device, program, ...compiled))(data);
}
