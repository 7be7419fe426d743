/** Launches of real sizes, as far as they can be laid out without a device. */
import { assert, assertEquals } from "@std/assert";
import { differentiate } from "../../../../core/graph/differentiate.ts";
import type { Program } from "../../../../core/graph/program.ts";
import { buildForward } from "../../../../core/model/forward.ts";
import { buildLoss } from "../../../../core/model/loss.ts";
import { lower } from "../../../../core/runtime/cuda/lower.ts";
import type { Step } from "../../../../core/runtime/cuda/lowering.ts";
import { buildSquaredNorm, buildUpdate } from "../../../../core/train/optimizer.ts";
import { shapeOf } from "../../../gpu/shapes.ts";

/** Largest extents of a grid, and of an i32 argument. */
const [MOST_X, MOST_YZ, MOST_I32] = [2 ** 31 - 1, 65535, 2 ** 31 - 1];
/** `TRAITS.cuda.optimizerChunk` */
const PIECE = 2 ** 29;

function checkLaunches(program: Program): void {
  const lowered = lower(program, "bf16", () => false);
  for (const { attributes } of lowered.program.nodes) {
    const { launch } = attributes as Step;
    if (!launch) continue;
    const { kernel, scalars, defines } = launch;
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
    const lowered = lower(program, "bf16", () => true);
    const entries = lowered.program.nodes.flatMap(({ attributes }) =>
      (attributes as Step).launch?.kernel.entry ?? []
    );
    const last = entries.findLastIndex((entry) => entry === "rope_write_slots");
    const before = entries.lastIndexOf("rope_write_slots", last - 1);
    assertEquals(entries.slice(before, last), [
      "rope_write_slots",
      "attention_split",
      "attention_combine",
      "linear",
      "rms_norm",
      "linear",
      "swiglu",
      "linear",
      "rms_norm",
      "linear",
    ]);
  }
});

Deno.test("the optimiser's programs over the longest pieces do, too", () => {
  checkLaunches(buildSquaredNorm([PIECE, PIECE, 7]));
  checkLaunches(buildUpdate([PIECE, 3], { beta1: 0.9, beta2: 0.95, epsilon: 1e-8 }));
});
