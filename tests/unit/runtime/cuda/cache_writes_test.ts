/** Rope with writes into the cache: the program before and after, and that the reference computes the same. */
import { assert, assertEquals } from "@std/assert";
import { RandomStream } from "../../../../core/base/random.ts";
import { Builder } from "../../../../core/graph/builder.ts";
import type { Program } from "../../../../core/graph/program.ts";
import { elementCount } from "../../../../core/graph/types.ts";
import type { Value } from "../../../../core/graph/value.ts";
import { attention } from "../../../../core/ops/attention.ts";
import { repeatStreams } from "../../../../core/ops/repeat_streams.ts";
import { rope } from "../../../../core/ops/rope.ts";
import { rotateWhileWriting } from "../../../../core/runtime/cuda/cache_writes.ts";
import type { HostTensor } from "../../../../core/runtime/device.ts";
import { ReferenceDevice } from "../../../../core/runtime/reference/device.ts";

const f32 = (...shape: number[]) => ({ dtype: "f32" as const, shape });
const i32 = (...shape: number[]) => ({ dtype: "i32" as const, shape });

/** A program that `write` fills. */
function programOf(write: (g: Builder) => void): Program {
  const g = new Builder("fusion");
  write(g);
  return g.build();
}

/** One line a node: what it gives, its op, what it takes. */
function linesOf({ inputs, state, parameters, nodes }: Program): string[] {
  const names = new Map<Value, string>();
  for (const given of [inputs, state, parameters]) {
    for (const [name, value] of given) names.set(value, name);
  }
  return nodes.map((node) => {
    const results = node.outputs.map((value) => {
      names.set(value, `v${names.size - inputs.size - state.size - parameters.size}`);
      return names.get(value);
    });
    const given = node.inputs.map((value) => names.get(value)).join(", ");
    return `${results.join(", ")} = ${node.op.name}(${given})`;
  });
}

/** Everything a program computes from the same random tensors, states included. */
async function resultsOf(program: Program): Promise<Map<string, number[]>> {
  const device = new ReferenceDevice("f64");
  const bindings = new Map<string, HostTensor>();
  for (const given of [program.inputs, program.parameters, program.state, program.outputs]) {
    for (const [name, type] of given) {
      const random = new RandomStream(1, name);
      const tensor = device.allocate(type);
      const draw = type.dtype === "i32"
        ? () => random.integer(2)
        : () => random.normal() ** 2 + 0.1;
      device.write(tensor, Array.from({ length: elementCount(type.shape) }, draw));
      bindings.set(name, tensor);
    }
  }
  await (await device.compile(program, new Map())).run(bindings);
  const kept = [...program.outputs.keys(), ...program.state.keys()];
  return new Map(kept.map((name) => [name, [...device.read(bindings.get(name)!)]]));
}

async function assertSame(before: Program, after: Program): Promise<void> {
  const [expected, found] = await Promise.all([resultsOf(before), resultsOf(after)]);
  assertEquals([...found.keys()], [...expected.keys()]);
  for (const [name, values] of expected) {
    const worst = Math.max(...values.map((value, i) => Math.abs(value - found.get(name)![i]!)));
    assert(worst < 1e-9, `${name} is off by ${worst}`);
  }
}

/** The part of a layer between its projections and the end of attention. */
function layer(g: Builder): void {
  const [R, T, H, K, D, S, starts] = [4, 2, 4, 2, 8, 16, 2];
  const tables = { cos: g.input("cos", f32(R, T, D / 2)), sin: g.input("sin", f32(R, T, D / 2)) };
  const start = repeatStreams(g.input("start", i32(starts)), R / starts);
  const turned = (name: string, heads: number) =>
    rope({ x: g.input(name, f32(R, T, heads * D)), ...tables }, { heads })
      .reshape([R, T, heads, D]);
  const slots = (x: Value) => x.transpose([0, 2, 1, 3]);
  const written = (name: string, update: Value) => {
    const cache = g.state(name, f32(R, K, S, D)).writeSlots(slots(update), start);
    g.update(name, cache);
    return cache;
  };
  const keys = written("keys", turned("k", K));
  const values = written("values", g.input("v", f32(R, T, K, D)));
  const visible = { last: g.input("last", i32(R, T)) };
  g.output("y", attention({ q: turned("q", H), keys, values, visible }));
}

Deno.test("queries and keys are rotated while keys and values are written", async () => {
  const program = programOf(layer);
  const fused = rotateWhileWriting(program, "f32");
  assertEquals(linesOf(fused), [
    "v0, v1, v2 = rotate_and_write(keys, values, q, k, v, cos, sin, start)",
    "v3 = attention(v2, v0, v1, last)",
  ]);
  await assertSame(program, fused);
  const narrow = rotateWhileWriting(program, "bf16");
  assertEquals(
    narrow.nodes.length,
    program.nodes.length,
    "a cache in another type than the model computes in",
  );
});
