/** Programs in parts: that they compute the same, and where cuts are not made. */
import { assert, assertEquals } from "@std/assert";
import { Builder } from "../../../core/graph/builder.ts";
import { differentiate } from "../../../core/graph/differentiate.ts";
import type { Node, Program } from "../../../core/graph/program.ts";
import { splitProgram } from "../../../core/graph/split.ts";
import { elementCount } from "../../../core/graph/types.ts";
import type { Value } from "../../../core/graph/value.ts";
import { linear } from "../../../core/ops/linear.ts";
import type { HostTensor } from "../../../core/runtime/device.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { f32 } from "../../device/programs.ts";

const isLinear = ({ op }: Node) => Number(op === linear.op as Node["op"]);

/** Layers with a residual stream, a scale that all of them read, and a state each. */
function layers(count: number, rows = 3): Program {
  const g = new Builder("layers");
  const scale = g.input("scale", f32(rows, 1)).exp();
  let x: Value = g.input("x", f32(rows, 4)).mul(2);
  for (let i = 0; i < count; i++) {
    const state = g.state(`state.${i}`, f32(rows, 4));
    const y = linear({ x, weight: g.parameter(`w.${i}`, f32(4, 4)) }).mul(scale);
    const next = state.assign(state.add(y));
    g.update(`state.${i}`, next);
    x = x.add(next);
  }
  g.output("y", x);
  return g.build();
}

/** Runs programs one after the other on tensors that they share by name. */
async function run(programs: readonly Program[]): Promise<Map<string, number[]>> {
  const device = new ReferenceDevice("f64");
  const bindings = new Map<string, HostTensor>();
  for (const program of programs) {
    for (const given of [program.inputs, program.parameters, program.state, program.outputs]) {
      for (const [name, type] of given) {
        if (bindings.has(name)) continue;
        const tensor = device.allocate(type), length = elementCount(type.shape);
        device.write(tensor, Array.from({ length }, (_, i) => Math.sin(i + name.length)));
        bindings.set(name, tensor);
      }
    }
    await (await device.compile(program, new Map())).run(bindings);
  }
  const names = [...bindings.keys()].filter((name) => !name.startsWith("passing."));
  return new Map(names.sort().map((name) => [name, [...device.read(bindings.get(name)!)]]));
}

Deno.test("the parts of a program do together what it does", async () => {
  for (const parts of [1, 2, 3, 6]) {
    const program = layers(12);
    const split = splitProgram(program, { parts, cost: isLinear });
    assertEquals(split.length, parts);
    const counts = split.map(({ nodes }) => nodes.filter(isLinear).length);
    assertEquals(counts, Array(parts).fill(12 / parts));
    assertEquals(await run(split), await run([program]));
  }
});

Deno.test("only the residual stream and what layers share pass a cut", () => {
  const [first, second] = splitProgram(layers(8), { parts: 2, cost: isLinear });
  assertEquals([...first!.outputs.keys()], ["passing.0", "passing.1"]);
  assertEquals([...second!.inputs.keys()], ["passing.0", "passing.1"]);
  assertEquals([...first!.state.keys()], [0, 1, 2, 3].map((i) => `state.${i}`));
});

Deno.test("programs that differ in sizes alone are cut at the same places", () => {
  const nodes = [1, 3, 100].map((rows) =>
    splitProgram(layers(5, rows), { parts: 2, cost: isLinear }).map((part) => part.nodes.length)
  );
  assertEquals(nodes.slice(1), [nodes[0], nodes[0]]);
});

Deno.test("there is no cut through a state, and none where too much would pass", () => {
  const g = new Builder("state");
  const state = g.state("s", f32(4, 4));
  const once = linear({ x: g.input("x", f32(4, 4)), weight: g.parameter("a", f32(4, 4)) });
  const sum = once.add(state);
  const twice = linear({ x: sum, weight: g.parameter("b", f32(4, 4)) });
  g.update("s", state.assign(twice.add(state)));
  const parts = splitProgram(g.build(), { parts: 2, cost: isLinear });
  const isWhole = (part: Program) => !part.state.has("s") || part.updates.has("s");
  assert(parts.length === 1 || parts.every(isWhole));

  const h = new Builder("chain");
  let x: Value = h.input("x", f32(2, 4));
  for (let i = 0; i < 12; i++) x = linear({ x, weight: h.parameter(`w.${i}`, f32(4, 4)) }).exp();
  h.output("loss", x.reshape([1, 8]).sum(1).reshape([]));
  const by = Array.from({ length: 12 }, (_, i) => `w.${i}`);
  const gradients = differentiate(h.build(), { of: "loss", by });
  assertEquals(splitProgram(gradients, { parts: 2, cost: isLinear, most: 4 }).length, 1);
});

Deno.test("costs that lie in one place leave a program whole", () => {
  const program = layers(8);
  const [first] = program.nodes.filter(isLinear);
  const cost = (node: Node) => Number(node === first);
  assertEquals(splitProgram(program, { parts: 2, cost }).length, 1);
});
