/** `parscale inspect` as a black box: fields, the tokenizer, the check of weights and adapters. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { copyModel, readRaw, writeRaw } from "../unit/checkpoint/testing.ts";
import {
  assertFailed,
  assertRefusals,
  assertRefused,
  jsonLines,
  MODEL,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
} from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { linkSync } from "../links.ts";

const INSPECT = ["inspect", "--model", MODEL];

Deno.test("table and JSON show the same model", async () => {
  const [table, json] = await Promise.all([
    runParscale(INSPECT),
    runParscale([...INSPECT, "--json"]),
  ]);
  assertEquals([table.code, table.stderr, json.code, json.stderr], [0, "", 0, ""]);
  const { schema, results, device } = JSON.parse(json.stdout);
  assertEquals([schema, typeof device], ["parscale.inspect/2", "string"]);
  assertEquals([results.family, results.streams], ["qwen2", 2]);
  assert(results.params > results.introduced_params && results.introduced_params > 0);
  assert(results.memory_bytes >= results.weight_bytes + results.kv_cache_bytes);
  const { header } = readRaw(`${MODEL}/model.safetensors`);
  const stored = Object.keys(header).filter((name) => name !== "__metadata__").length;
  assertEquals([results.tensors, results.extra_tensors, results.dtypes], [stored, 0, ["f32"]]);
  assertStringIncludes(table.stdout, "qwen2, 2 streams");
  assertStringIncludes(table.stdout, results.params.toLocaleString("en"));
  const [plain] = await rowsOf(["inspect", "--model", PLAIN_MODEL]);
  assertEquals([plain.streams, plain.introduced_params, plain.smoothing], [1, 0, null]);
});

Deno.test("more rows and a longer context need more memory", async () => {
  const memory = async (...flags: string[]) =>
    (await rowsOf([...INSPECT, ...flags]))[0].memory_bytes;
  const base = await memory();
  assert(await memory("--batch", "4") > base);
  assert(await memory("--context", "512") < base);
});

Deno.test("text to ids and back, from a flag and as JSON lines", async () => {
  const run = async (flags: string[], stdin?: string) => {
    const result = await runParscale([...INSPECT, ...flags], stdin === undefined ? {} : { stdin });
    assertEquals([result.code, result.stderr], [0, ""]);
    return result.stdout;
  };
  const texts = ["2+2=4", "", "línea\n二 🙂", "  spaces  "];
  const stdin = jsonLines(...texts.map((text) => JSON.stringify(text)));
  const lines = await run(["--tokenize", "-"], stdin);
  const ids = parseLines(lines);
  assertEquals(ids.length, texts.length);
  assertEquals(await run(["--tokenize", texts[0]!]), `${JSON.stringify(ids[0])}\n`);
  assertEquals(parseLines(await run(["--detokenize", "-"], jsonLines(...ids))), texts);
  for (const form of [ids[0].join(","), JSON.stringify(ids[0]), ids[0].join(", ")]) {
    assertEquals(await run(["--detokenize", form]), "2+2=4\n", form);
  }
  assertEquals(await run(["--tokenize", "-"], ""), "");
});

Deno.test("a run stands for its newest checkpoint, for the tokenizer too", () =>
  withScratch(async (cwd) => {
    await Deno.mkdir(`${cwd}/run`);
    linkSync(MODEL, `${cwd}/run/checkpoint-7`);
    await Deno.writeTextFile(`${cwd}/run/last`, "checkpoint-7\n");
    const ids = (model: string) =>
      runParscale(["inspect", "--model", model, "--tokenize", "2+2="], { cwd });
    assertEquals(await ids("run"), await ids(MODEL));
  }));

Deno.test("rows that cannot be used are named by line; good ones before are out already", async () => {
  const cases: [string, string, string][] = [
    ["--tokenize", '"a"\n{', "line 2 of stdin is not valid JSON: "],
    ["--tokenize", '"a"\n7\n', "line 2 of stdin: found 7, expected a JSON string"],
    ["--detokenize", '[64]\n"a"\n', 'line 2 of stdin: found "a", expected a JSON array'],
    ["--detokenize", "[64]\n[-1]\n", "found [-1], expected a JSON array of token ids"],
    [
      "--detokenize",
      "[64]\n[99999]\n",
      "token id 99999 is not in the vocabulary of 512, expected 0 to 511",
    ],
  ];
  for (const [flag, stdin, words] of cases) {
    const { code, stdout, stderr } = await runParscale([...INSPECT, flag, "-"], { stdin });
    assertEquals([code, parseLines(stdout).length], [3, 1], stderr);
    assertStringIncludes(stderr, words);
    assert(/^error: [^\n]+\n(\nhint: [^\n]+\n)?$/.test(stderr), stderr);
  }
});

Deno.test("misuse ends with 2 and prints no result", async () => {
  const inspect = INSPECT.join(" ");
  await assertRefusals([
    ["inspect", 2, "`inspect` needs `--model`"],
    [`${inspect} --batch 0`, 2, 'invalid value "0" for `--batch`'],
    [`${inspect} --context 0`, 2, 'invalid value "0" for `--context`'],
    [
      `${inspect} --context 8k`,
      2,
      "error: `--context 8000` exceeds the model's context of 2048 tokens\n\n" +
      "hint: pass --context 2048 or less\n",
    ],
    [`${inspect} --device tpu`, 2, 'invalid value "tpu" for `--device`'],
    [[...INSPECT, "--detokenize", "1 2"], 2, 'invalid value "1 2" for `--detokenize`'],
    [
      `${inspect} --tokenize a --detokenize 1`,
      2,
      "`--tokenize a` cannot be combined with `--detokenize`",
    ],
  ]);
});

Deno.test("a folder that is no model, or an adapter alone, is refused with a way out", () =>
  withScratch(async (cwd) => {
    const missing = await runParscale(["inspect", "--model", "./none"], { cwd });
    assertRefused(
      missing,
      3,
      'no such folder: "./none"',
    );
    assertStringIncludes(missing.stderr, "\n\nhint: check the path");
    const args = ["--model", PLAIN_MODEL, "-P", "2", "--introduced-only", "--out", "adapter"];
    assertEquals((await runParscale(["convert", ...args], { cwd })).code, 0);
    const alone = await runParscale(["inspect", "--model", "adapter"], { cwd });
    assertFailed(alone, 3, "hint: this is an adapter folder: pass it with `--adapter`");
  }));

Deno.test("--check finds a weight that is not finite and an adapter of another backbone", () =>
  withScratch(async (cwd) => {
    const out = ["-P", "2", "--introduced-only", "--out", "adapter"];
    await runParscale(["convert", "--model", PLAIN_MODEL, ...out], { cwd });
    const check = (...flags: string[]) =>
      runParscale(["inspect", "--model", "other", ...flags], { cwd });
    copyModel("qwen2-p1-tied-f32", `${cwd}/other`);
    assertEquals((await check("--adapter", "adapter", "--check")).code, 0);

    const path = `${cwd}/other/model.safetensors`;
    const { header, data } = readRaw(path);
    const begin = header["model.norm.weight"].data_offsets[0];
    data[begin]! ^= 1;
    writeRaw(path, header, data);
    assertEquals((await check("--adapter", "adapter")).code, 0);
    const alien = await check("--adapter", "adapter", "--check");
    const made = 'error: adapter "adapter" was not made from "other": backbone_sha256 is ';
    assertFailed(alien, 3, made, "hint: pass the `--model` that the adapter was made from");

    data.fill(0xff, begin + 8, begin + 12);
    writeRaw(path, header, data);
    assertEquals((await check()).code, 0);
    const bad = await check("--check");
    const found = "is not finite: NaN at index 2 of shape [";
    assertFailed(bad, 5, "tensor model.norm.weight in ", found);
  }));

Deno.test("a closed pipe ends quietly with 0", async () => {
  for (const flags of ["", "--json", "--tokenize hello"]) {
    const script = `parscale inspect --model ${MODEL} ${flags} | true; echo \${PIPESTATUS[0]}`;
    assertEquals(await runShell(script), { code: 0, stdout: "0\n", stderr: "" });
  }
});

Deno.test("no tokenizer is a fact, a damaged one an error", () =>
  withScratch(async (cwd) => {
    copyModel("qwen2-p1-tied-f32", `${cwd}/model`);
    const inspect = () => runParscale(["inspect", "--model", "model", "--json"], { cwd });
    await Deno.writeTextFile(`${cwd}/model/tokenizer.json`, "{");
    const damaged = await inspect();
    assertEquals([damaged.code, damaged.stdout], [3, ""]);
    assertStringIncludes(damaged.stderr, "tokenizer.json");
    await Deno.remove(`${cwd}/model/tokenizer.json`);
    const none = await inspect();
    assertEquals([none.code, JSON.parse(none.stdout).results.tokenizer], [0, null]);
  }));
