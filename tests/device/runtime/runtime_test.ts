/** The cpu device as a guest: what it leaves behind, whom it blocks, how often it loads a model. */
import { assert, assertEquals } from "@std/assert";
import { Builder } from "../../../core/graph/builder.ts";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount, type Shape } from "../../../core/graph/types.ts";
import type { Value } from "../../../core/graph/value.ts";
import { attention } from "../../../core/ops/attention.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { CompileOptions, Device, HostArray, Weights } from "../../../core/runtime/device.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { withScratch } from "../../scratch.ts";
import { CHILD_RUN, runChild } from "./child.ts";
import { GOLDEN_NAMES, maxDifference, openGolden } from "../goldens.ts";
import { PLATFORM } from "../../../core/base/platform/mod.ts";

function normal(shape: Shape, stream: number): Float32Array {
  const random = new RandomStream(1, stream);
  return Float32Array.from({ length: elementCount(shape) }, () => random.normal());
}

/** Runs a program once with given inputs and state; returns everything it was bound to. */
async function runOnce(
  device: Device,
  program: Program,
  data: Readonly<Record<string, ArrayLike<number>>>,
  weights: Weights = new Map(),
  options: CompileOptions = {},
): Promise<Record<string, HostArray>> {
  const executable = await device.compile(program, weights, options);
  const all = [...program.inputs, ...program.state, ...program.outputs];
  const tensors = new Map(all.map(([name, type]) => [name, device.allocate(type)]));
  for (const [name, values] of Object.entries(data)) device.write(tensors.get(name)!, values);
  await executable.run(tensors);
  return Object.fromEntries([...tensors].map(([name, tensor]) => [name, device.read(tensor)]));
}

/** Names of all files and folders below a folder. */
function everythingIn(folder: string): string[] {
  return [...Deno.readDirSync(folder)].flatMap(({ name, isDirectory }) => [
    `${folder}/${name}`,
    ...isDirectory ? everythingIn(`${folder}/${name}`) : [],
  ]);
}

Deno.test("a run leaves nothing in home, cache, config, data, state or temporary folders", async () => {
  const { denoDir } = JSON.parse(
    new TextDecoder().decode(
      (await new Deno.Command(Deno.execPath(), { args: ["info", "--json"] }).output()).stdout,
    ),
  );
  await withScratch(async (scratch) => {
    const names = ["HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"]
      .concat("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "LOCALAPPDATA", "APPDATA");
    const folders = Object.fromEntries(names.map((name) => [name, `${scratch}/${name}`]));
    for (const folder of Object.values(folders)) await Deno.mkdir(folder);
    const wait = "await new Promise((resolve) => setTimeout(resolve, 300));"; // for late writers
    await runChild(CHILD_RUN + wait, { ...folders, DENO_DIR: denoDir });
    const left = everythingIn(scratch).filter((path) => !Object.values(folders).includes(path));
    assertEquals(left, []);
  });
});

const libc = PLATFORM.posix?.libc;

async function telemetryIsOff(): Promise<void> {
  const printed = await runChild(
    `${CHILD_RUN}
      const definition = { parameters: ["buffer"], result: "pointer" };
      const { symbols } = Deno.dlopen("${libc}", { getenv: definition });
      const value = symbols.getenv(new TextEncoder().encode("ORT_DISABLE_TELEMETRY\\0"));
      console.log(value ? Deno.UnsafePointerView.getCString(value) : "not set");`,
  );
  assertEquals(printed, "1\n");
}

Deno.test({
  name: "the module that loads the library turns its telemetry off, as C code sees it",
  ignore: libc === undefined, // each C runtime of Windows has an environment of its own
  fn: telemetryIsOff,
});

Deno.test("timers continue while a long run is under way, and two runs continue at once", async () => {
  const device = new CpuDevice({ threads: 1 });
  const shape = [900, 900];
  const g = new Builder("long");
  const x = g.input("x", { dtype: "f32", shape });
  let y: Value = x;
  for (let i = 0; i < 6; i++) y = y.matmul(x);
  g.output("y", y);
  const program = g.build();
  const data = { x: normal(shape, 0).map((value) => value / 30) };
  const { y: expected } = await runOnce(device, program, data);
  let ticks = 0;
  const timer = setInterval(() => ticks++, 2);
  const pair = await Promise.all([1, 2].map(() => runOnce(device, program, data)));
  clearInterval(timer);
  assert(ticks >= 5, `${ticks} ticks`);
  for (const { y } of pair) assertEquals(y, expected);
  device.close();
});

/** Sizes in which numbers coincide with each other and with those of the model. */
const SIZES = [
  { batch: 1, tokens: 1, slots: 128, selected: 1 },
  { batch: 1, tokens: 128, slots: 128, selected: 128 },
  { batch: 2, tokens: 1, slots: 256, selected: 2 },
  { batch: 2, tokens: 2, slots: 128, selected: 1 },
  { batch: 4, tokens: 4, slots: 128, selected: 4 },
  { batch: 1, tokens: 8, slots: 128, selected: 8 },
  { batch: 3, tokens: 5, slots: 384, selected: 15 },
  { batch: 8, tokens: 64, slots: 128, selected: 64 },
  { batch: 5, tokens: 1, slots: 128, selected: 5 },
];

for (const name of ["qwen2-p1-untied-bf16", "qwen2-p2-tied-f32", "qwen2-p4-untied-f32"] as const) {
  Deno.test(`${name}: all sizes run on one session per head, with equal results`, async () => {
    assert(GOLDEN_NAMES.includes(name));
    const device = new CpuDevice({ threads: 1 });
    const engine = await openGolden(name, device);
    const text = Array.from({ length: 128 }, (_, i) => i * 37 % 500);
    const V = engine.config.vocabSize;
    const whole = await engine.forward(engine.createCache(1, 512), {
      ids: [text],
      start: [0],
      select: text.map((_, t) => t),
    });
    const expected = Float32Array.from(whole.get("logits")!);
    for (const { batch, tokens, slots, selected } of SIZES) {
      const rows = new Array(batch).fill(text.slice(0, tokens));
      const outputs = await engine.forward(engine.createCache(batch, slots), {
        ids: rows,
        start: rows.map(() => 0),
        select: Array.from({ length: selected }, (_, i) => i),
      });
      const logits = outputs.get("logits")!;
      for (let i = 0; i < selected; i++) {
        const row = logits.subarray(i * V, (i + 1) * V);
        const t = i % tokens;
        const difference = maxDifference(row, expected.subarray(t * V, (t + 1) * V));
        assert(difference < 1e-4, `batch ${batch}, tokens ${tokens}, row ${i}: ${difference}`);
      }
    }
    assertEquals(device.sessionCount, 1);
    const score = { ids: [[1, 2]], start: [0], select: [0, 1], targets: [3, 4] };
    await engine.forward(engine.createCache(1, 2), score, { head: "score" });
    await engine.forward(engine.createCache(1, 200), score, { head: "score" });
    assertEquals(device.sessionCount, 2);
    device.close();
    assertEquals(device.sessionCount, 0);
  });
}

Deno.test("a program for its sizes alone gives the same, on a session of its own", async () => {
  const device = new CpuDevice();
  const programOf = (rows: number) => {
    const g = new Builder("sums");
    const x = g.input("x", { dtype: "f32", shape: [rows, 12] });
    const wide = x.exp().reshape([rows, 3, 4]).mul(2).add(1);
    g.output("y", wide.sub(wide.max(-1)).sum(-1));
    return g.build();
  };
  for (const rows of [2, 5]) {
    const [program, x] = [programOf(rows), normal([rows, 12], rows)];
    const { y } = await runOnce(device, program, { x });
    const sessions = device.sessionCount;
    const alone = await runOnce(device, program, { x }, new Map(), { fixedSizes: true });
    assertEquals(alone.y, y);
    assertEquals(device.sessionCount, sessions + 1);
  }
  device.close();
});

Deno.test("weights loaded ahead of the first step are those of every step", async () => {
  const device = new CpuDevice({ threads: 1 });
  const engine = await openGolden("qwen2-p2-tied-f32", device);
  engine.preload();
  assertEquals(device.sessionCount, 1, "the session is being made");
  const input = { ids: [[1, 2, 3, 4]], start: [0], select: [3] };
  const ahead = await engine.forward(engine.createCache(1, 8), input);
  assertEquals(device.sessionCount, 1);
  const other = new CpuDevice({ threads: 1 });
  const fresh = await openGolden("qwen2-p2-tied-f32", other);
  const expected = await fresh.forward(fresh.createCache(1, 8), input);
  assertEquals(ahead.get("logits"), expected.get("logits"));
  device.close();
  other.close();
});

Deno.test("a cache updated where it lies equals one copied into a new tensor", async () => {
  const device = new CpuDevice();
  const [B, P, K, H, S, T, D, M] = [2, 3, 2, 4, 9, 2, 4, 5];
  const R = P * B;
  const shapes: Record<string, Shape> = {
    q: [R, T, H, D],
    fresh: [R, K, T, D],
    prefix: [P, K, M, D],
  };
  const build = (inPlace: boolean) => {
    const g = new Builder("cache");
    const type = { dtype: "f32" as const, shape: [R, K, S, D] };
    const cache = inPlace ? g.state("cache", type) : g.input("cache", type);
    const [q, fresh, prefix] = Object.entries(shapes)
      .map(([name, shape]) => g.input(name, { dtype: "f32", shape }));
    const positions = g.input("positions", { dtype: "i32", shape: [B, T] });
    const start = g.input("start", { dtype: "i32", shape: [R] });
    const next = cache.writeSlots(fresh!, start);
    if (inPlace) g.update("cache", next);
    else g.output("next", next);
    const behind = { keys: prefix!, values: prefix! };
    g.output(
      "y",
      attention({ q: q!, keys: next, values: next, visible: { last: positions }, prefix: behind }),
    );
    return g.build();
  };
  const data = {
    cache: normal([R, K, S, D], 9),
    ...Object.fromEntries(
      Object.entries(shapes).map(([name, shape], i) => [name, normal(shape, i)]),
    ),
    positions: [4, 5, 6, 7],
    start: [4, 6, 4, 6, 4, 6],
  };
  const inPlace = await runOnce(device, build(true), data);
  const copied = await runOnce(device, build(false), data);
  assertEquals(inPlace.y, copied.y);
  assertEquals(inPlace.cache, copied.next);
  assertEquals(copied.cache, data.cache, "an input stays as it was");
});

Deno.test("equal runs give equal bits, with one thread and with two", async () => {
  for (const threads of [1, 2]) {
    const device = new CpuDevice({ threads });
    const engine = await openGolden("qwen2-p4-untied-f32", device);
    const run = async () => {
      const outputs = await engine.forward(engine.createCache(2, 40), {
        ids: [0, 1].map((b) => Array.from({ length: 40 }, (_, t) => (t * 13 + b) % 500)),
        start: [0, 0],
        select: Array.from({ length: 80 }, (_, i) => i),
      });
      return Float32Array.from(outputs.get("logits")!);
    };
    const first = await run();
    for (let i = 0; i < 5; i++) assertEquals(await run(), first, `${threads} threads`);
    device.close();
  }
});
