/** `parscale inspect` as a black box: fields, the tokenizer, the check of weights and adapters. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { copyModel, readRaw, writeRaw } from "../unit/checkpoint/testing.ts";
import {
  assertFailed,
  documentOf,
  jsonLines,
  MODEL,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

const INSPECT = `inspect --model ${MODEL}`;

Deno.test("table and JSON show the same model; more rows and a longer context need more memory", async () => {
  const table = await succeed(INSPECT);
  const { schema, results, device } = await documentOf(INSPECT);
  assertEquals([schema, typeof device], ["parscale.inspect/2", "string"]);
  assertEquals([results.family, results.streams], ["qwen2", 2]);
  assert(results.params > results.introduced_params && results.introduced_params > 0);
  assert(results.memory_bytes >= results.weight_bytes + results.kv_cache_bytes);
  const { header } = readRaw(`${MODEL}/model.safetensors`);
  const stored = Object.keys(header).filter((name) => name !== "__metadata__").length;
  assertEquals([results.tensors, results.extra_tensors, results.dtypes], [stored, 0, ["f32"]]);
  assertStringIncludes(table, "qwen2, 2 streams");
  assertStringIncludes(table, results.params.toLocaleString("en"));
  const [plain] = await rowsOf(`inspect --model ${PLAIN_MODEL}`);
  assertEquals([plain.streams, plain.introduced_params, plain.smoothing], [1, 0, null]);
  const memory = async (flags: string) => (await rowsOf(`${INSPECT} ${flags}`))[0].memory_bytes;
  assert(await memory("--batch 4") > results.memory_bytes);
  assert(await memory("--context 512") < results.memory_bytes);
});

Deno.test("text to ids and back, from a flag and as JSON lines", async () => {
  const texts = ["2+2=4", "", "línea\n二 🙂", "  spaces  "];
  const stdin = jsonLines(...texts.map((text) => JSON.stringify(text)));
  const ids = parseLines(await succeed(`${INSPECT} --tokenize -`, { stdin }));
  assertEquals(ids.length, texts.length);
  assertEquals(await succeed(`${INSPECT} --tokenize ${texts[0]}`), `${JSON.stringify(ids[0])}\n`);
  const back = await succeed(`${INSPECT} --detokenize -`, { stdin: jsonLines(...ids) });
  assertEquals(parseLines(back), texts);
  for (const form of [ids[0].join(","), JSON.stringify(ids[0]), ids[0].join(", ")]) {
    assertEquals(await succeed(`${INSPECT} --detokenize '${form}'`), "2+2=4\n", form);
  }
  assertEquals(await succeed(`${INSPECT} --tokenize -`, { stdin: "" }), "");
  assertEquals(await succeed(`${INSPECT} --detokenize []`), "\n");
});

Deno.test("tokens go to the file that --out names", () =>
  withScratch(async (cwd) => {
    assertEquals(await succeed(`${INSPECT} --tokenize 2 --out ids.json`, { cwd }), "");
    const ids = JSON.parse(await Deno.readTextFile(`${cwd}/ids.json`));
    assertEquals(await succeed(`${INSPECT} --detokenize ${ids.join()}`), "2\n");
  }));

Deno.test("rows that cannot be used are named by line; good ones before are out already", async () => {
  const cases: readonly [flag: string, stdin: string, words: string][] = [
    ["--tokenize", '"a"\n{', "line 2 of stdin is not valid JSON: "],
    ["--tokenize", '"a"\n7\n', "line 2 of stdin: found 7, expected a JSON string"],
    ["--detokenize", '[64]\n"a"\n', 'line 2 of stdin: found "a", expected a JSON array'],
    ["--detokenize", "[64]\n[-1]\n", "found [-1], expected a JSON array of token ids"],
    [
      "--detokenize",
      "[64]\n[512]\n",
      "line 2 of stdin: token id 512 is not in the vocabulary of 512, expected 0 to",
    ],
  ];
  for (const [flag, stdin, words] of cases) {
    const { code, stdout, stderr } = await runParscale(`${INSPECT} ${flag} -`, { stdin });
    assertEquals([code, parseLines(stdout).length], [3, 1], stderr);
    assertStringIncludes(stderr, words);
    assert(/^error: [^\n]+\n(\nhint: [^\n]+\n)?$/.test(stderr), stderr);
  }
});

Deno.test("--check finds a weight that is not finite and an adapter of another backbone", () =>
  withScratch(async (cwd) => {
    const convert = `convert --model ${PLAIN_MODEL} -P 2 --introduced-only --out adapter`;
    await succeed(convert, { cwd });
    const check = (flags: string) => runParscale(`inspect --model other ${flags}`, { cwd });
    copyModel("qwen2-p1-tied-f32", `${cwd}/other`);
    assertEquals((await check("--adapter adapter --check")).code, 0);

    const path = `${cwd}/other/model.safetensors`;
    const { header, data } = readRaw(path);
    const begin = header["model.norm.weight"].data_offsets[0];
    data[begin]! ^= 1;
    writeRaw(path, header, data);
    assertEquals((await check("--adapter adapter")).code, 0);
    const made = 'error: adapter "adapter" was not made from "other": backbone_sha256 is ';
    const hint = "hint: pass the backbone it was made from: --model BACKBONE --adapter adapter\n";
    assertFailed(await check("--adapter adapter --check"), 3, made, hint);

    data.fill(0xff, begin + 8, begin + 12);
    writeRaw(path, header, data);
    assertEquals((await check("")).code, 0);
    const found = "is not finite: NaN at index 2 of shape [";
    assertFailed(await check("--check"), 5, "tensor model.norm.weight in ", found);
  }));

Deno.test("no tokenizer is a fact, a damaged one an error", () =>
  withScratch(async (cwd) => {
    copyModel("qwen2-p1-tied-f32", `${cwd}/model`);
    await Deno.writeTextFile(`${cwd}/model/tokenizer.json`, "{");
    assertFailed(await runParscale("inspect --model model", { cwd }), 3, "tokenizer.json");
    await Deno.remove(`${cwd}/model/tokenizer.json`);
    assertEquals((await rowsOf("inspect --model model", { cwd }))[0].tokenizer, null);
  }));
