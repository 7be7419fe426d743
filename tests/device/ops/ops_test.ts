/** Every op on every device against the reference in f64. */
import { PRIMITIVES } from "../../../core/graph/primitives.ts";
import { assertEquals } from "@std/assert";
import { MODEL_OPS } from "./model_ops.ts";
import { testOps } from "./conformance.ts";
import { devices } from "../devices.ts";
import { OP_CASES } from "./cases.ts";

for (const each of devices) testOps(each);

Deno.test("every op has a case", () => {
  const covered = new Set(OP_CASES.map((one) => one.op));
  for (const op of ["write_slots", "assign"]) covered.add(op); // have tests of their own above
  const all = [...PRIMITIVES.keys(), ...MODEL_OPS.keys()];
  assertEquals(all.filter((name) => !covered.has(name)), []);
});
