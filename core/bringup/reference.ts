/** A first comparison of a device with the reference. */
import { Builder } from "../graph/builder.ts";
import { linear } from "../ops/linear.ts";
import { softmax } from "../ops/softmax.ts";
import { type DeviceName, openDevice } from "../runtime/mod.ts";

/** Largest difference between a device and the reference on a tiny program. */
export async function compareWithReference(name: DeviceName): Promise<number> {
  const g = new Builder("doctor");
  const x = g.input("x", { dtype: "f32", shape: [2, 8] });
  const weight = g.parameter("weight", { dtype: "f32", shape: [4, 8] });
  g.output("y", softmax({ x: linear({ x, weight }) }));
  const program = g.build();
  const data = Float32Array.from({ length: 32 }, (_, i) => Math.sin(i));
  const weights = new Map([["weight", { dtype: "f32" as const, shape: [4, 8], data }]]);
  const results: number[][] = [];
  for (const device of [await openDevice(name, { dtype: "f32" }), await openDevice("reference")]) {
    const executable = await device.compile(program, weights);
    const input = device.allocate(program.inputs.get("x")!);
    const output = device.allocate(program.outputs.get("y")!);
    device.write(input, Array.from({ length: 16 }, (_, i) => Math.cos(i)));
    await executable.run(new Map([["x", input], ["y", output]]));
    results.push(Array.from(device.read(output)));
    device.close();
  }
  return Math.max(...results[0]!.map((y, i) => Math.abs(y - results[1]![i]!)));
}
