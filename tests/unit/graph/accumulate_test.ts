/** Outputs that are added up over runs. */
import { assertEquals, assertThrows } from "@std/assert";
import { accumulateOutputs } from "../../../core/graph/accumulate.ts";
import { Builder } from "../../../core/graph/builder.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";

const pair = { dtype: "f32" as const, shape: [2] };

function squareAndCube() {
  const g = new Builder("powers");
  const x = g.input("x", pair);
  const square = x.mul(x);
  g.output("square", square);
  g.output("cube", square.mul(x));
  return g.build();
}

Deno.test("an accumulated output is a state tensor that grows with every run, others stay", async () => {
  const device = new ReferenceDevice("f32");
  const program = accumulateOutputs(squareAndCube(), ["square"]);
  assertEquals([...program.outputs.keys()], ["cube"]);
  const executable = await device.compile(program, new Map());
  const [x, square, cube] = [pair, pair, pair].map((type) => device.allocate(type));
  const bindings = new Map([["x", x!], ["square", square!], ["cube", cube!]]);
  for (const values of [[1, 2], [3, 4]]) {
    device.write(x!, values);
    await executable.run(bindings);
  }
  assertEquals([...device.read(square!)], [10, 20]);
  assertEquals([...device.read(cube!)], [27, 64]);
  device.clear(square!);
  assertEquals([...device.read(square!)], [0, 0]);
});

Deno.test("a term is added right after the node that makes it, so that it need not be kept", () => {
  const { nodes } = accumulateOutputs(squareAndCube(), ["cube", "square"]);
  assertEquals(nodes.map(({ op }) => op.name), ["mul", "add", "assign", "mul", "add", "assign"]);
});

Deno.test("what is no output, or is computed by no node, cannot be accumulated", () => {
  assertThrows(
    () => accumulateOutputs(squareAndCube(), ["root"]),
    TypeError,
    'cannot accumulate "root": no such output',
  );
  const g = new Builder("copy");
  g.output("y", g.input("x", pair));
  assertThrows(() => accumulateOutputs(g.build(), ["y"]), TypeError, "no node computes it");
});
