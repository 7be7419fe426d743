/** Launches of real sizes, as far as they can be laid out without a device. */
import { assert, assertEquals } from "@std/assert";
import { differentiate } from "../../../../core/graph/differentiate.ts";
import type { Builder } from "../../../../core/graph/builder.ts";
import type { Program } from "../../../../core/graph/program.ts";
import type { Value } from "../../../../core/graph/value.ts";
import { linear } from "../../../../core/ops/linear.ts";
import { rmsNorm } from "../../../../core/ops/rms_norm.ts";
import { sampleTokens } from "../../../../core/ops/sample.ts";
import { buildForward } from "../../../../core/model/forward.ts";
import { buildLoss } from "../../../../core/model/loss.ts";
import { fusedFor, lower } from "../../../../core/runtime/cuda/lower.ts";
import { buildSquaredNorm, buildUpdate } from "../../../../core/train/optimizer.ts";
import { f32, programOf } from "../../../device/programs.ts";
import { shapeOf } from "../../../gpu/shapes.ts";
import { entriesOf, launchesOf } from "./kernels.ts";

/** Largest extents of a grid, and of an i32 argument. */
const [MOST_X, MOST_YZ, MOST_I32] = [2 ** 31 - 1, 65535, 2 ** 31 - 1];
/** `TRAITS.cuda.optimizerChunk` */
const PIECE = 2 ** 29;

function checkLaunches(program: Program): void {
  const launches = (["f32", "bf16"] as const).flatMap((dtype) => launchesOf(program, dtype));
  for (const { kernel, scalars, defines } of launches) {
    const { entry } = kernel;
    const { grid: [x, y, z] } = kernel.config({ ...defines, ...scalars });
    assert(x <= MOST_X && y <= MOST_YZ && z <= MOST_YZ, `${entry}: grid ${x}, ${y}, ${z}`);
    for (const { name, type } of kernel.arguments) {
      if (type === "i32") assert(Math.abs(scalars[name]!) <= MOST_I32, `${entry}: ${name}`);
    }
  }
}

Deno.test("the programs of a model of three billion parameters fit the limits of a launch", () => {
  for (const streams of [1, 8]) {
    const config = { ...shapeOf("3B", streams), numHiddenLayers: 2 };
    for (const [batch, tokens] of [[1, 1], [64, 1], [1, 2048], [8, 2048]] as const) {
      const sizes = { batch, tokens, capacity: 4096, selected: batch };
      checkLaunches(buildForward(config, sizes, { head: "greedy", cacheType: "bf16" }));
    }
    for (const [batch, tokens] of [[1, 16384], [8, 2048]] as const) {
      const loss = buildLoss(config, { batch, tokens });
      checkLaunches(differentiate(loss, { of: "loss", by: [...loss.parameters.keys()] }));
    }
  }
});

Deno.test("a decoding step of a layer is ten launches", () => {
  for (const streams of [1, 8]) {
    const config = { ...shapeOf("3B", streams), numHiddenLayers: 3 };
    const sizes = { batch: 1, tokens: 1, capacity: 2048, selected: 1 };
    const program = buildForward(config, sizes, { head: "sample", cacheType: "bf16" });
    const entries = entriesOf(program, "bf16", true);
    const last = entries.findLastIndex((entry) => entry === "rope_write_slots");
    const before = entries.lastIndexOf("rope_write_slots", last - 1);
    assertEquals(
      entries.slice(before, last),
      ("rope_write_slots attention_split attention_combine linear_mma rms_norm linear_mma swiglu " +
        "linear_mma rms_norm linear_mma").split(" "),
    );
  }
});

Deno.test("a cache of another type than the model computes in is written apart from rope", () => {
  const config = { ...shapeOf("3B", 1), numHiddenLayers: 1 };
  const sizes = { batch: 1, tokens: 1, capacity: 2048, selected: 1 };
  const fused = (cacheType: "bf16" | "f32") =>
    fusedFor(buildForward(config, sizes, { head: "sample", cacheType }), "bf16").nodes
      .filter(({ op }) => op.name === "rotate_and_write").length;
  assertEquals([fused("bf16"), fused("f32")], [1, 0]);
});

Deno.test("the optimiser's programs over the longest pieces do, too", () => {
  checkLaunches(buildSquaredNorm([PIECE, PIECE, 7]));
  checkLaunches(buildUpdate([PIECE, 3], { beta1: 0.9, beta2: 0.95, epsilon: 1e-8 }));
});

const norm = (x: Value, g: Builder) =>
  rmsNorm({ x, weight: g.parameter("w", f32(8)) }, { epsilon: 1e-6 });

/** Launches of what is made of a and b. */
const entriesWith = (b: number[], body: (sum: Value, g: Builder) => Record<string, Value>) =>
  entriesOf(programOf("sum", { a: [3, 8], b }, ({ a, b }, g) => body(a.add(b), g))).join();

Deno.test("a residual stream is added up by the norm that reads it first", () => {
  const body = (sum: Value, g: Builder) => ({ y: norm(sum, g), z: sum.exp() });
  assertEquals(entriesWith([3, 8], body), "rms_norm,elementwise");
});

Deno.test("a sum stays where another node reads it first, where it is a result, or broadcasts", () => {
  const first = (sum: Value, g: Builder) => {
    const z = sum.exp();
    return { z, y: norm(sum, g) };
  };
  assertEquals(entriesWith([3, 8], first), "elementwise,elementwise,rms_norm");
  const kept = (sum: Value, g: Builder) => ({ sum, y: norm(sum, g) });
  assertEquals(entriesWith([3, 8], kept), "elementwise,rms_norm");
  assertEquals(entriesWith([8], (sum, g) => ({ y: norm(sum, g) })), "elementwise,rms_norm");
});

Deno.test("layers that read the same few rows go together, three at most, those read as f32 apart", () => {
  const columns = (rows: number) => {
    const program = programOf("layers", { x: [rows, 8] }, ({ x }, g) => {
      const layer = (name: string, N: number) =>
        linear({ x, weight: g.parameter(name, f32(N, 8)), bias: g.parameter(`${name}.b`, f32(N)) });
      ["q", "k", "v", "o"].forEach((name, i) => g.output(`${name}.out`, layer(name, i + 1).exp()));
      g.output("logits", layer("head", 9));
      g.output("tokens", sampleTokens(layer("drawn", 7), g.input("sampling", f32(rows, 6))));
    });
    return launchesOf(program).filter(({ kernel }) => kernel.entry === "linear")
      .map(({ scalars: { N0, N1, N2 } }) => [N0, N1, N2]);
  };
  assertEquals(columns(4), [[1, 2, 3], [4, 0, 0], [9, 7, 0]]);
  assertEquals(columns(9), []);
});

Deno.test("new contents of a state are computed where it lies", () => {
  const program = programOf("state", { x: [4] }, ({ x }, g) => {
    const sum = g.state("sum", f32(4));
    g.update("sum", sum.assign(sum.add(x)));
  });
  assertEquals(entriesOf(program), ["elementwise"]);
  const update = buildUpdate([4], { beta1: 0.9, beta2: 0.95, epsilon: 1e-8 });
  const { nodes } = lower(update, "f32", () => false).program;
  assertEquals(nodes.map(({ op }) => op.name), ["adamw"]);
});

Deno.test("a state that is read later is not overwritten early", () => {
  const program = programOf("state", { x: [4] }, ({ x }, g) => {
    const state = g.state("state", f32(4));
    const next = state.add(x);
    g.output("old", state.exp());
    g.update("state", state.assign(next));
  });
  assertEquals(entriesOf(program), ["elementwise", "elementwise", "copy"]);
});

Deno.test("attention and its gradient share one forward pass", () => {
  const loss = buildLoss(shapeOf("3B", 1), { batch: 1, tokens: 64 });
  const program = differentiate(loss, { of: "loss", by: [...loss.parameters.keys()] });
  const entries = entriesOf(program, "bf16");
  const count = (name: string) => entries.filter((entry) => entry === name).length;
  assertEquals(count("attention_mma"), count("attention_queries_mma"));
  assertEquals(count("token_logprobs"), 1);
});
