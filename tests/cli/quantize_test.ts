/** `--quantize`: folders that convert writes, what runs them, and weights kept between starts. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { encodeHeader } from "../../core/checkpoint/safetensors.ts";
import { parseConfig } from "../../core/checkpoint/config.ts";
import { elementCount, parameterSpecs } from "../../core/model/parameters.ts";
import { DATA, TINY } from "./eval_testing.ts";
import {
  assertFailed,
  copyFolder,
  documentOf,
  jsonLines,
  MODEL,
  names,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

const PROMPTS = jsonLines({ tokens: [1, 2, 3, 5, 8] }, { tokens: [13, 21] });

/** Runs a command successfully and returns `results` of its JSON document. */
const results = async (cwd: string, line: string) => (await documentOf(line, { cwd })).results;

const quantized = (cwd: string, flags = "") =>
  results(cwd, `convert --model ${MODEL} --quantize q4 --out q4 ${flags}`);

Deno.test("a quantized folder generates and scores as --quantize does at run time", () =>
  withScratch(async (cwd) => {
    for (const [kind, block] of [["q4", 32], ["q8", 64]] as const) {
      const how = `--quantize ${kind} --block-size ${block}`;
      const made = await results(cwd, `convert --model ${MODEL} --out ${kind} ${how}`);
      assertEquals([made.quantization, made.block_size, made.streams], [kind, block, 2]);
      assertEquals(names(`${cwd}/${kind}`), made.files.toSorted());
      for (const command of ["generate --max-tokens 8", "score"]) {
        const run = (model: string) =>
          rowsOf(`${command} --model ${model}`, { cwd, stdin: PROMPTS });
        const expected = await run(`${MODEL} ${how}`);
        assertEquals(await run(kind), expected);
        assertEquals(await run(`${kind} ${how}`), expected);
      }
    }
  }));

Deno.test("an adapter over a quantized backbone scores as over the quantized original", () =>
  withScratch(async (cwd) => {
    const source = `convert --model ${PLAIN_MODEL}`;
    await results(cwd, `${source} --streams 4 --introduced-only --out adapter`);
    await results(cwd, `${source} --quantize q4 --out q4`);
    const score = (model: string) =>
      rowsOf(`score --adapter adapter --model ${model}`, { cwd, stdin: PROMPTS });
    assertEquals(await score("q4"), await score(`${PLAIN_MODEL} --quantize q4`));
    const checked = await results(cwd, "inspect --model q4 --adapter adapter --check");
    assertEquals(checked.streams, 4);
  }));

Deno.test("several adapters over a quantized ParScale folder, each as over it alone", () =>
  withScratch(async (cwd) => {
    await quantized(cwd);
    const source = `convert --model ${PLAIN_MODEL} --introduced-only --streams`;
    await results(cwd, `${source} 2 --out a`);
    await results(cwd, `${source} 3 --seed 4 --out b`);
    const generate = (...adapters: string[]) =>
      rowsOf(
        `generate --model q4 --max-tokens 6${adapters.map((a) => ` --adapter ${a}=${a}`).join("")}`,
        { cwd, stdin: jsonLines(...adapters.map((adapter) => ({ tokens: [1, 2, 3], adapter }))) },
      );
    const [first, second] = await generate("a", "b");
    assertEquals(first.tokens, (await generate("a"))[0].tokens);
    assertEquals(second.tokens, (await generate("b"))[0].tokens);
  }));

Deno.test("inspect, bench, visualize and eval take a quantized folder and name its kind", () =>
  withScratch(async (cwd) => {
    const { tensors, bytes } = await quantized(cwd, "--verify");
    const found = await results(cwd, "inspect --model q4 --check");
    assertEquals([found.dtypes, found.block_size], [["q4", "f32"], 32]);
    assertEquals([found.tensors, found.stored_bytes], [tensors, bytes]);
    const short = "bench --model q4 --context 8 --rounds 1 --steps 2 --what decode";
    for (const streams of ["", "--streams 1,3"]) {
      const rows = await rowsOf(`${short} ${streams}`, { cwd });
      assertEquals(new Set(rows.map(({ weights }) => weights)), new Set(["q4"]));
    }
    const show = "visualize --text 'A cat' --model";
    assertEquals(
      await rowsOf(`${show} q4`, { cwd }),
      await rowsOf(`${show} ${MODEL} --quantize q4`, { cwd }),
    );
    await results(cwd, `convert --model ${TINY} --quantize q8 --out tiny`);
    const evaluate = `eval --data ${DATA} --tasks piqa --ids 0..3 --model`;
    const own = await results(cwd, `${evaluate} tiny`);
    const same = await results(cwd, `${evaluate} ${TINY} --quantize q8`);
    assertEquals([own.tasks[0].metrics, own.quantize], [same.tasks[0].metrics, same.quantize]);
  }));

Deno.test("convert --quantize: dry run, overwrite, and changed bytes", () =>
  withScratch(async (cwd) => {
    const plan = await quantized(cwd, "--dry-run");
    assertEquals(names(cwd), []);
    const made = await quantized(cwd);
    assertEquals([made.tensors, made.bytes], [plan.tensors, plan.bytes]);
    const line = `convert --model ${MODEL} --quantize q8 --out q4 --overwrite`;
    assertEquals((await results(cwd, line)).quantization, "q8");

    const path = `${cwd}/q4/model.safetensors`, stored = Deno.readFileSync(path);
    stored[stored.length - 999]! ^= 1;
    Deno.writeFileSync(path, stored);
    const check = await runParscale("inspect --model q4 --check", { cwd });
    assertFailed(check, 3, 'error: the weights in "q4" were changed');
  }));

/** A model of 76 MB, just large enough to be kept: one layer under a table of 32,768 rows. */
async function wideModel(folder: string): Promise<string> {
  const config = JSON.parse(Deno.readTextFileSync(`${PLAIN_MODEL}/config.json`));
  const wide = { ...config, vocab_size: 32768, hidden_size: 1024, num_hidden_layers: 1 };
  const files = { "config.json": JSON.stringify(wide), "model.safetensors": undefined };
  const model = await copyFolder(PLAIN_MODEL, `${folder}/wide`, files);
  const specs = parameterSpecs(parseConfig(wide, "config.json"))
    .map((spec) => ({ ...spec, dtype: "BF16", byteLength: elementCount(spec.shape) * 2 }));
  // bf16 between 2^-7 and 2^-5, signs in turn.
  const values = Uint16Array.from(
    { length: 1 << 20 },
    (_, i) => (i * 0x9e3779b1 >>> 23 & 0x80ff) | 0x3c00 | (i * 2654435761 & 0x8000),
  );
  using file = await Deno.open(`${model}/model.safetensors`, { create: true, write: true });
  await file.write(encodeHeader(specs));
  const total = specs.reduce((sum, { byteLength }) => sum + byteLength, 0);
  for (let left = total; left > 0;) {
    left -= await file.write(new Uint8Array(values.buffer).subarray(0, left));
  }
  return model;
}

Deno.test("--quantize keeps weights for the next start, which gives the same tokens", () =>
  withScratch(async (folder) => {
    const model = await wideModel(folder);
    const cache = `${folder}/cache`, prompt = '{"tokens":[3,5,7]}\n';
    const generate = async (flags = "", PARSCALE_CACHE = cache) => {
      const line = `generate --model ${model} - --max-tokens 4 --quantize q4 --jsonl ${flags}`;
      const env = { PARSCALE_CACHE };
      const { code, stdout, stderr } = await runParscale(line, { stdin: prompt, env });
      assertEquals(code, 0, stderr);
      return { tokens: JSON.parse(stdout).tokens, stderr };
    };
    const { tokens, stderr } = await generate("--no-weight-cache");
    assertEquals(stderr, "");
    const first = await generate();
    assertEquals(first.tokens, tokens);
    assertMatch(
      first.stderr,
      /^keeping q4 weights \(\d+\.\d MB\) in \S+\/weights for the next start/,
    );
    assertStringIncludes(first.stderr, "; --no-weight-cache leaves that out\n");
    assertEquals(await generate(), { tokens, stderr: "" });
    assertEquals((await generate("--cache-limit 1MB")).tokens, tokens);

    const env = { PARSCALE_CACHE: cache };
    const row = (await rowsOf("doctor", { env })).find(({ check }) => check === "weight cache");
    assertMatch(row.found, /^\d+\.\d MB of quantized weights in /);
    // As a process leaves it that is killed while it writes an entry.
    const { size } = Deno.statSync(`${model}/model.safetensors`);
    const left = `${cache}/weights/.${"0".repeat(64)}.partial-99999999-00000000`;
    const leave = () => {
      Deno.mkdirSync(left);
      Deno.linkSync(`${model}/model.safetensors`, `${left}/model.safetensors`);
    };
    leave();
    assertEquals((await generate()).tokens, tokens);
    assertEquals(names(`${cache}/weights`).length, 1, "the next start removes it");
    leave();
    const cleared = await runParscale("doctor --clear-cache --jsonl", { env });
    assert(JSON.parse(cleared.stdout).removed_bytes > size, cleared.stdout);
    assertEquals(names(`${cache}/weights`), []);

    // Where the cache cannot be written, the command continues without.
    Deno.writeTextFileSync(`${folder}/file`, "");
    const without = await generate("", `${folder}/file`);
    assertEquals(without.tokens, tokens);
    assertStringIncludes(without.stderr, "warning: quantized weights were not kept: ");
  }));

Deno.test("a small model is not kept", () =>
  withScratch(async (cwd) => {
    const small = `generate --model ${PLAIN_MODEL} --prompt a --max-tokens 1`;
    await succeed(`${small} --quantize q8`, { env: { PARSCALE_CACHE: `${cwd}/cache` } });
    assert(!(await Deno.stat(`${cwd}/cache/weights`).catch(() => undefined)));
  }));
