/** Memory outside the heap: what is mapped is returned, and errors say what is wrong. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { EnvironmentError } from "../../core/base/errors.ts";
import { MemoryMap } from "../../core/runtime/memory/memory_map.ts";
import { withScratch } from "../scratch.ts";
import { moduleAt, runChild } from "../device/runtime/child.ts";
import { modelFolder } from "../device/goldens.ts";

/** Imports of the children. */
const IMPORTS = Object.entries({
  packing: "core/quant/codes.ts",
  openCheckpoint: "core/checkpoint/open.ts",
  Engine: "core/generate/engine.ts",
  Builder: "core/graph/builder.ts",
  differentiate: "core/graph/differentiate.ts",
  buildLoss: "core/model/loss.ts",
  parameterSpecs: "core/model/parameters.ts",
  linear: "core/ops/linear.ts",
  CpuDevice: "core/runtime/onnxruntime/cpu.ts",
  residentOf: "tests/resident.ts",
}).map(([name, path]) => `import { ${name} } from ${moduleAt(path)};`).join("\n");

/**
 * Opens a model and a matrix of 64 MiB (as f32) on a device and closes it, twelve times; prints how
 * often the weights are mapped before and after each closing, and the growth over the last ten.
 */
const ROUNDS = `${IMPORTS}
  const { config, tensors } = await openCheckpoint("${modelFolder("qwen2-p4-untied-f32")}");
  const { path } = tensors.get("model.embed_tokens.weight");
  const big = { dtype: "bf16", shape: [4096, 4096], data: new Uint16Array(1 << 24) };
  const g = new Builder("big");
  const x = g.input("x", { dtype: "f32", shape: [1, 4096] });
  g.output("y", linear({ x, weight: g.parameter("big", { dtype: "f32", shape: big.shape }) }));
  const program = g.build();
  const maps = () => Deno.readTextFileSync("/proc/self/maps").split("\\n");
  const mapped = () => maps().filter((line) => line.endsWith(path)).length;
  const open = new Set(), closed = new Set();
  let before;
  for (let round = 0; round < 12; round++) {
    if (round === 2) before = residentOf("self").now;
    const device = new CpuDevice({ threads: 1 });
    const engine = new Engine(device, config, tensors);
    await engine.forward(engine.createCache(1, 2), { ids: [[1, 2]], start: [0], select: [1] });
    await device.compile(program, new Map([["big", big]]));
    open.add(mapped());
    device.close();
    closed.add(mapped());
  }
  const grown = residentOf("self").now - before;
  console.log(JSON.stringify({ open: [...open], closed: [...closed], grown }));`;

/** Runs steps on KV caches of five sizes, drops them, and prints how many of them are left. */
const DROPPED_CACHES = `${IMPORTS}
  const { config, tensors } = await openCheckpoint("${modelFolder("qwen2-p4-untied-f32")}");
  const engine = new Engine(new CpuDevice({ threads: 1 }), config, tensors);
  const caches = [];
  const stepOf = async (slots) => {
    const cache = engine.createCache(1, slots);
    await engine.forward(cache, { ids: [[1]], start: [0], select: [0] });
    caches.push(...cache.tensors.values().map((tensor) => new WeakRef(tensor)));
  };
  for (let slots = 128; slots <= 640; slots += 128) await stepOf(slots);
  await new Promise((resolve) => setTimeout(resolve));
  gc();
  console.log(caches.filter((tensor) => tensor.deref()).length);`;

/** Peak growth in bytes over two runs of the gradients of a deep model, beside the plan. */
const gradientPeak = (recompute: boolean) =>
  `${IMPORTS}
  const opened = await openCheckpoint("${modelFolder("qwen2-p4-untied-f32")}");
  const config = { ...opened.config, numHiddenLayers: 8 };
  const by = parameterSpecs(config).map(({ name }) => name);
  const loss = buildLoss(config, { batch: 2, tokens: 256 });
  const program = differentiate(loss, { of: "loss", by, recompute: ${recompute} });
  const device = new CpuDevice({ threads: 1 });
  const plan = device.plan(program, new Map()).sections.temporaries;
  const executable = await device.compile(program, new Map());
  const all = [...program.inputs, ...program.parameters, ...program.outputs];
  const tensors = new Map(all.map(([name, type]) => [name, device.allocate(type)]));
  const before = residentOf("self").now;
  for (let i = 0; i < 2; i++) await executable.run(tensors);
  console.log(JSON.stringify({ plan, grown: residentOf("self").peak - before }));`;

/**
 * Bytes that one matrix takes once it is packed, beside the plan, when it is read from a file: in full
 * precision, quantized while it is loaded, or quantized in the file.
 */
const heldMatrix = (folder: string, kind: string, stored: boolean) =>
  `${IMPORTS}
  const matrices = { kind: "${kind}", block: 32 };
  const path = "${folder}/weights";
  const run = async (device, shape) => {
    let weight = { dtype: "bf16", shape, path, offset: 0 };
    if (${stored}) {
      const { rows, blocks, rowBytes } = packing(shape, matrices);
      const codes = { path, offset: 0, byteLength: rows * rowBytes };
      const scales = { path, offset: codes.byteLength, byteLength: rows * blocks * 4 };
      weight = { dtype: "f32", shape, format: matrices, codes, scales };
    }
    const weights = new Map([["weight", weight]]);
    const g = new Builder("matrix");
    const x = g.input("x", { dtype: "f32", shape: [1, shape[1]] });
    g.output("y", linear({ x, weight: g.parameter("weight", { dtype: "f32", shape }) }));
    const program = g.build();
    const types = [...program.inputs, ...program.outputs];
    const bindings = new Map(types.map(([name, type]) => [name, device.allocate(type)]));
    const plan = device.plan(program, weights).totalBytes;
    await (await device.compile(program, weights)).run(bindings);
    return plan;
  };
  const resident = () => (gc(), residentOf("self").now);
  const device = new CpuDevice({ threads: 1, matrices });
  await run(device, [64, 64]);
  const before = resident();
  const plan = await run(device, [16384, 8192]);
  console.log(JSON.stringify({ plan, held: resident() - before }));`;

/** Peak growth in bytes while forty matrices of 9 MiB are packed one after the other. */
const packedMatrices = (folder: string) =>
  `${IMPORTS}
  const shape = [1530, 1530];
  const g = new Builder("matrices");
  let x = g.input("x", { dtype: "f32", shape: [1, shape[1]] });
  const weights = new Map();
  for (let i = 0; i < 40; i++) {
    weights.set("w" + i, { dtype: "bf16", shape, path: "${folder}/weights", offset: i * 2 * shape[0] * shape[1] });
    x = linear({ x, weight: g.parameter("w" + i, { dtype: "f32", shape }) });
  }
  g.output("y", x);
  const device = new CpuDevice({ threads: 1 });
  const before = residentOf("self").now;
  await device.compile(g.build(), weights);
  const matrices = 40 * 4 * shape[0] * shape[1];
  console.log(JSON.stringify({ matrices, grown: residentOf("self").peak - before }));`;

/** Writes a file of zeros that takes no room on the disk. */
function writeZeros(path: string, bytes: number): void {
  Deno.writeFileSync(path, new Uint8Array());
  Deno.truncateSync(path, bytes);
}

if (Deno.build.os === "linux") {
  Deno.test("packing matrices one after the other takes memory for one more", () =>
    withScratch(async (folder) => {
      writeZeros(`${folder}/weights`, 40 * 1530 * 1530 * 2);
      const { matrices, grown } = JSON.parse(await runChild(packedMatrices(folder)));
      assert(grown < 1.11 * matrices, `${grown} for ${matrices}`);
    }));

  const made = [["f32", false], ["q8", false], ["q4", false]] as const;
  for (const [kind, stored] of [...made, ["q8", true], ["q4", true]] as const) {
    Deno.test(`the plan of a ${kind} matrix ${stored ? "quantized in its file" : "of bf16"} is what is held`, () =>
      withScratch(async (folder) => {
        writeZeros(`${folder}/weights`, 16384 * 8192 * 2);
        const code = heldMatrix(folder, kind, stored);
        const { plan, held } = JSON.parse(await runChild(code, { DENO_V8_FLAGS: "--expose-gc" }));
        // The engine and the heap grow by themselves, less than the scales of the matrix take.
        const allowed = Math.max(0.05 * plan, 14 * 2 ** 20);
        assert(Math.abs(held - plan) < allowed, `held ${held}, planned ${plan}`);
      }));
  }

  Deno.test("recomputing activations lowers the peak of the process, not only of the plan", async () => {
    const measure = async (recompute: boolean) =>
      JSON.parse(await runChild(gradientPeak(recompute)));
    const [kept, recomputed] = [await measure(false), await measure(true)];
    assert(recomputed.plan < kept.plan * 0.5, `planned ${recomputed.plan} of ${kept.plan}`);
    assert(recomputed.grown < kept.grown * 0.6, `grew ${recomputed.grown} of ${kept.grown}`);
    assert(kept.grown < kept.plan * 1.4, `grew ${kept.grown}, planned ${kept.plan}`);
  });

  Deno.test("programs that are kept ready keep no KV cache", async () => {
    assertEquals(await runChild(DROPPED_CACHES, { DENO_V8_FLAGS: "--expose-gc" }), "0\n");
  });

  Deno.test("closing a device returns what it mapped, and many rounds do not leak", async () => {
    const { open, closed, grown } = JSON.parse(await runChild(ROUNDS));
    assert(open.every((count: number) => count > 0), "weights are mapped, not copied");
    assertEquals(closed, [0]);
    assert(grown < 64 * 2 ** 20, `grew by ${grown} bytes`);
  });
}

Deno.test("memory maps: zeroed pages, files read only, and errors that say what is wrong", async () => {
  const map = MemoryMap.allocate(10_000);
  const bytes = new Uint8Array(map.buffer());
  assertEquals(bytes.every((byte) => byte === 0), true);
  bytes[9999] = 7;
  assertEquals(new Uint8Array(map.buffer(9999))[0], 7);
  map.unmap();
  await withScratch(async (folder) => {
    await Deno.writeTextFile(`${folder}/file`, "hello");
    const file = MemoryMap.file(`${folder}/file`);
    assertEquals(new TextDecoder().decode(file.buffer(1, 3)), "ell");
    file.forgetPages();
    assertEquals(new TextDecoder().decode(file.buffer()), "hello");
    file.unmap();
    const fails = (path: string, message: string) => {
      const open = () => MemoryMap.file(`${folder}/${path}`);
      assertEquals(assertThrows(open, EnvironmentError).message, message);
    };
    fails("none", `no such file: "${folder}/none"`);
    await Deno.writeTextFile(`${folder}/empty`, "");
    fails("empty", `"${folder}/empty" is empty`);
  });
  const error = assertThrows(() => MemoryMap.allocate(2 ** 50), EnvironmentError);
  assertEquals(error.message, `cannot map memory: ${2 ** 50} bytes are not available`);
  assertEquals(error.hints.length, 1);
});
