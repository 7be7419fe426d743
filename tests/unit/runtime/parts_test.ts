/** Which models open on several sessions, and what is planned for them. */
import { assert, assertEquals } from "@std/assert";
import { differentiate } from "../../../core/graph/differentiate.ts";
import { prepare } from "../../../core/graph/rewrite.ts";
import type { Program } from "../../../core/graph/program.ts";
import { tensorBytes } from "../../../core/graph/types.ts";
import { buildForward } from "../../../core/model/forward.ts";
import { buildLoss } from "../../../core/model/loss.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { lowers } from "../../../core/runtime/onnxruntime/lowering/lower.ts";
import { CPU_TARGET } from "../../../core/runtime/onnxruntime/lowering/rules.ts";
import { partsOf } from "../../../core/runtime/onnxruntime/session/chain.ts";
import { shapeOf } from "../../gpu/shapes.ts";

const CONFIG = shapeOf("0.5B", 4);

function forward(tokens: number): Program {
  const sizes = { batch: 1, tokens, capacity: 512, selected: 1 };
  const program = buildForward(CONFIG, sizes, { head: "greedy", cacheType: "f32" });
  return prepare(program, (op) => lowers(op, CPU_TARGET));
}

/** Weights that nothing reads. */
function weightsOf(program: Program) {
  const data = new Float32Array();
  return new Map([...program.parameters].map(([name, { dtype, shape }]) => [
    name,
    { dtype, shape, data },
  ]));
}

Deno.test("a large model opens on several sessions, four at most, and a small one on one", () => {
  const program = forward(1);
  const counts = [27, 28, 29, 24].map((power) =>
    partsOf(program, weightsOf(program), 2 ** power).length
  );
  assertEquals(counts, [3, 1, 1, 4]);
  assertEquals(partsOf(program, weightsOf(program)).length, 4);
});

Deno.test("decoding and prefill of a model are cut at the same places", () => {
  const [decode, prefill] = [forward(1), forward(256)].map((program) =>
    partsOf(program, weightsOf(program)).map((part) => [...part.state.keys()])
  );
  assertEquals(decode, prefill);
});

Deno.test("training is not cut: what it keeps for the gradients would pass", () => {
  const loss = buildLoss(CONFIG, { batch: 1, tokens: 16 });
  const introduced = [...loss.parameters.keys()].filter((name) => /prefix|aggreg/.test(name));
  const program = prepare(
    differentiate(loss, { of: "loss", by: introduced }),
    (op) => lowers(op, CPU_TARGET),
  );
  const weights = weightsOf(program);
  for (const name of introduced) weights.delete(name);
  assertEquals(partsOf(program, weights).length, 1);
});

Deno.test("the plan of a model in parts holds each weight and each state once", () => {
  const program = forward(8);
  const weights = weightsOf(program);
  const [one, four] = [2 ** 30, 2 ** 24].map((splitAbove) => {
    const device = new CpuDevice({ splitAbove });
    try {
      return device.plan(program, weights).sections;
    } finally {
      device.close();
    }
  });
  assertEquals(four!.parameters, one!.parameters);
  assertEquals(four!.state, one!.state);
  const rows = 4 * 8 * CONFIG.hiddenSize * 4;
  assert(four!.outputs >= one!.outputs + rows);
  assert(
    four!.inputs <= [...program.inputs.values()].reduce((sum, type) => sum + tensorBytes(type), 0),
  );
});
