/** Gradients of every op against central differences, and of every device against the reference. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { DERIVATIVES } from "../../../core/graph/derivatives.ts";
import { differentiate, gradientName } from "../../../core/graph/differentiate.ts";
import { MODEL_OPS } from "./model_ops.ts";
import { testGradients } from "./conformance.ts";
import { devices, reference } from "../devices.ts";
import { GRADIENT_CASES, OP_CASES, randomInputs } from "./cases.ts";
import { prepareOn, programOf, runOn } from "../programs.ts";

/** Step of the central differences, whose own error is of its square. */
const STEP = 1e-4;

for (const one of GRADIENT_CASES) {
  Deno.test(`the gradient of ${one.name} agrees with central differences`, async () => {
    const program = one.scalar();
    const inputs = randomInputs({ ...one, program });
    const names = one.variables;
    const run = await prepareOn(reference, program);
    const backward = differentiate(program, { of: "scalar", by: names });
    const gradients = await runOn(reference, backward, inputs);
    const valueAt = async (name: string, i: number, step: number) => {
      const moved = inputs.get(name)!.slice();
      moved[i]! += step;
      return (await run(new Map([...inputs, [name, moved]]))).get("scalar")![0]!;
    };
    for (const name of names) {
      const actual = gradients.get(gradientName(name))!;
      const scale = Math.max(1, ...Array.from(actual, Math.abs));
      for (let i = 0; i < actual.length; i++) {
        const slope = (await valueAt(name, i, STEP) - await valueAt(name, i, -STEP)) / (2 * STEP);
        const error = Math.abs(actual[i]! - slope) / scale;
        assert(error < 2e-6, `${name}[${i}]: found ${actual[i]}, expected ${slope}`);
      }
    }
  });
}

for (const each of devices) testGradients(each);

Deno.test("attention through a table has no gradient", async () => {
  const one = OP_CASES.find(({ name }) => name === "attention: through a table")!;
  const program = differentiate(one.scalar(), { of: "scalar", by: ["keys"] });
  for (const { device } of devices) {
    await assertRejects(
      async () => await runOn(device, program, randomInputs({ ...one, program })),
      TypeError,
      "cannot differentiate attention through a table",
    );
  }
});

Deno.test("every op with a derivative has a gradient check", () => {
  const checked = new Set(GRADIENT_CASES.map(({ op }) => op));
  const derived = Object.keys(DERIVATIVES).filter((name) => DERIVATIVES[name]);
  const all = [...derived, ...MODEL_OPS.keys()];
  assertEquals(all.filter((name) => !checked.has(name)), []);
});

Deno.test("a value used twice gets both gradients, and an unused input is refused", async () => {
  const program = programOf("square", { x: [], y: [] }, ({ x }) => ({ scalar: x.mul(x).mul(x) }));
  const gradients = differentiate(program, { of: "scalar", by: ["x"] });
  const result = await runOn(reference, gradients, { x: [3] });
  assertEquals(result.get("grad.x")![0], 27);
  const message = 'cannot differentiate by "y": "scalar" does not use it';
  assertThrows(() => differentiate(program, { of: "scalar", by: ["y"] }), Error, message);
});

Deno.test("equal largest elements share the gradient of max", async () => {
  const program = programOf("tie", { x: [4] }, ({ x }) => x.max(0).mul(6).reshape([]));
  const gradients = differentiate(program, { of: "result", by: ["x"] });
  const result = await runOn(reference, gradients, { x: [2, 5, 5, 5] });
  assertEquals([...result.get("grad.x")!], [0, 2, 2, 2]);
});
