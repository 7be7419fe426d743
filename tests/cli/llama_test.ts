/** Llama models through the commands, as folders, as GGUF files, and by the names of these on a hub. */
import {
  assert,
  assertAlmostEquals,
  assertEquals,
  assertMatch,
  assertNotEquals,
  assertStringIncludes,
} from "@std/assert";
import { type GgufOptions, writeGguf, writeTinyFolder } from "../gguf_model.ts";
import { assertFailed, jsonLines, names, rowsOf } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { startHub } from "./stand_in_hub.ts";
import { linkSync } from "../links.ts";
import { FIXTURES, readFixture } from "../fixtures.ts";

const LLAMA = `${FIXTURES}models/llama-p1-llama3-tied-f32`;
const GOLDEN = readFixture("golden/llama.json")
  .models["llama-p1-llama3-tied-f32"];

/** Stdout of a line that must succeed; it may say more on stderr. */
async function succeed(line: string, cwd: string): Promise<string> {
  const { code, stdout, stderr } = await runParscale(line, { cwd });
  assertEquals(code, 0, `${line}: ${stderr}`);
  return stdout;
}

Deno.test("generate, score, inspect and cost take a Llama model", async () => {
  const { pairs, generation } = GOLDEN.scores;
  const rows = pairs.map((pair: Record<string, string>) => ({
    prompt: pair.context,
    continuation: pair.continuation,
  }));
  const [prompt] = GOLDEN.greedy;
  const model = `--model ${LLAMA} --device reference`;
  const [ids, text, scores, [inspected], [cost]] = await Promise.all([
    rowsOf(`generate ${model} --max-tokens 12 --ignore-eos`, {
      stdin: jsonLines({ tokens: prompt.prompt }),
    }),
    rowsOf(["generate", ...model.split(" "), "--max-tokens", "8", "--prompt", generation.context]),
    rowsOf(`score ${model}`, { stdin: jsonLines(...rows) }),
    rowsOf(`inspect --model ${LLAMA}`),
    rowsOf(`cost --model ${LLAMA}`),
  ]);
  assertEquals(ids[0].tokens, prompt.tokens);
  assertEquals(text[0].text, generation.text);
  scores.forEach((row, i) => {
    assertAlmostEquals(row.loglikelihood, pairs[i].loglikelihood, 1e-3);
    assertEquals(row.is_greedy, pairs[i].is_greedy);
  });
  assertEquals([inspected.family, inspected.rope_scaling], ["llama", "llama3"]);
  assertEquals([inspected.params, inspected.tokenizer], [GOLDEN.parameters, "byte-level-bpe"]);
  assert(cost.memory_bytes > 0 && cost.latency_s > 0);
});

Deno.test("a Llama model gets streams, is trained, evaluated and stripped again", () =>
  withScratch(async (cwd) => {
    linkSync(LLAMA, `${cwd}/llama`);
    const texts = Array.from({ length: 8 }, (_, i) => ({ text: `Two brothers built raft ${i}.` }));
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...texts));
    await succeed("convert --model llama --streams 2 --prefix-tokens 4 --out p2", cwd);
    const config = JSON.parse(await Deno.readTextFile(`${cwd}/p2/config.json`));
    assertEquals(config.model_type, "llama_parscale");
    assertEquals(config.architectures, ["LlamaParScaleForCausalLM"]);
    assertEquals([config.auto_map.AutoConfig, config.rope_scaling.rope_type], [
      "modeling_parscale.LlamaParScaleConfig",
      "llama3",
    ]);
    const short = "--seq-len 16 --batch 2 --steps 2";
    await succeed(`train --model p2 --data rows.jsonl ${short} --out run`, cwd);
    const stdin = jsonLines({ tokens: [0, 5, 9] });
    const [trained] = await rowsOf("score --model run --stream-weights", { cwd, stdin });
    assertEquals(trained.weights[0].length, 2);
    const data = `--data ${FIXTURES}eval/data --limit 1 --max-tokens 2 --out results`;
    await succeed(`eval --model p2 --tasks gsm8k,arc_easy ${data}`, cwd);
    await succeed("convert --model p2 --strip --out back", cwd);
    const inspected = async (name: string) => ({
      ...(await rowsOf(`inspect --model ${name}`, { cwd }))[0],
      model: "",
      directory: "",
    });
    assertEquals(await inspected("back"), await inspected("llama"));
  }));

Deno.test("training keeps rotary scaling and the context that goes with it", () =>
  withScratch(async (cwd) => {
    const rows = Array.from({ length: 4 }, (_, i) => ({ tokens: [1, 2, 3, 4, 5 + i] }));
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...rows));
    const stdin = jsonLines({ tokens: Array.from({ length: 60 }, (_, i) => (7 * i) % 120) });
    for (const name of ["qwen2-p1-yarn-f32", "llama-p1-llama3-tied-f32"]) {
      const model = `${FIXTURES}models/${name}`;
      const data = "--data rows.jsonl --no-pack --seq-len 8 --batch 2 --steps 1 --lr 0";
      await succeed(`train --model ${model} ${data} --out ${name}`, cwd);
      const of = async (path: string) => {
        const [scores] = await rowsOf(`score --model ${path}`, { cwd, stdin });
        const [{ max_position_embeddings, rope_scaling }] = await rowsOf(
          `inspect --model ${path}`,
          { cwd },
        );
        return { scores, max_position_embeddings, rope_scaling };
      };
      assertEquals(await of(name), await of(model));
    }
  }));

/** A folder and a file of the same small model, in a scratch folder. */
async function withModels(
  body: (cwd: string) => Promise<void>,
  options: GgufOptions = {},
): Promise<void> {
  await withScratch(async (cwd) => {
    await writeTinyFolder(`${cwd}/folder`, "llama");
    await writeGguf(`${cwd}/model.gguf`, `${cwd}/folder`, options);
    await body(cwd);
  });
}

Deno.test("generate, inspect, convert, export and cost read a file like its folder", () =>
  withModels(async (cwd) => {
    const text = async (model: string) =>
      (await rowsOf(`generate --prompt 'a b c' --max-tokens 8 --model ${model}`, { cwd }))[0].text;
    const expected = await text("folder");
    assertEquals(await text("model.gguf"), expected);
    const ids = (model: string) => succeed(`inspect -m ${model} --tokenize It's_12_o'clock`, cwd);
    assertEquals(await ids("model.gguf"), await ids("folder"));

    await succeed("convert --model model.gguf --out out", cwd);
    assertEquals(await text("out"), expected);
    await succeed("export --onnx --model model.gguf --out onnx", cwd);
    const [cost] = await rowsOf("cost --model model.gguf", { cwd });
    assert(cost !== undefined);
  }));

Deno.test("streams over a file are an adapter; a whole folder is asked for, in bf16, and its size is said", () =>
  withModels(async (cwd) => {
    await succeed("convert --model model.gguf --streams 2 --out p2", cwd);
    assert(names(`${cwd}/p2`).includes("introduced.safetensors"));
    const [adapted] = await rowsOf("inspect -m model.gguf --adapter p2", { cwd });
    assertEquals(adapted.streams, 2);
    for (const [flag, dtype] of [["--standalone", "bf16"], ["--dtype f32", "f32"]]) {
      const line = `convert -m model.gguf --streams 2 ${flag} --out ${dtype}`;
      const { code, stderr } = await runParscale(line, { cwd });
      assertEquals(code, 0);
      assertMatch(stderr, new RegExp(`^writing [\\d.]+ [KM]B in ${dtype} to ${dtype}\n`));
      const [row] = await rowsOf(`inspect -m ${dtype}`, { cwd });
      assertEquals([row.streams, row.dtypes], [2, [dtype]]);
    }
  }, { type: "Q8_0" }));

Deno.test("prefixes from text are those of full precision, from a file as from its folder", () =>
  withModels(async (cwd) => {
    await succeed("convert -m model.gguf --dtype f32 --out whole", cwd);
    await succeed("convert -m whole --streams 2 --introduced-only --out of-folder", cwd);
    await succeed("convert -m model.gguf --streams 2 --out of-file", cwd);
    const read = (folder: string) => Deno.readFile(`${cwd}/${folder}/introduced.safetensors`);
    assertEquals(await read("of-file"), await read("of-folder"));
  }, { type: "Q8_0" }));

Deno.test("inspect shows the types of a file, and --quantize none dequantizes them", () =>
  withModels(async (cwd) => {
    const [row] = await rowsOf("inspect --model model.gguf --check", { cwd });
    assertEquals(row.dtypes.toSorted(), ["Q8_0", "f32"]);
    assertEquals(row.stored_bytes, DATA_BYTES);
    const flags = ["--quantize none", "--quantize q8", "--quantize q4", "--device reference"];
    for (const flag of ["", ...flags]) {
      await succeed(`generate -m model.gguf --prompt a --max-tokens 2 ${flag}`.trim(), cwd);
    }
    const bench = "bench -m model.gguf --what decode --steps 1 --rounds 1 --context 2";
    const timed = async (flags: string) =>
      (await rowsOf(`${bench} ${flags}`, { cwd })).map(({ weights }) => weights);
    assertEquals(await timed(""), ["q8"]);
    assertEquals(await timed("--quantize none,q8"), ["f32", "q8"]);
  }, { type: "Q8_0" }));

/** Q8_0 matrices: 34 bytes for 32 elements; norms in f32. */
const DATA_BYTES = (512 * 64 + 2 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64)) / 32 * 34 +
  5 * 64 * 4;

Deno.test("an adapter is trained over a file and merged; a model starts from its shape", () =>
  withModels(async (cwd) => {
    const rows = Array.from({ length: 8 }, (_, i) => JSON.stringify({ text: `row ${i} of rows` }));
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, rows.join("\n") + "\n");
    const train = "train --data rows.jsonl --seq-len 16 --batch 2";
    const params = "--steps 2 --prefix-tokens 2";
    await succeed(`${train} --model model.gguf --out run --streams 2 ${params}`, cwd);
    const generated = (model: string) =>
      rowsOf(`generate -m ${model} --prompt a --max-tokens 4`, { cwd });
    const [row] = await generated("run");
    assert(typeof row.text === "string");
    await succeed("convert --model run --merge --out merged", cwd);
    const [merged] = await generated("merged");
    assertEquals(merged.text, row.text);
    const plain = `${train} --model model.gguf --out all --steps 1`;
    assertFailed(await runParscale(plain, { cwd }), 2, "`--train-params all`");
    const all = await runParscale(`${plain} --train-params all`, { cwd });
    assertEquals(all.code, 0);
    assertStringIncludes(all.stderr, "every checkpoint holds the whole model: ");
    assertEquals((await rowsOf("inspect -m all", { cwd }))[0].dtypes, ["bf16"]);
    const scratch = "--init scratch --config-from model.gguf --steps 1";
    await succeed(`${train} ${scratch} --out fresh`, cwd);
    const [fresh] = await rowsOf("inspect -m fresh", { cwd });
    assertEquals(fresh.tokenizer, "byte-level-bpe");
  }, { type: "Q8_0" }));

Deno.test("documents end with the end of a text, not with that of a turn", () =>
  withScratch(async (cwd) => {
    await writeTinyFolder(`${cwd}/folder`, "llama");
    const tokenizer = await Deno.readTextFile(`${cwd}/folder/tokenizer.json`);
    const renamed = tokenizer.replaceAll("<|endoftext|>", "<|end_of_text|>");
    await Deno.writeTextFile(`${cwd}/folder/tokenizer.json`, renamed);
    const idOf = (text: string): number =>
      JSON.parse(renamed).added_tokens.find((each: { content: string }) => each.content === text)
        .id;
    const [text, turn] = ["<|end_of_text|>", "<|im_end|>"].map(idOf);
    const metadata = { "tokenizer.ggml.eos_token_id": ["u32", turn!] } as const;
    await writeGguf(`${cwd}/model.gguf`, `${cwd}/folder`, { metadata });
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines({ text: "a b" }, { text: "c" }));
    const loss = async (flags: string) => {
      const all = "--train-params all --seq-len 8 --batch 1 --steps 1";
      const train = `train -m model.gguf --data rows.jsonl ${all}`;
      await succeed(`${train} --overwrite --out run${flags}`, cwd);
      return JSON.parse((await Deno.readTextFile(`${cwd}/run/metrics.jsonl`)).split("\n")[0]!).loss;
    };
    assertEquals(await loss(""), await loss(` --end-token ${text}`));
    assertNotEquals(await loss(""), await loss(` --end-token ${turn}`));
  }));

Deno.test("a run finds a file behind a link, as the hub's cache has them", () =>
  withModels(async (cwd) => {
    Deno.mkdirSync(`${cwd}/snapshot`);
    Deno.renameSync(`${cwd}/model.gguf`, `${cwd}/blob`);
    linkSync(`${cwd}/blob`, `${cwd}/snapshot/model.gguf`);
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines({ tokens: [1, 2, 3, 4, 5] }));
    const params = "--train-params introduced --streams 2 --prefix-tokens 2 --steps 1 --seq-len 8";
    await succeed(`train -m snapshot/model.gguf --data rows.jsonl --out run ${params}`, cwd);
    const [row] = await rowsOf("inspect -m run", { cwd });
    assertEquals([row.family, row.streams], ["llama", 2]);
  }));

const SHA = "0123456789abcdef0123456789abcdef01234567";

Deno.test("a file of the hub is named by its quantization or its name, and kept", () =>
  withModels(async (cwd) => {
    const bytes = await Deno.readFile(`${cwd}/model.gguf`);
    const empty = new TextEncoder().encode("not wanted");
    const files = new Map([
      ["README.md", empty],
      ["tiny-Q8_0.gguf", bytes],
      ["tiny-Q4_K_M.gguf", empty],
      ["tiny.q4_0.gguf", empty],
      ["other-q4_0.gguf", empty],
      ["mmproj-Q8_0.gguf", empty],
      ["parts/tiny-F16-00001-of-00002.gguf", empty],
    ]);
    await using hub = startHub([
      { kind: "model", name: "tiny/gguf", commit: SHA, files, isLarge: () => true },
    ]);
    const env = { HF_ENDPOINT: hub.url, HF_HUB_CACHE: `${cwd}/cache` };
    const run = (name: string, more = {}) =>
      runParscale(`inspect --model ${name}`, { cwd, env: { ...env, ...more } });
    for (const name of ["tiny/gguf:Q8_0", "tiny/gguf:q8_0", "tiny/gguf@main:tiny-Q8_0.gguf"]) {
      const { code, stdout, stderr } = await run(name);
      assertEquals(code, 0, stderr);
      assertStringIncludes(stdout, "llama, 1 stream");
    }
    const fetched = hub.take().filter((line) => line.startsWith("GET") && /\.gguf/.test(line));
    assert(fetched.every((line) => line.includes("tiny-Q8_0.gguf") || /\/0\//.test(line)));
    assertEquals((await run("tiny/gguf:Q8_0", { HF_HUB_OFFLINE: "1" })).code, 0);
    for (
      const [name, ...words] of [
        ["tiny/gguf:Q6_K", 'has no GGUF file "Q6_K"', '"tiny-Q8_0.gguf"'],
        ["tiny/gguf:Q4_0", '"Q4_0" fits 2 GGUF files'],
        ["tiny/gguf:F16", 'has no GGUF file "F16"'],
        ["tiny/gguf", "hint: name the file: tiny/gguf:tiny-Q8_0.gguf"],
      ] as const
    ) assertFailed(await run(name), 3, ...words);
    const offline = await run("tiny/gguf", { HF_HUB_OFFLINE: "1" });
    assertFailed(offline, 4, "hint: name the file: tiny/gguf:tiny-Q8_0.gguf");
  }, { type: "Q8_0" }));
