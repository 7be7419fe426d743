/** Every op on every device against the reference in f64. */
import { assert, assertEquals } from "@std/assert";
import { PRIMITIVES } from "../../core/graph/primitives.ts";
import { Builder } from "../../core/graph/builder.ts";
import { writeSlots } from "../../core/graph/primitives.ts";
import { elementCount, type Program } from "../../core/graph/types.ts";
import { MODEL_OPS } from "../../core/ops/mod.ts";
import { RandomStream } from "../../core/random.ts";
import type { Device, HostArray } from "../../core/runtime/device.ts";
import { devices, reference } from "./devices.ts";
import { maxDifference } from "./goldens.ts";
import { OP_CASES, type OpCase } from "./op_cases.ts";

/** Results are sums of a few dozen products of numbers around 1. */
const TOLERANCE = 1e-5;

function randomInputs({ program, bounds }: OpCase): Map<string, number[]> {
  const random = new RandomStream(7, program.name);
  return new Map([...program.inputs].map(([name, { dtype, shape }]) => {
    const draw = dtype === "i32" ? () => random.integer(bounds[name]!) : () => random.normal();
    return [name, Array.from({ length: elementCount(shape) }, draw)];
  }));
}

async function runOn(
  device: Device,
  program: Program,
  data: ReadonlyMap<string, number[]>,
): Promise<Map<string, HostArray>> {
  const executable = await device.compile(program, new Map());
  const tensors = new Map(
    [...program.inputs, ...program.state, ...program.outputs].map(([name, type]) => [
      name,
      device.allocate(type),
    ]),
  );
  for (const [name, values] of data) device.write(tensors.get(name)!, values);
  await executable.run(tensors);
  return new Map([...tensors].map(([name, tensor]) => [name, device.read(tensor)]));
}

for (const { name: deviceName, device } of devices) {
  for (const one of OP_CASES) {
    Deno.test(`${deviceName} agrees with the reference on ${one.name}`, async () => {
      const inputs = randomInputs(one);
      const expected = (await runOn(reference, one.program, inputs)).get("result")!;
      const actual = (await runOn(device, one.program, inputs)).get("result")!;
      const scale = Math.max(1, ...Array.from(expected, Math.abs));
      const difference = maxDifference(actual, expected) / scale;
      assert(difference < TOLERANCE, `relative difference ${difference}`);
    });
  }

  Deno.test(`${deviceName} writes slots into the state's own memory`, async () => {
    const [R, K, S, T, D] = [3, 2, 6, 2, 4];
    const g = new Builder("write_slots");
    const state = g.state("cache", { dtype: "f32", shape: [R, K, S, D] });
    const update = g.input("update", { dtype: "f32", shape: [R, K, T, D] });
    const start = g.input("start", { dtype: "i32", shape: [R] });
    g.update("cache", writeSlots(g, state, update, start));
    const program = g.build();
    const old = Array.from({ length: R * K * S * D }, (_, i) => -i);
    const fresh = Array.from({ length: R * K * T * D }, (_, i) => i + 1);
    const starts = [4, 0, 2];
    const data = new Map([["cache", old], ["update", fresh], ["start", starts]]);
    const cache = (await runOn(device, program, data)).get("cache")!;
    const expected = old.slice();
    for (let r = 0; r < R; r++) {
      for (let k = 0; k < K; k++) {
        for (let i = 0; i < T * D; i++) {
          expected[((r * K + k) * S + starts[r]!) * D + i] = fresh[(r * K + k) * T * D + i]!;
        }
      }
    }
    assertEquals(Array.from(cache), expected);
  });
}

Deno.test("every op has a case", () => {
  const covered = new Set(OP_CASES.map((one) => one.op));
  covered.add("write_slots"); // has a test of its own above
  const all = [...PRIMITIVES.keys(), ...MODEL_OPS.keys()];
  assertEquals(all.filter((name) => !covered.has(name)), []);
});
