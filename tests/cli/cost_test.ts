/** `parscale cost` as a black box: rows, models, devices, questions, and everything refused. */
import { fileURLToPath } from "node:url";
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { assertFailed, assertRefused, MODEL, parseLines, PLAIN_MODEL, rowsOf } from "./models.ts";
import { assertFigure } from "./figures.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { linkSync } from "../links.ts";

const SHAPE = ["cost", "--hidden-size", "1536", "--intermediate-size", "8320"];
const FIXTURES = fileURLToPath(new URL("../../fixtures/", import.meta.url));
const GOLDEN = JSON.parse(Deno.readTextFileSync(`${FIXTURES}analysis/cost.json`));

const INPUT_KEYS = (
  "model mode method hidden_size intermediate_size num_layers num_heads num_kv_heads " +
  "head_dim vocab_size tie_word_embeddings hardware bandwidth_gb_s tflops capacity_gib " +
  "flops_efficiency memory_efficiency weight_bits activation_bits cache_bits prefix_cache " +
  "step_overhead_s streams prefix_tokens batch input output"
).split(" ");

/** The golden file has a field's earlier name. */
const fieldOf = (name: string) => name === "kv_bytes" ? "kv_cache_bytes" : name;

Deno.test("the whole golden grid of a shape, by flags, in both methods", async () => {
  const flags = ["--streams", "1..8*2", "--batch", "1,4", "--input", "64..512*2"];
  const args = [...SHAPE, ...flags, "--output", "64..512*2"];
  const [paper, exact] = await Promise.all([
    rowsOf([...args, "--method", "paper"]),
    rowsOf(args),
  ]);
  const column = (name: string) => GOLDEN.columns.indexOf(name);
  const golden = GOLDEN.rows.filter((row: unknown[]) => row[0] === "1.6B");
  assertEquals([paper.length, exact.length, golden.length], [128, 128, 128]);
  const key = (row: Record<string, number>) =>
    [row.streams, row.batch, row.input, row.output].join();
  const byKey = new Map(golden.map((row: number[]) => [row.slice(3, 7).join(), row]));
  for (const [prefix, rows] of [["paper_", paper], ["exact_", exact]] as const) {
    for (const row of rows) {
      const expected = byKey.get(key(row)) as (number | string)[];
      for (const name of GOLDEN.columns.filter((name: string) => name.startsWith(prefix))) {
        const value = expected[column(name)], found = row[fieldOf(name.slice(prefix.length))];
        if (typeof value === "string") assertEquals(found, value);
        else assert(Math.abs(found - value!) <= 1e-9 * Math.abs(value!), `${name} ${key(row)}`);
      }
      assertEquals(row.fits, true);
    }
  }
});

Deno.test("a shape of the paper by --config-from costs what its size costs", async () => {
  const [named, size, folder, model] = await Promise.all([
    rowsOf(["cost", "--config-from", "paper-1.6b", "-P", "8"]),
    rowsOf(["cost", "--model", "1.6B", "-P", "8"]),
    rowsOf(["cost", "--config-from", MODEL]),
    rowsOf(["cost", "--model", MODEL]),
  ]);
  assertEquals(named, size);
  assertEquals(folder, model);
});

Deno.test("a row echoes its inputs under fixed names, then total and parts", async () => {
  const [exact] = await rowsOf(SHAPE);
  const parts = "weight_bytes kv_cache_bytes activation_bytes prefill_s decode_s flops".split(" ");
  assertEquals(Object.keys(exact), [
    ...INPUT_KEYS,
    "memory_bytes",
    "latency_s",
    ...parts,
    "fits",
  ]);
  assertEquals([exact.model, exact.method, exact.hardware], [null, "exact", "a100-sxm-80gb"]);
  assertAlmostEquals(
    exact.weight_bytes + exact.kv_cache_bytes + exact.activation_bytes,
    exact.memory_bytes,
  );
  const [paper] = await rowsOf([...SHAPE, "--method", "paper"]);
  assertEquals(Object.keys(paper).slice(0, INPUT_KEYS.length), INPUT_KEYS);
  assert(/^Memory: \d\.\d{3}GB; Latency: \d\.\d{3}s$/.test(paper.printed), paper.printed);
  const { stdout } = await runParscale([...SHAPE, "--json"]);
  const { schema, results, device } = JSON.parse(stdout);
  assertEquals([schema, device, results], ["parscale.cost/2", null, [exact]]);
});

Deno.test("models: a folder, its config, a size of the paper; streams and prefixes from it", () =>
  withScratch(async (cwd) => {
    const [folder] = await rowsOf(["cost", "--model", MODEL]);
    assertEquals([folder.streams, folder.hidden_size], [2, folder.head_dim * folder.num_heads]);
    const [file] = await rowsOf(["cost", "--model", `${MODEL}/config.json`]);
    assertEquals({ ...file, model: folder.model }, folder);
    const [plain] = await rowsOf(["cost", "--model", PLAIN_MODEL]);
    assertEquals([plain.streams, plain.prefix_tokens], [1, 48]);

    await Deno.mkdir(`${cwd}/run`);
    linkSync(MODEL, `${cwd}/run/checkpoint-7`);
    await Deno.writeTextFile(`${cwd}/run/last`, "checkpoint-7\n");
    const [run] = await rowsOf(["cost", "--model", "run"], { cwd });
    assertEquals(run.memory_bytes, folder.memory_bytes);

    const [named] = await rowsOf(["cost", "--model", "1.6b", "--streams", "4"]);
    const [shaped] = await rowsOf([...SHAPE, "--streams", "4"]);
    assertEquals({ ...named, model: null }, shaped);
  }));

Deno.test("a config.json may come from stdin", async () => {
  const stdin = Deno.readTextFileSync(`${MODEL}/config.json`);
  const args = ["cost", "--input", "32", "--output", "8", "--json"];
  const piped = await runParscale([...args, "--model", "-"], { stdin });
  const named = await runParscale([...args, "--model", MODEL]);
  const [one, other] = [piped, named].map(({ stdout }) => JSON.parse(stdout).results[0]);
  assertEquals({ ...one, model: null }, { ...other, model: null });
  assertRefused(
    await runParscale([...args.slice(0, -1), "--model", "-"], { stdin: "[]" }),
    3,
    "stdin is not a JSON object: []",
  );
});

Deno.test("hardware: flags count, files describe, names can be new", () =>
  withScratch(async (cwd) => {
    const base = [...SHAPE, "--method", "paper"];
    const latency = async (...flags: string[]) =>
      (await rowsOf([...base, ...flags], { cwd }))[0].latency_s;
    const usual = await latency();
    assert(await latency("--hardware", "h100-sxm-80gb") < usual);
    assert(await latency("--flops-efficiency", "0.1", "--memory-efficiency", "0.1") > usual);
    assertEquals(await latency("--hardware", "x", "--bandwidth", "2039", "--tflops", "312"), usual);
    const own = { name: "mine", bandwidth_gb_s: 2039, tflops: 312, capacity_gib: 4 };
    await Deno.writeTextFile(`${cwd}/mine.json`, JSON.stringify(own));
    const [row] = await rowsOf([...base, "--hardware", "mine.json"], { cwd });
    assertEquals([row.hardware, row.capacity_gib, row.latency_s], ["mine", 4, usual]);

    for (
      const [content, words] of [
        ['{"bandwidth_gb_s":1}', 'tflops in hardware file "bad.json" must be a positive number'],
        ['{"bandwith_gb_s":1,"tflops":1}', 'unknown key "bandwith_gb_s" in hardware file'],
        ['{"bandwidth_gb_s":-1,"tflops":1}', "must be a positive number: -1"],
      ] as const
    ) {
      await Deno.writeTextFile(`${cwd}/bad.json`, content);
      assertFailed(await runParscale([...base, "--hardware", "bad.json"], { cwd }), 3, words);
    }
  }));

Deno.test("more than the hardware holds is a warning, and computed all the same", async () => {
  const flags = ["--capacity", "3.4", "--streams", "1,8", "--jsonl"];
  const { code, stdout, stderr } = await runParscale([...SHAPE, ...flags]);
  assertEquals([code, parseLines(stdout).map((row) => row.fits)], [0, [true, false]]);
  assertStringIncludes(stderr, "warning: 1 of 2 configurations need up to 3.5 GiB, more than the");
  assertStringIncludes(stderr, "3.4 GiB of a100-sxm-80gb\nhint: choose larger --hardware");
});

Deno.test("widths, prefix copies and step overhead change what they should", async () => {
  const one = async (...flags: string[]) => (await rowsOf([...SHAPE, "-P", "4", ...flags]))[0];
  const usual = await one();
  const [w8, copied, slow] = await Promise.all([
    one("--weight-bits", "8"),
    one("--prefix-cache", "copied", "--batch", "2"),
    one("--step-overhead", "10ms"),
  ]);
  assertEquals(w8.weight_bytes * 2, usual.weight_bytes);
  const [shared] = await rowsOf([...SHAPE, "-P", "4", "--batch", "2"]);
  assertEquals(copied.kv_cache_bytes / shared.kv_cache_bytes, (128 + 48) / 128);
  assertAlmostEquals(slow.latency_s - usual.latency_s, 64 * 0.01);
});

Deno.test("training: parts, micro-batches and what is learned", async () => {
  const args = ["cost", "--mode", "train", "--model", "0.5B", "-P", "2", "--batch", "8"];
  const [whole, part] = await rowsOf([...args, "--micro-batch", "8,2", "--seq-len", "256"]);
  const sum = ["weight_bytes", "gradient_bytes", "moment_bytes", "activation_bytes"]
    .reduce((total, key) => total + whole[key], 0);
  assertEquals([whole.memory_bytes, whole.weight_bits], [sum, 32]);
  assert(part.memory_bytes < whole.memory_bytes);
  const [introduced] = await rowsOf([...args, "--train-params", "introduced", "--recompute"]);
  assert(introduced.trained_params < whole.trained_params / 50);
  const table = await runParscale(args);
  assertStringIncludes(table.stdout, "a training step");
});

Deno.test("the hardware list", async () => {
  const rows = await rowsOf(["cost", "ls"]);
  assertEquals(rows.length, 33);
  assertEquals(
    Object.keys(rows[0]),
    "name capacity_gib bandwidth_gb_s tflops origin remark".split(" "),
  );
});

Deno.test("PARSCALE_DEVICE and variables of other questions break nothing", async () => {
  const env = { PARSCALE_DEVICE: "cpu", PARSCALE_MICRO_BATCH: "2", PARSCALE_MODEL: "elsewhere" };
  const usual = await runParscale([...SHAPE, "--jsonl"]);
  assertEquals(await runParscale([...SHAPE, "--jsonl"], { env }), usual);
});

Deno.test("the figure is one whole SVG, and never overwrites unasked", () =>
  withScratch(async (cwd) => {
    const rows = await rowsOf(["cost", "--svg", "f.svg", "-q"], { cwd });
    assertEquals(rows.filter(({ way }) => way === "more streams").map((row) => row.streams), [
      1,
      2,
      4,
      8,
    ]);
    assertEquals(rows.length, 10);
    const svg = await Deno.readTextFile(`${cwd}/f.svg`);
    const axes = ["memory (GiB)", "loss (nats per token)", "latency (s)"];
    assertFigure(svg, "Loss over memory and latency: 1.6B on a100-sxm-80gb", axes);
    const count = (pattern: RegExp) => (svg.match(pattern) ?? []).length;
    assertEquals(count(/class="mark-line /g), 4, "two ways in two panels");
    for (const text of ["0.5B", "4.4B", "P=2", "P=8", "more parameters"]) {
      assertStringIncludes(svg, `>${text}<`);
    }
    assert(count(/rotate\((?!0|-90|-45)[-\d.]+\)/g) >= 4, "turned arrow heads");

    const again = await runParscale(["cost", "--svg", "f.svg"], { cwd });
    assertEquals([again.code, again.stdout], [2, ""]);
    assertStringIncludes(again.stderr, "hint: pass --overwrite");
    const law = ["--match", "law", "--model", MODEL, "--overwrite", "--input", "64", "-P", "16"];
    const drawn = await runParscale(["cost", "--svg", "f.svg", ...law], { cwd });
    assertEquals([drawn.code, drawn.stderr], [0, "wrote f.svg\n"]);
    assertEquals([...Deno.readDirSync(cwd)].map(({ name }) => name), ["f.svg"]);
  }));

Deno.test("--measured runs the rows next to the prediction", async () => {
  const flags = ["--measured", "-P", "1,2", "--batch", "2", "--input", "20", "--output", "4"];
  const rows = await rowsOf(["cost", "--model", MODEL, ...flags, "--runs", "1", "--threads", "1"]);
  assertEquals(rows.map(({ streams }) => streams), [1, 2]);
  for (const row of rows) {
    assertEquals([row.hardware, row.device, row.weight_bits], ["this-machine", "cpu", 32]);
    assertEquals([row.flops_efficiency, row.memory_efficiency], [1, 1]);
    assert(row.measured_prefill_s > 0 && row.measured_decode_s > 0 && row.plan_bytes > 0);
    assertAlmostEquals(row.latency_ratio, row.measured_latency_s / row.latency_s);
  }
  const huge = "cost --model 4.4B --measured --batch 4096 --hardware t4-16gb -P 64";
  assertFailed(await runParscale(huge.split(" ")), 4, " of memory; ");
});
