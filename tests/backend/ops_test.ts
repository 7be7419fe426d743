/** Every op on every device against the reference in f64. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { PRIMITIVES } from "../../core/graph/primitives.ts";
import { Builder } from "../../core/graph/builder.ts";
import { add, assign, constant, mul, writeSlots } from "../../core/graph/primitives.ts";
import { MODEL_OPS } from "../../core/ops/mod.ts";
import { devices, reference } from "./devices.ts";
import { maxDifference } from "./goldens.ts";
import { OP_CASES, randomInputs, runOn } from "./op_cases.ts";

/** Results are sums of a few dozen products of numbers around 1. */
const TOLERANCE = 1e-5;

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

  Deno.test(`${deviceName} assigns to a state after its last reader`, async () => {
    const g = new Builder("assign");
    const state = g.state("mean", { dtype: "f32", shape: [3] });
    const x = g.input("x", { dtype: "f32", shape: [3] });
    const half = constant(g, 0.5);
    g.update("mean", assign(g, state, add(g, mul(g, state, half), mul(g, x, half))));
    const data = new Map([["mean", [2, 4, -6]], ["x", [4, 0, 2]]]);
    assertEquals(Array.from((await runOn(device, g.build(), data)).get("mean")!), [3, 2, -2]);
  });

  Deno.test(`${deviceName} refuses to overwrite a state that is read elsewhere`, async () => {
    const g = new Builder("late reader");
    const state = g.state("count", { dtype: "f32", shape: [3] });
    g.update("count", assign(g, state, add(g, state, constant(g, 1))));
    g.output("old", mul(g, state, constant(g, 2)));
    await assertRejects(
      async () => await runOn(device, g.build(), new Map()),
      TypeError,
      deviceName.startsWith("cpu") ? "before it is read" : "read by a later node",
    );
  });

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
  for (const op of ["write_slots", "assign"]) covered.add(op); // have tests of their own above
  const all = [...PRIMITIVES.keys(), ...MODEL_OPS.keys()];
  assertEquals(all.filter((name) => !covered.has(name)), []);
});
