/** `parscale cost` as a black box: rows, models, devices and questions. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import {
  assertFailed,
  documentOf,
  linkRun,
  MODEL,
  names,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { writeGguf } from "../gguf_model.ts";
import { assertFigure } from "./figures.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { readFixture } from "../fixtures.ts";

const SHAPE = "cost --model 1.6B";
const GOLDEN = readFixture("analysis/cost.json");

const INPUT_KEYS = (
  "model method hidden_size intermediate_size num_layers num_heads num_kv_heads " +
  "head_dim vocab_size tie_word_embeddings hardware bandwidth_gb_s tflops capacity_gib " +
  "flops_efficiency memory_efficiency weight_bits activation_bits cache_bits prefix_cache " +
  "step_overhead_s streams prefix_tokens batch input output"
).split(" ");

Deno.test("a row echoes its inputs under fixed names, then total and parts", async () => {
  const [exact] = await rowsOf(SHAPE);
  const parts = "weight_bytes kv_cache_bytes activation_bytes prefill_s decode_s flops".split(" ");
  const totals = ["memory_bytes", "latency_s"];
  assertEquals(Object.keys(exact), [...INPUT_KEYS, ...totals, ...parts, "fits"]);
  assertEquals([exact.model, exact.method, exact.hardware], ["1.6B", "exact", "a100-sxm-80gb"]);
  const { weight_bytes, kv_cache_bytes, activation_bytes, memory_bytes } = exact;
  assertAlmostEquals(weight_bytes + kv_cache_bytes + activation_bytes, memory_bytes);
  const { schema, results, device } = await documentOf(SHAPE);
  assertEquals([schema, device, results], ["parscale.cost/3", null, [exact]]);
});

Deno.test("lists multiply, and each row has the golden numbers of its method", async () => {
  const line = `${SHAPE} --streams 1,8 --batch 1,4 --input 64,512 --output 64,512 --method`;
  for (const method of ["paper", "exact"]) {
    const rows = await rowsOf(`${line} ${method}`);
    const found = new Map(rows.map((row) => {
      assertEquals(Object.keys(row).slice(0, INPUT_KEYS.length), INPUT_KEYS);
      return [[row.streams, row.batch, row.input, row.output].join(), row];
    }));
    assertEquals(found.size, 16);
    for (const golden of GOLDEN.rows) {
      const row = found.get(golden.slice(3, 7).join());
      if (golden[0] !== "1.6B" || !row) continue;
      const expected = (name: string) => golden[GOLDEN.columns.indexOf(`${method}_${name}`)];
      assertAlmostEquals(row.memory_bytes / expected("memory_bytes"), 1, 1e-9);
      assertAlmostEquals(row.latency_s / expected("latency_s"), 1, 1e-9);
      assertEquals(row.printed, expected("printed"));
    }
  }
});

Deno.test("models: a folder, its config, a size or shape of the paper, a run, stdin", () =>
  withScratch(async (cwd) => {
    linkRun(MODEL, `${cwd}/run`);
    const [folder] = await rowsOf(`cost --model ${MODEL}`);
    assertEquals([folder.streams, folder.hidden_size], [2, folder.head_dim * folder.num_heads]);
    const [plain] = await rowsOf(`cost --model ${PLAIN_MODEL}`);
    assertEquals([plain.streams, plain.prefix_tokens], [1, 48]);
    const stdin = Deno.readTextFileSync(`${MODEL}/config.json`);
    for (
      const [line, same] of [
        [`cost --model ${MODEL}/config.json`, `cost --model ${MODEL}`],
        [`cost --config-from ${MODEL}`, `cost --model ${MODEL}`],
        ["cost --model run", `cost --model ${MODEL}`],
        ["cost --model -", `cost --model ${MODEL}`],
        ["cost --config-from paper-1.6b -P 8", "cost --model 1.6B -P 8"],
        ["cost --hidden-size 1536 --intermediate-size 8320", SHAPE],
      ] as const
    ) {
      const [[found], [expected]] = [await rowsOf(line, { cwd, stdin }), await rowsOf(same)];
      assertEquals({ ...found, model: null }, { ...expected, model: null }, line);
    }
  }));

Deno.test("hardware: flags count, names can be new", async () => {
  const row = async (flags: string) => (await rowsOf(`${SHAPE} --method paper ${flags}`))[0];
  const usual = (await row("")).latency_s;
  assert((await row("--hardware h100-sxm-80gb")).latency_s < usual);
  assert((await row("--flops-efficiency 0.1 --memory-efficiency 0.1")).latency_s > usual);
  const flags = "--hardware mine --bandwidth 2039 --tflops 312 --capacity 4";
  const { hardware, capacity_gib, latency_s } = await row(flags);
  assertEquals([hardware, capacity_gib, latency_s], ["mine", 4, usual]);
  const listed = await rowsOf("cost ls");
  assertEquals(listed.length, 34);
  const keys = "name capacity_gib bandwidth_gb_s tflops origin remark";
  assertEquals(Object.keys(listed[0]).join(" "), keys);
});

Deno.test("more than the hardware holds is a warning, and computed all the same", async () => {
  const line = `${SHAPE} --capacity 3.4 --streams 1,8 --jsonl`;
  const { code, stdout, stderr } = await runParscale(line);
  assertEquals([code, parseLines(stdout).map((row) => row.fits)], [0, [true, false]]);
  assertStringIncludes(stderr, "warning: 1 of 2 configurations need up to 3.5 GiB, more than the");
  assertStringIncludes(stderr, "3.4 GiB of a100-sxm-80gb\nhint: choose larger --hardware");
});

Deno.test("widths, prefix copies and step overhead change what they should", async () => {
  const one = async (flags = "") => (await rowsOf(`${SHAPE} -P 4 ${flags}`))[0];
  const usual = await one(), shared = await one("--batch 2");
  assertEquals((await one("--weight-bits 8")).weight_bytes * 2, usual.weight_bytes);
  const copied = await one("--prefix-cache copied --batch 2");
  assertEquals(copied.kv_cache_bytes / shared.kv_cache_bytes, (128 + 48) / 128);
  const slow = await one("--step-overhead 10ms");
  assertAlmostEquals(slow.latency_s - usual.latency_s, 64 * 0.01);
});

Deno.test("PARSCALE_DEVICE and variables of other questions break nothing", async () => {
  const env = { PARSCALE_DEVICE: "cpu", PARSCALE_MICRO_BATCH: "2", PARSCALE_MODEL: "elsewhere" };
  assertEquals(await succeed(`${SHAPE} --jsonl`, { env }), await succeed(`${SHAPE} --jsonl`));
});

Deno.test("the figure is one whole SVG, and never overwrites unasked", () =>
  withScratch(async (cwd) => {
    const draw = "cost --svg f.svg";
    const rows = await rowsOf(`${draw} -q`, { cwd });
    const streams = rows.filter(({ way }) => way === "more streams").map((row) => row.streams);
    assertEquals([streams, rows.length], [[1, 2, 4, 8], 10]);
    const svg = await Deno.readTextFile(`${cwd}/f.svg`);
    const axes = ["memory (GiB)", "loss (nats per token)", "latency (s)"];
    assertFigure(svg, "Loss over memory and latency: 1.6B on a100-sxm-80gb", axes);
    const count = (pattern: RegExp) => (svg.match(pattern) ?? []).length;
    assertEquals(count(/class="mark-line /g), 4, "two ways in two panels");
    for (const text of ["0.5B", "4.4B", "P=2", "P=8", "more parameters"]) {
      assertStringIncludes(svg, `>${text}<`);
    }
    assert(count(/rotate\((?!0|-90|-45)[-\d.]+\)/g) >= 4, "turned arrow heads");

    assertFailed(await runParscale(draw, { cwd }), 2, "hint: pass --overwrite");
    const law = `${draw} --match law --model ${MODEL} --overwrite --input 64 -P 16`;
    const drawn = await runParscale(law, { cwd });
    assertEquals([drawn.code, drawn.stderr], [0, "wrote f.svg\n"]);
    assertEquals(names(cwd), ["f.svg"]);
  }));

Deno.test("a quantized file counts with its own bits, in tables of ms, beside the machine at hand", () =>
  withScratch(async (cwd) => {
    await succeed(`convert --model ${PLAIN_MODEL} --quantize q8 --out q8`, { cwd });
    assertEquals((await rowsOf("cost q8", { cwd }))[0].weight_bits, 8);
    await writeGguf(`${cwd}/own.gguf`, PLAIN_MODEL, { type: "Q8_0" });
    const [own] = await rowsOf("cost own.gguf", { cwd });
    const { size } = Deno.statSync(`${cwd}/own.gguf`);
    assertAlmostEquals(own.weight_bytes, size, 0.02 * size);
    assertEquals((await rowsOf("cost own.gguf --weight-bits 4", { cwd }))[0].weight_bits, 4);
    const table = await runParscale("cost own.gguf", { cwd });
    assertStringIncludes(
      table.stdout + table.stderr,
      "ideal times in ms; --hardware this-machine measures",
    );
    const columns = table.stdout.trim().split("\n").at(-1)!.trim().split(/\s+/);
    assertAlmostEquals(Number(columns[8]), 1000 * own.latency_s, 1e-3 * 1000 * own.latency_s);
    assertStringIncludes(await succeed("cost ls"), "this-machine ");
  }));
