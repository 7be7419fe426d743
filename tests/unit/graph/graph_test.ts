/** Programs without a device: shapes, rewrites, memory plans. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { Builder } from "../../../core/graph/builder.ts";
import { planMemory } from "../../../core/graph/memory_plan.ts";
import {
  dropUnread,
  expand,
  prepare,
  scatterIntoSum,
  shareEqual,
} from "../../../core/graph/rewrite.ts";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount } from "../../../core/graph/types.ts";
import { concat, type Value } from "../../../core/graph/value.ts";
import { softmax } from "../../../core/ops/softmax.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { evaluate, type Operand } from "../../../core/runtime/reference/evaluate.ts";
import { f32, runOn } from "../../device/programs.ts";

const i32 = (...shape: number[]) => ({ dtype: "i32" as const, shape });

Deno.test("shape mistakes are reported where they are made, with both shapes", () => {
  const g = new Builder("shapes");
  const a = g.input("a", f32(2, 3));
  const b = g.input("b", f32(4, 5));
  const ids = g.input("ids", i32(2));
  assertThrows(() => a.add(b), TypeError, "[2, 3] with [4, 5]");
  assertThrows(() => a.add(ids), TypeError, "f32[2, 3] and i32[2]");
  assertThrows(() => a.matmul(b), TypeError, "f32[2, 3] with f32[4, 5]");
  assertThrows(() => a.reshape([7]), TypeError, "f32[2, 3] to [7]");
  assertThrows(() => a.slice(1, 2, 4), TypeError, "2..4 of axis 1");
  assertThrows(() => a.transpose([0, 0]), TypeError, "[0, 0]");
  assertThrows(() => concat([a, b], 0), TypeError, "f32[4, 5]");
  assertThrows(() => a.gather(b, 0), TypeError, "index by f32[4, 5]");
  assertThrows(() => a.sum(2), TypeError, "axis 2");
  assertThrows(() => a.broadcast([3, 3]), TypeError, "[3, 3]");
});

Deno.test("names are declared once, updates fit their state", () => {
  const g = new Builder("names");
  const x = g.input("x", f32(2));
  g.state("s", f32(3));
  assertThrows(() => g.state("x", f32(2)), TypeError, '"x" twice');
  assertThrows(() => g.update("s", x), TypeError, 'cannot update "s" of f32[3] with f32[2]');
  assertThrows(() => g.update("t", x), TypeError, "no such state");
  assertEquals(g.parameter("w", f32(2)), g.parameter("w", f32(2)));
});

Deno.test("expansion leaves only what the device runs, equal nodes are shared, unread ones dropped", () => {
  const g = new Builder("rewrite");
  const x = g.input("x", f32(2, 3));
  const twice = softmax({ x }).add(softmax({ x }));
  x.exp(); // unread
  g.output("y", twice);
  const program = g.build();
  const primitive = expand(program, (op) => !op.decompose);
  assert(primitive.nodes.every((node) => !node.op.decompose));
  const names = shareEqual(primitive).nodes.map((node) => node.op.name);
  assertEquals(names, ["max", "sub", "exp", "sum", "div", "add", "exp"]);
  const read = dropUnread(program).nodes.map((node) => node.op.name);
  assertEquals(read, ["softmax", "softmax", "add"]);
  assertEquals(prepare(program, (op) => !op.decompose).nodes.length, 6);
  assertThrows(() => expand(program, (op) => op.name !== "exp"), TypeError, '"exp"');
});

Deno.test("what is scattered into zeros and added is scattered into the other term", () => {
  const build = (base: number, shape: number[]) => {
    const g = new Builder("scatter");
    const a = g.input("a", f32(...shape));
    const zeros = g.constant(base).broadcast([4, 3]);
    const scattered = zeros.scatterAdd(g.input("i", i32(2)), g.input("u", f32(2, 3)), 0);
    g.output("y", scattered.add(a));
    return dropUnread(scatterIntoSum(g.build())).nodes.map((node) => node.op.name);
  };
  assertEquals(build(0, [4, 3]), ["scatter_add"]);
  const untouched = ["constant", "broadcast", "scatter_add", "add"];
  assertEquals(build(1, [4, 3]), untouched, "not zeros");
  assertEquals(build(0, [3]), untouched, "a broadcast term");
});

Deno.test("a state may not be overwritten before its last reader", () => {
  const build = (readerFirst: boolean) => {
    const g = new Builder("alias");
    const cache = g.state("cache", f32(1, 1, 4, 2));
    const update = g.input("update", f32(1, 1, 1, 2));
    const start = g.input("start", i32(1));
    const view = cache.reshape([8]);
    const before = readerFirst ? view.exp() : undefined;
    const written = cache.writeSlots(update, start);
    g.output("before", before ?? view.exp());
    g.update("cache", written);
    return g.build();
  };
  planMemory(build(true));
  assertThrows(() => planMemory(build(false)), TypeError, "read by a later node");
});

Deno.test("an update that lies elsewhere is refused", () => {
  const g = new Builder("elsewhere");
  g.state("s", f32(2));
  g.update("s", g.input("x", f32(2)).exp());
  assertThrows(() => planMemory(g.build()), TypeError, "its new value lies elsewhere");
});

/** A program of random primitives over small tensors, many of them reused later or viewed. */
function randomProgram(seed: number): Program {
  const random = new RandomStream(seed, "program");
  const g = new Builder(`random.${seed}`);
  const values: Value[] = [g.input("a", f32(4, 6)), g.input("b", f32(4, 6)), g.input("c", f32(6))];
  const pick = () => values[random.integer(values.length)]!;
  for (let i = 0; i < 30; i++) {
    const x = pick();
    const fits = values.filter((y) => y.shape.join() === x.shape.join());
    const y = fits[random.integer(fits.length)]!;
    const choices = [
      () => x.add(y),
      () => x.mul(y),
      () => x.sigmoid(),
      () => x.sin(),
      () => softmax({ x }),
      () => x.reshape([elementCount(x.shape)]),
      () => x.reshape([2, elementCount(x.shape) / 2]),
      () => x.transpose(x.shape.map((_, axis) => x.shape.length - 1 - axis)),
      () => concat([x, y], 0),
      () => x.slice(0, 0, Math.max(1, x.shape[0]! - 1)),
      () => x.sum(-1),
    ];
    const made = choices[random.integer(choices.length)]!();
    if (elementCount(made.shape) % 2 === 0 && elementCount(made.shape) < 400) values.push(made);
  }
  const outputs = new Set([values.at(-1)!, pick(), pick()]);
  [...outputs].forEach((value, i) => g.output(`y${i}`, value));
  return g.build();
}

/** Runs a program of primitives with memory of its own for every value. */
function runApart(program: Program, inputs: ReadonlyMap<string, Float64Array>) {
  const operands = new Map<Value, Operand>();
  for (const [name, value] of program.inputs) {
    operands.set(value, { shape: value.shape, data: inputs.get(name)!.slice() });
  }
  for (const node of program.nodes) {
    const [value] = node.outputs as [Value];
    const out = { shape: value.shape, data: new Float64Array(elementCount(value.shape)) };
    evaluate(node, out, node.inputs.map((x) => operands.get(x)!));
    operands.set(value, out);
  }
  return new Map([...program.outputs].map(([name, value]) => [name, operands.get(value)!.data]));
}

Deno.test("property: a planned arena gives the same results as separate memory", async () => {
  for (let seed = 0; seed < 300; seed++) {
    const program = randomProgram(seed);
    const random = new RandomStream(seed, "data");
    const inputs = new Map([...program.inputs].map(([name, { shape }]) => [
      name,
      new Float64Array(elementCount(shape)).map(() => random.normal()),
    ]));
    const expected = runApart(prepare(program, (op) => !op.decompose), inputs);
    const found = await runOn(new ReferenceDevice("f64"), program, inputs);
    for (const [name, data] of expected) assertEquals(found.get(name), data, `seed ${seed}`);
  }
});

Deno.test("the plan reuses memory: a chain needs two buffers, in place one", () => {
  const g = new Builder("chain");
  let x = g.input("x", f32(1000));
  for (let i = 0; i < 10; i++) x = x.exp();
  g.output("y", x.sum(0));
  assertEquals(planMemory(g.build(), { reuseInputs: false }).sections.temporaries, 2 * 4032);
  assertEquals(planMemory(g.build()).sections.temporaries, 4032);
});
