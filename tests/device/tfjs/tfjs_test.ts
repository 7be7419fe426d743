/**
 * The tfjs device where it differs from others: TensorFlow's own gradients against our rules, tensors
 * that are not left behind, memory that views share, and what is said without TensorFlow.
 *
 * What every device must do is tested beside the others, on TensorFlow.js's backend in JavaScript;
 * here the same is asked of the native library where it is installed.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import { EnvironmentError, UsageError } from "../../../core/base/errors.ts";
import { differentiate, gradientName } from "../../../core/graph/differentiate.ts";
import { prepare } from "../../../core/graph/rewrite.ts";
import type { Program } from "../../../core/graph/program.ts";
import type { Value } from "../../../core/graph/value.ts";
import type { Device } from "../../../core/runtime/device.ts";
import { openDevice } from "../../../core/runtime/mod.ts";
import { TfjsDevice } from "../../../core/runtime/tfjs/device.ts";
import { evaluate } from "../../../core/runtime/tfjs/evaluate.ts";
import { type Binding, describeBinding, findBinding } from "../../../core/runtime/tfjs/open.ts";
import { type Tensor, tensorType } from "../../../core/runtime/tfjs/storage.ts";
import { openTfjsInJavaScript, reference, testIf } from "../devices.ts";
import { logitsOf, request, tokensOf } from "../engines.ts";
import {
  maxDifference,
  openGolden,
  readExpected,
  readExpectedTensors,
  relativeDifference,
  TOLERANCE,
} from "../goldens.ts";
import { GRADIENT_CASES, OP_CASES, randomInputs } from "../ops/cases.ts";
import { f32, programOf, runOn } from "../programs.ts";
import { registerGradients } from "./tensorflow_gradients.ts";

const P4 = "qwen2-p4-untied-f32";

function findInstalled(): Binding | undefined {
  try {
    return findBinding();
  } catch {
    return undefined;
  } finally {
    tf.setBackend("cpu"); // a binding that is found makes its own the backend
  }
}

const installed = findInstalled();
const test = testIf(installed);
await registerGradients();

/** A device on the native library for as long as `use` takes. */
async function onTensorFlow(use: (device: Device) => Promise<void>): Promise<void> {
  await installed!.tf.setBackend("tensorflow");
  const device = new TfjsDevice(installed!.tf);
  try {
    await use(device);
  } finally {
    device.close();
    await installed!.tf.setBackend("cpu");
  }
}

async function agree(device: Device, program: Program, data: ReadonlyMap<string, number[]>) {
  const expected = await runOn(reference, program, data);
  const actual = await runOn(device, program, data);
  for (const name of program.outputs.keys()) {
    const difference = relativeDifference(actual.get(name)!, expected.get(name)!);
    assert(difference < 1e-5, `${program.name}, ${name}: relative difference ${difference}`);
  }
}

/** A program's output as a function of some inputs, computed by TensorFlow. */
function functionOf(
  whole: Program,
  { of, by, data }: { of: string; by: readonly string[]; data: ReadonlyMap<string, number[]> },
): (...variables: Tensor[]) => tf.Scalar {
  const program = prepare(whole, (op) => !op.decompose);
  return (...variables) => {
    const tensors = new Map<Value, Tensor>();
    for (const [name, value] of program.inputs) {
      const at = by.indexOf(name);
      tensors.set(value, at >= 0 ? variables[at]! : toTensor(value, data.get(name)!));
    }
    for (const node of program.nodes) {
      const inputs = node.inputs.map((value) => tensors.get(value)!);
      tensors.set(node.outputs[0]!, evaluate(tf, node, inputs));
    }
    return tensors.get(program.outputs.get(of)!) as tf.Scalar;
  };
}

function toTensor({ dtype, shape }: Value, data: readonly number[]): Tensor {
  return tf.tensor([...data], shape as number[], tensorType(dtype));
}

/** TensorFlow.js cannot differentiate the op that these are made of. */
const WITHOUT_TENSORFLOW_GRADIENT: ReadonlySet<string> = new Set(["scatter_add", "add_last"]);

for (const one of GRADIENT_CASES) {
  if (WITHOUT_TENSORFLOW_GRADIENT.has(one.op)) continue;
  Deno.test(`tf.grads agrees with our gradient of ${one.name}`, async () => {
    const [program, by] = [one.scalar(), one.variables];
    const data = randomInputs({ ...one, program });
    const backward = differentiate(program, { of: "scalar", by });
    const ours = await runOn(await openTfjsInJavaScript(), backward, data);
    tf.tidy(() => {
      const at = by.map((name) => toTensor(program.inputs.get(name)!, data.get(name)!));
      const theirs = tf.grads(functionOf(program, { of: "scalar", by, data }))(at);
      by.forEach((name, i) => {
        const expected = theirs[i]!.dataSync<"float32">();
        const difference = relativeDifference(ours.get(gradientName(name))!, expected);
        assert(difference < 1e-5, `${name}: relative difference ${difference}`);
      });
    });
  });
}

/** state ← state + 2 x, beside table rows; an id may be wrong. */
function counter(): Program {
  return programOf("counter", { x: [2], ids: { i32: [2] } }, ({ x, ids }, g) => {
    const state = g.state("state", f32(2));
    g.output("row", x.gather(ids, 0));
    g.update("state", state.assign(state.add(x.mul(2))));
  });
}

Deno.test("no tensor of TensorFlow is left behind", async () => {
  const before = tf.memory().numTensors;
  const device = await openTfjsInJavaScript();
  const program = counter();
  const executable = await device.compile(program, new Map());
  const types = [...program.inputs, ...program.state, ...program.outputs];
  const tensors = new Map(types.map(([name, type]) => [name, device.allocate(type)]));
  device.write(tensors.get("x")!, [3, 4]);
  const counts: number[] = [];
  for (let i = 0; i < 3; i++) {
    device.write(tensors.get("ids")!, [1, i]);
    if (i < 2) await executable.run(tensors);
    else await assertRejects(() => executable.run(tensors), Error, "not in [0, 1]");
    counts.push(tf.memory().numTensors - before);
  }
  assertEquals(counts, [4, 4, 4], "one for each that is bound");
  assertEquals(Array.from(device.read(tensors.get("state")!)), [12, 16]);
  const row = Array.from(device.read(tensors.get("row")!));
  assertEquals(row, [4, 4], "a failed run changes nothing");
  device.close();
  assertEquals(tf.memory().numTensors, before);
});

Deno.test("views of one tensor share its memory", async () => {
  const device = await openTfjsInJavaScript();
  const program = counter();
  const executable = await device.compile(program, new Map());
  const long = device.allocate({ dtype: "f32", shape: [6] });
  device.write(long, [1, 2, 3, 4, 5, 6]);
  const part = (start: number) => device.view(long, start, { dtype: "f32", shape: [2] });
  const ids = device.allocate({ dtype: "i32", shape: [2] });
  device.write(ids, [1, 0]);
  const tensors = new Map([["x", part(0)], ["state", part(2)], ["row", part(4)], ["ids", ids]]);
  await executable.run(tensors);
  assertEquals(Array.from(device.read(long)), [1, 2, 5, 8, 2, 1]);
  device.write(device.view(part(0), 1, { dtype: "f32", shape: [1] }), [7]);
  await executable.run(tensors);
  assertEquals(Array.from(device.read(long)), [1, 7, 7, 22, 7, 1]);
  const whole = { sourceOffset: 0, sourceStride: 1, targetOffset: 0, targetStride: 1 };
  device.copy(part(2), part(4), { ...whole, width: 1, height: 2 });
  assertEquals(Array.from(device.read(long)), [1, 7, 7, 22, 7, 22]);
  device.close();
});

Deno.test("programs share their weights", async () => {
  const device = await openTfjsInJavaScript();
  const data = Float32Array.of(1, 2);
  const weights = new Map([["w", { dtype: "f32" as const, shape: [2], data }]]);
  const before = tf.memory().numTensors;
  for (const factor of [3, 4]) {
    const program = programOf("weighted", {}, (_, g) => g.parameter("w", f32(2)).mul(factor));
    const executable = await device.compile(program, weights);
    assertEquals(tf.memory().numTensors - before, factor - 2, "one weight and earlier results");
    const y = device.allocate(program.outputs.get("result")!);
    await executable.run(new Map([["result", y]]));
    assertEquals(Array.from(device.read(y)), [factor, 2 * factor]);
  }
  device.close();
});

Deno.test("a result and what it was made from do not share memory", async () => {
  const program = programOf("identity", { x: [2] }, ({ x }) => ({ y: x }));
  const device = await openTfjsInJavaScript();
  const executable = await device.compile(program, new Map());
  const [x, y] = [device.allocate(f32(2)), device.allocate(f32(2))];
  device.write(x, [1, 2]);
  await executable.run(new Map([["x", x], ["y", y]]));
  device.write(x, [3, 4]);
  assertEquals(Array.from(device.read(y)), [1, 2]);
  device.write(y, [5, 6]);
  assertEquals(Array.from(device.read(x)), [3, 4]);
  device.close();
});

Deno.test("of equal elements argmax finds the first, and truth is 0 or 1", async () => {
  const program = programOf(
    "ties",
    { x: [3, 4] },
    ({ x }) => ({ first: x.argmax(1), below: x.lessEqual(2) }),
  );
  const device = await openTfjsInJavaScript();
  const data = { x: [1, 3, 3, 2, 5, 5, 5, 5, -1, -2, -3, -1] };
  const results = await runOn(device, program, data);
  assertEquals(results.get("first"), Int32Array.of(1, 0, 0));
  assertEquals(results.get("below"), Uint8Array.of(1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1));
  device.close();
});

/** Logits of a text and the first tokens after it, against the golden. */
async function followsTheGolden(device: Device): Promise<void> {
  const engine = await openGolden(P4, device);
  const { cases, greedy } = readExpected(P4);
  const logits = (await readExpectedTensors(P4)).get("pair.logits")!;
  const found = await logitsOf(engine, cases.pair!.ids);
  assert(maxDifference(found, logits) <= TOLERANCE.logits);
  const requests = greedy.prompts.slice(0, 2).map((tokens) => request(tokens, { maxTokens: 6 }));
  const expected = greedy.outputs.slice(0, 2).map((tokens) => tokens.slice(0, 6));
  assertEquals(await tokensOf(engine, requests, 2), expected);
}

Deno.test("tfjs in JavaScript: logits and greedy tokens follow the golden", async () => {
  const before = tf.memory().numTensors;
  const device = await openTfjsInJavaScript();
  await followsTheGolden(device);
  device.close();
  assertEquals(tf.memory().numTensors, before);
});

testIf(!installed)(
  "without TensorFlow the device is refused, and the remedy is one command",
  async () => {
    const error = await assertRejects(() => openDevice("tfjs"), EnvironmentError);
    assertEquals(
      error.message,
      "the tfjs device needs the package @tensorflow/tfjs-node-gpu or @tensorflow/tfjs-node",
    );
    const specifier = "npm:@tensorflow/tfjs-node-gpu@4.22.0";
    assertEquals(error.hints, [
      `run \`deno add --allow-scripts=${specifier} ${specifier}\` in the project folder`,
    ]);
  },
);

Deno.test("other element types are refused", async () => {
  const open = () => openDevice("tfjs", { dtype: "bf16" });
  await assertRejects(open, UsageError, "`--dtype bf16`, only f32");
});

test("TensorFlow agrees with the reference on every op and gradient", () =>
  onTensorFlow(async (device) => {
    assertStringIncludes(describeBinding(installed), "TensorFlow 2.");
    for (const one of OP_CASES) await agree(device, one.program, randomInputs(one));
    for (const one of GRADIENT_CASES) {
      const program = differentiate(one.scalar(), { of: "scalar", by: one.variables });
      await agree(device, program, randomInputs({ ...one, program }));
    }
  }));

test("TensorFlow: logits and greedy tokens follow the golden", () =>
  onTensorFlow(followsTheGolden));
