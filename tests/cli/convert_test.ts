/** `parscale convert` as a black box: results, round trips, prefixes from text, signals. */
import {
  assert,
  assertAlmostEquals,
  assertEquals,
  assertMatch,
  assertStringIncludes,
} from "@std/assert";
import { makeLargeModel, readRaw } from "../unit/checkpoint/testing.ts";
import {
  assertFailed,
  assertRefused,
  copyFolder,
  documentOf,
  jsonLines,
  MODEL,
  names,
  NO_TOKENIZER,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { parscale, runParscale } from "./run.ts";
import { linkSync } from "../links.ts";
import { withScratch } from "../scratch.ts";

const UNTIED = PLAIN_MODEL.replace("tied-f32", "untied-bf16");
const CONVERT = `convert --model ${PLAIN_MODEL}`;

/** Runs a conversion and returns `results` of its JSON document. */
// deno-lint-ignore no-explicit-any -- tests look at any field
async function converted(cwd: string, line: string): Promise<any> {
  const { schema, command, results } = await documentOf(line, { cwd });
  assertEquals([schema, command], ["parscale.convert/2", "convert"]);
  return results;
}

const weightsIn = (folder: string) => Deno.readFileSync(`${folder}/model.safetensors`);

/** Requires that a folder has the tensors of another, byte by byte. */
function assertSameTensors(folder: string, source: string): void {
  const [from, to] = [source, folder].map((path) => readRaw(`${path}/model.safetensors`));
  for (const [name, entry] of Object.entries(from!.header)) {
    if (name === "__metadata__") continue;
    const [begin, end] = entry.data_offsets, [first, last] = to!.header[name].data_offsets;
    assertEquals(to!.data.subarray(first, last), from!.data.subarray(begin, end), name);
  }
}

Deno.test("a conversion reports what it wrote, as a table and as JSON, and strip undoes it", () =>
  withScratch(async (cwd) => {
    const table = await succeed(`convert --model ${UNTIED} --streams 4 --out table`, { cwd });
    const rows = table.trim().split("\n").map((line) => line.split(/ {2,}/));
    const shown = Object.fromEntries(rows);
    const results = await converted(cwd, `convert --model ${UNTIED} -P 4 -o json`);
    for (const key of ["introduced_params", "tensors", "bytes", "backbone_sha256"]) {
      assertEquals(shown[key], String(results[key]), key);
    }
    assertEquals([results.streams, typeof results.introduced_params], [4, "number"]);
    assertEquals(names(`${cwd}/json`), results.files.toSorted());
    assertEquals(weightsIn(`${cwd}/table`), weightsIn(`${cwd}/json`));

    const back = await converted(cwd, "convert --model json --strip --out back");
    assertEquals(back.backbone_sha256, results.backbone_sha256);
    assertEquals([back.introduced_params, back.streams, back.prefix_tokens], [0, 1, 0]);
    assertSameTensors(`${cwd}/back`, UNTIED);
    assertEquals(names(cwd), ["back", "json", "table"]);

    const { code, stderr } = await runParscale(`${CONVERT} --strip --out copy`, { cwd });
    assertEquals(code, 0, stderr);
    assertStringIncludes(stderr, "is a plain model already; copy is a copy of it");
    const config = (folder: string) => JSON.parse(Deno.readTextFileSync(`${folder}/config.json`));
    assertEquals(config(`${cwd}/copy`), config(PLAIN_MODEL));
    assertSameTensors(`${cwd}/copy`, PLAIN_MODEL);
  }));

Deno.test("without --out the folder is named after the model and what is made of it", () =>
  withScratch(async (cwd) => {
    linkSync(PLAIN_MODEL, `${cwd}/qwen`);
    linkSync(MODEL, `${cwd}/two@1`);
    for (
      const [line, out] of [
        ["qwen -P 4", "qwen-p4"],
        ["qwen/ -P 4 --introduced-only", "qwen-p4-adapter"],
        ["qwen --quantize q4", "qwen-q4"],
        ["two@1 --strip", "two-plain"],
      ] as const
    ) assertEquals((await converted(cwd, `convert ${line}`)).out, out);
    const again = await runParscale("convert qwen -P 4", { cwd });
    assertRefused(again, 2, '"qwen-p4" already exists');
  }));

Deno.test("flags of new streams, and --verify of changed weights, say that they have no effect", () =>
  withScratch(async (cwd) => {
    const strip = `convert --model ${MODEL} --strip --prefix-tokens 7 --out plain`;
    const { stderr } = await runParscale(strip, { cwd });
    assertStringIncludes(stderr, "`--prefix-tokens` has no effect without `--streams`");
    const cast = `${CONVERT} --streams 2 --dtype bf16 --verify --out cast`;
    assertStringIncludes((await runParscale(cast, { cwd })).stderr, "nothing was verified: ");
  }));

Deno.test("a dry run writes nothing and prints a config that repeats it", () =>
  withScratch(async (cwd) => {
    const line = `${CONVERT} --out out --streams 2`;
    const text = await succeed(`${line} --dry-run`, { cwd });
    assertMatch(text, /^would write \d+ tensors, \d+ bytes, to /);
    const plan = await succeed(`${line} --seed 5 --dry-run --json`, { cwd });
    assertEquals(names(cwd), []);
    await Deno.writeTextFile(`${cwd}/plan.json`, plan);
    await succeed("convert --config plan.json", { cwd });
    await converted(cwd, `${CONVERT} --out direct --streams 2 --seed 5`);
    assertEquals(weightsIn(`${cwd}/out`), weightsIn(`${cwd}/direct`));
  }));

Deno.test("an adapter over its backbone is the converted model to the last digit", () =>
  withScratch(async (cwd) => {
    const how = `convert --model ${UNTIED} --streams 2 --prefix-tokens 8 --seed 3`;
    const full = await converted(cwd, `${how} --out full --max-shard-size 60KiB`);
    const adapter = await converted(cwd, `${how} --out adapter --introduced-only`);
    assertEquals(adapter.backbone_sha256, full.backbone_sha256);
    assertEquals(adapter.introduced_params, full.introduced_params);
    assert(adapter.tensors < full.tensors);
    assert(full.files.length > 3);
    const stdin = jsonLines({ tokens: [1, 2, 3, 5, 8] }, { tokens: [13, 21] });
    const over = `--model ${UNTIED} --adapter adapter`;
    for (const command of ["score --stream-weights", "inspect --check"]) {
      const rows = async (model: string) =>
        (await rowsOf(`${command} ${model}`, { cwd, stdin })).map(({ files: _, ...row }) => row);
      assertEquals(await rows(over), await rows("--model full"));
    }
    const merge = await runParscale(`convert ${over} --merge --out adapter --overwrite`, { cwd });
    assertFailed(merge, 2, 'error: "adapter" is an input of this command\n');
  }));

Deno.test("streams without prefix tokens score as the plain model does", () =>
  withScratch(async (cwd) => {
    const how = "--streams 4 --prefix-tokens 0 --out same";
    const results = await converted(cwd, `convert --model ${UNTIED} ${how}`);
    assertEquals([results.prefix_tokens, results.streams], [0, 4]);
    const { parscale_transforms } = JSON.parse(await Deno.readTextFile(`${cwd}/same/config.json`));
    assertEquals(parscale_transforms, []);
    const stdin = jsonLines({ tokens: [3, 14, 15, 9, 26, 5, 35] });
    const scores = async (model: string): Promise<number[]> =>
      (await rowsOf(`score --model ${model}`, { cwd, stdin }))[0].token_logprobs;
    const [plain, same] = [await scores(UNTIED), await scores("same")];
    assertEquals(plain.length, 6);
    for (const [i, x] of plain.entries()) assertAlmostEquals(same[i]!, x, 1e-5);
  }));

Deno.test("the seed decides the new tensors and nothing else, in a folder that is replaced too", () =>
  withScratch(async (cwd) => {
    const weights: Uint8Array[] = [], hashes = new Set<string>();
    for (const flags of ["--seed 0", "--seed 1 --overwrite --verify", "--seed 0 --overwrite"]) {
      const line = `${CONVERT} -P 2 --out out ${flags}`;
      hashes.add((await converted(cwd, line)).backbone_sha256);
      weights.push(weightsIn(`${cwd}/out`));
    }
    assertEquals([hashes.size, names(cwd)], [1, ["out"]]);
    const [first, second, third] = weights;
    assertEquals(third, first);
    assert(first!.some((byte, i) => byte !== second![i]));
  }));

Deno.test("--aggregation linear is opened by eval, cost, export and inspect", () =>
  withScratch(async (cwd) => {
    const line = `${CONVERT} -P 2 --aggregation linear --out linear`;
    const { code, stderr } = await runParscale(line, { cwd });
    assertEquals(code, 0, stderr);
    await Deno.writeTextFile(`${cwd}/book.txt`, "Once upon a time there was a model. ");
    for (
      const line of [
        "eval --model linear --tasks perplexity --data book.txt",
        "cost --model linear",
        "export --model linear --onnx --out onnx",
        "bench --model linear --what decode --context 4 --rounds 1 --steps 1",
      ]
    ) assertEquals((await runParscale(`${line} --json`, { cwd })).code, 0, line);
    assertEquals((await rowsOf("inspect --model linear", { cwd }))[0].aggregation, "linear");
  }));

/** Starts converting a large model, sends a signal while its weights are being written. */
async function interrupted(cwd: string, signal: Deno.Signal) {
  const pipes = { stdin: "null", stdout: "piped", stderr: "piped" } as const;
  const child = parscale("convert --model large --streams 2 --out out", { cwd, ...pipes }).spawn();
  const output = child.output();
  const isWriting = () => {
    const partial = names(cwd).find((name) => name.startsWith(`.out.partial-${child.pid}-`));
    const weights = `${cwd}/${partial}/model.safetensors`;
    return Deno.stat(weights).then(({ size }) => size >= 8e6, () => false);
  };
  for (let waited = 0; !await isWriting(); waited += 5) {
    assert(waited < 60_000, "the conversion writes");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  child.kill(signal);
  const { code, stdout, stderr } = await output;
  const text = new TextDecoder();
  return [code, text.decode(stdout), text.decode(stderr).trimEnd().split("\n").at(-1)];
}

Deno.test("an interrupted conversion leaves nothing, and the next one removes what a killed one left", () =>
  withScratch(async (cwd) => {
    makeLargeModel(`${cwd}/large`, 2e9);
    assertEquals(await interrupted(cwd, "SIGINT"), [130, "", "error: Interrupted"]);
    assertEquals(await interrupted(cwd, "SIGTERM"), [143, "", "error: Terminated"]);
    assertEquals(names(cwd), ["large"]);
    await interrupted(cwd, "SIGKILL");
    assert(!names(cwd).includes("out"));
    assertEquals(names(cwd).length, 2, "a hidden folder is left");
    await converted(cwd, `${CONVERT} --streams 2 --out out --verify`);
    assertEquals(names(cwd), ["large", "out"]);
  }));

/** Log-probabilities that a model gives some ids. */
async function logprobsOf(model: string, cwd: string, tokens: number[]): Promise<number[]> {
  const stdin = jsonLines({ tokens });
  return (await rowsOf(`score --model ${model}`, { cwd, stdin }))[0].token_logprobs;
}

async function meanLogprob(model: string, cwd: string): Promise<number> {
  const tokens = [9, 12, 200, 31, 64, 5, 17, 100, 42, 8, 300, 77];
  const logprobs = await logprobsOf(model, cwd, tokens);
  return logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length;
}

Deno.test("prefixes from text equal that text put before", () =>
  withScratch(async (cwd) => {
    const before = "The streams of a model are mixed per token.";
    const inspect = `inspect --model ${PLAIN_MODEL} --tokenize '${before}'`;
    const ids: number[] = JSON.parse(await succeed(inspect));
    await Deno.writeTextFile(`${cwd}/text.txt`, before);
    // With one segment as long as the text, every stream starts from the whole of it.
    const prefix = `--prefix-tokens ${ids.length} --prefix-init text --prefix-text text.txt`;
    await succeed(`${CONVERT} -P 2 --out p2 ${prefix}`, { cwd });
    const text = [9, 12, 200, 31, 64];
    const parallel = await logprobsOf("p2", cwd, text);
    const plain = await logprobsOf(PLAIN_MODEL, cwd, [...ids, ...text]);
    const end = plain.slice(-parallel.length);
    parallel.forEach((logprob, i) => assert(Math.abs(logprob - end[i]!) < 1e-4));
  }));

Deno.test("streams start as the average of text prefixes by default, and at random on request", () =>
  withScratch(async (cwd) => {
    const outs = ["text", "same", "adapter --introduced-only", "random --prefix-init normal"];
    for (const out of outs) await succeed(`${CONVERT} -P 4 --out ${out}`, { cwd });
    const model = (name: string) => Deno.readFile(`${cwd}/${name}/model.safetensors`);
    assertEquals(await model("text"), await model("same"));
    const text = await meanLogprob("text", cwd);
    assertEquals(await meanLogprob(`${PLAIN_MODEL} --adapter adapter`, cwd), text);
    assert(text !== await meanLogprob("random", cwd));
    const stdin = jsonLines({ tokens: [9, 12, 200, 31, 64] });
    const [{ weights }] = await rowsOf("score --model text --stream-weights", { cwd, stdin });
    for (const weight of weights.flat()) assert(Math.abs(weight - 0.25) < 1e-6, `${weight}`);

    // So does train --streams.
    const rows = jsonLines({ tokens: [5, 17, 100, 42, 8, 300, 77, 9] }).repeat(8);
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, rows);
    const train = async (out: string, flags = "") => {
      const size = "--steps 1 --batch 2 --seq-len 8 --lr 0 -q";
      const line = `train --model ${PLAIN_MODEL} --streams 4 --data rows.jsonl ${size}`;
      return (await rowsOf(`${line} --out ${out} ${flags}`, { cwd }))[0];
    };
    const own = await train("trained"), random = await train("other", "--prefix-init normal");
    assert(own.loss !== random.loss);
    for (const weight of own.stream_weights) assert(Math.abs(weight - 0.25) < 1e-6);
    const trained = await meanLogprob("trained", cwd);
    assert(Math.abs(trained - text) < 1e-5, `${trained}, ${text}`);
  }));

Deno.test("without a tokenizer prefixes are random", () =>
  withScratch(async (cwd) => {
    await copyFolder(PLAIN_MODEL, `${cwd}/bare`, NO_TOKENIZER);
    const line = "convert --model bare --streams 2 --out p2";
    const { code, stderr } = await runParscale(line, { cwd });
    assertEquals(code, 0);
    assertStringIncludes(stderr, "without a tokenizer prefixes are random");
  }));
