/** Rope with writes into the cache: the program before and after, and that the reference computes the same. */
import { assert, assertEquals } from "@std/assert";
import { RandomStream } from "../../../../core/base/random.ts";
import type { Program } from "../../../../core/graph/program.ts";
import { elementCount } from "../../../../core/graph/types.ts";
import type { Value } from "../../../../core/graph/value.ts";
import { attention } from "../../../../core/ops/attention.ts";
import { repeatStreams } from "../../../../core/ops/repeat_streams.ts";
import { rope } from "../../../../core/ops/rope.ts";
import { rotateWhileWriting } from "../../../../core/runtime/cuda/cache_writes.ts";
import type { HostArray } from "../../../../core/runtime/device.ts";
import { ReferenceDevice } from "../../../../core/runtime/reference/device.ts";
import { maxDifference } from "../../../device/goldens.ts";
import { f32, programOf, runOn } from "../../../device/programs.ts";

/** One line a node: what it gives, its op, what it takes. */
function linesOf({ inputs, state, nodes }: Program): string[] {
  const names = new Map([...inputs, ...state].map(([name, value]) => [value, name]));
  const given = names.size;
  return nodes.map((node) => {
    for (const value of node.outputs) names.set(value, `v${names.size - given}`);
    const [results, inputs] = [node.outputs, node.inputs].map((values) =>
      values.map((value) => names.get(value)).join(", ")
    );
    return `${results} = ${node.op.name}(${inputs})`;
  });
}

/** Everything that a program computes from the same random tensors. */
async function resultsOf(program: Program): Promise<Map<string, HostArray>> {
  const data = [...program.inputs, ...program.state].map(([name, { dtype, shape }]) => {
    const random = new RandomStream(1, name);
    const draw = dtype === "i32" ? () => random.integer(2) : () => random.normal() ** 2 + 0.1;
    return [name, Array.from({ length: elementCount(shape) }, draw)] as const;
  });
  return await runOn(new ReferenceDevice("f64"), program, new Map(data));
}

/** The part of a layer between its projections and the end of attention. */
function layer(): Program {
  const [R, T, H, K, D, S, starts] = [4, 2, 4, 2, 8, 16, 2];
  const shapes = {
    ...{ cos: [R, T, D / 2], sin: [R, T, D / 2], q: [R, T, H * D], k: [R, T, K * D] },
    ...{ v: [R, T, K, D], start: { i32: [starts] }, last: { i32: [R, T] } },
  };
  return programOf("layer", shapes, ({ cos, sin, q, k, v, start, last }, g) => {
    const each = repeatStreams(start, R / starts);
    const turned = (x: Value, heads: number) =>
      rope({ x, cos, sin }, { heads }).reshape([R, T, heads, D]);
    const written = (name: string, update: Value) => {
      const slots = update.transpose([0, 2, 1, 3]);
      const cache = g.state(name, f32(R, K, S, D)).writeSlots(slots, each);
      g.update(name, cache);
      return cache;
    };
    const keys = written("keys", turned(k, K)), values = written("values", v);
    return { y: attention({ q: turned(q, H), keys, values, visible: { last } }) };
  });
}

Deno.test("queries and keys are rotated while keys and values are written", async () => {
  const program = layer();
  const fused = rotateWhileWriting(program, "f32");
  assertEquals(linesOf(fused), [
    "v0, v1, v2 = rotate_and_write(keys, values, q, k, v, cos, sin, start)",
    "v3 = attention(v2, v0, v1, last)",
  ]);
  const [expected, found] = [await resultsOf(program), await resultsOf(fused)];
  assertEquals([...found.keys()], [...expected.keys()]);
  for (const [name, values] of expected) {
    const worst = maxDifference(found.get(name)!, values);
    assert(worst < 1e-9, `${name} is off by ${worst}`);
  }
  const narrow = rotateWhileWriting(program, "bf16");
  const what = "a cache in another type than the model computes in";
  assertEquals(narrow.nodes.length, program.nodes.length, what);
});
