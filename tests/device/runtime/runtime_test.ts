/** The cpu device as a guest: what it leaves behind, whom it blocks, how often it loads a model. */
import { assert, assertEquals } from "@std/assert";
import { elementCount, type Shape } from "../../../core/graph/types.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { withScratch } from "../../scratch.ts";
import { CHILD_RUN, runChild } from "./child.ts";
import { testIf } from "../devices.ts";
import { logitsOf, pass } from "../engines.ts";
import { GOLDEN_NAMES, maxDifference, openGolden } from "../goldens.ts";
import { programOf, runOn } from "../programs.ts";
import { PLATFORM } from "../../../core/base/platform/mod.ts";

function normal(shape: Shape, stream: number): Float32Array {
  const random = new RandomStream(1, stream);
  return Float32Array.from({ length: elementCount(shape) }, () => random.normal());
}

/** Names of all files and folders below a folder. */
function everythingIn(folder: string): string[] {
  return [...Deno.readDirSync(folder)].flatMap(({ name, isDirectory }) => [
    `${folder}/${name}`,
    ...isDirectory ? everythingIn(`${folder}/${name}`) : [],
  ]);
}

Deno.test("a run leaves nothing in home, cache, config, data, state or temporary folders", async () => {
  const info = await new Deno.Command(Deno.execPath(), { args: ["info", "--json"] }).output();
  const { denoDir } = JSON.parse(new TextDecoder().decode(info.stdout));
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
const test = testIf(libc);

// each C runtime of Windows has an environment of its own
test("the module that loads the library turns its telemetry off, as C code sees it", async () => {
  const code = `${CHILD_RUN}
const definition = { parameters: ["buffer"], result: "pointer" };
const { symbols } = Deno.dlopen("${libc}", { getenv: definition });
const value = symbols.getenv(new TextEncoder().encode("ORT_DISABLE_TELEMETRY\\0"));
console.log(value ? Deno.UnsafePointerView.getCString(value) : "not set");`;
  assertEquals(await runChild(code), "1\n");
});

Deno.test("timers continue while a long run is under way, and two runs continue at once", async () => {
  const device = new CpuDevice({ threads: 1 });
  const shape = [900, 900];
  const program = programOf("long", { x: shape }, ({ x }) => {
    let y = x;
    for (let i = 0; i < 6; i++) y = y.matmul(x);
    return y;
  });
  const data = { x: normal(shape, 0).map((value) => value / 30) };
  const run = async () => (await runOn(device, program, data)).get("result")!;
  const expected = await run();
  let ticks = 0;
  const timer = setInterval(() => ticks++, 2);
  const pair = await Promise.all([run(), run()]);
  clearInterval(timer);
  assert(ticks >= 5, `${ticks} ticks`);
  assertEquals(pair, [expected, expected]);
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
    const expected = await logitsOf(engine, [text]);
    for (const { batch, tokens, slots, selected } of SIZES) {
      const rows = new Array(batch).fill(text.slice(0, tokens));
      const select = Array.from({ length: selected }, (_, i) => i);
      const logits = (await pass(engine, rows, { select }, undefined, slots)).get("logits")!;
      for (let i = 0; i < selected; i++) {
        const row = logits.subarray(i * V, (i + 1) * V);
        const t = i % tokens;
        const difference = maxDifference(row, expected.subarray(t * V, (t + 1) * V));
        assert(difference < 1e-4, `batch ${batch}, tokens ${tokens}, row ${i}: ${difference}`);
      }
    }
    assertEquals(device.sessionCount, 1);
    for (const slots of [2, 200]) {
      await pass(engine, [[1, 2]], { targets: [3, 4] }, { head: "score" }, slots);
    }
    assertEquals(device.sessionCount, 2);
    device.close();
    assertEquals(device.sessionCount, 0);
  });
}

Deno.test("a program for its sizes alone gives the same, on a session of its own", async () => {
  const device = new CpuDevice();
  for (const rows of [2, 5]) {
    const program = programOf("sums", { x: [rows, 12] }, ({ x }) => {
      const wide = x.exp().reshape([rows, 3, 4]).mul(2).add(1);
      return wide.sub(wide.max(-1)).sum(-1);
    });
    const data = { x: normal([rows, 12], rows) };
    const shared = await runOn(device, program, data);
    const sessions = device.sessionCount;
    const alone = await runOn(device, program, data, new Map(), { fixedSizes: true });
    assertEquals(alone.get("result"), shared.get("result"));
    assertEquals(device.sessionCount, sessions + 1);
  }
  device.close();
});

Deno.test("weights loaded ahead of the first step are those of every step", async () => {
  const device = new CpuDevice({ threads: 1 });
  const engine = await openGolden("qwen2-p2-tied-f32", device);
  engine.preload();
  assertEquals(device.sessionCount, 1, "the session is being made");
  const ahead = await logitsOf(engine, [[1, 2, 3, 4]]);
  assertEquals(device.sessionCount, 1);
  const other = new CpuDevice({ threads: 1 });
  const fresh = await openGolden("qwen2-p2-tied-f32", other);
  assertEquals(ahead, await logitsOf(fresh, [[1, 2, 3, 4]]));
  device.close();
  other.close();
});
