/** Outputs that are added up over runs. */
import { assertEquals, assertThrows } from "@std/assert";
import { accumulateOutputs } from "../../../core/graph/accumulate.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { prepareOn, programOf } from "../../device/programs.ts";

const squareAndCube = () =>
  programOf("powers", { x: [2] }, ({ x }) => {
    const square = x.mul(x);
    return { square, cube: square.mul(x) };
  });

Deno.test("an accumulated output is a state tensor that grows with every run, others stay", async () => {
  const program = accumulateOutputs(squareAndCube(), ["square"]);
  assertEquals([...program.outputs.keys()], ["cube"]);
  const run = await prepareOn(new ReferenceDevice("f32"), program);
  await run({ x: [1, 2] });
  const found = await run({ x: [3, 4] });
  assertEquals([...found.get("square")!], [10, 20]);
  assertEquals([...found.get("cube")!], [27, 64]);
});

Deno.test("a term is added right after the node that makes it, so that it need not be kept", () => {
  const { nodes } = accumulateOutputs(squareAndCube(), ["cube", "square"]);
  assertEquals(nodes.map(({ op }) => op.name), ["mul", "add", "assign", "mul", "add", "assign"]);
});

Deno.test("only outputs that a node computes can be accumulated", () => {
  assertThrows(
    () => accumulateOutputs(squareAndCube(), ["root"]),
    TypeError,
    'cannot accumulate "root": no such output',
  );
  const copy = programOf("copy", { x: [2] }, ({ x }) => ({ y: x }));
  assertThrows(() => accumulateOutputs(copy, ["y"]), TypeError, "no node computes it");
});
