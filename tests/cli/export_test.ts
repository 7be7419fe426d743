/** `parscale export`: what it writes runs in ONNX Runtime's own JavaScript, with the golden tokens. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { EXPECTED, hasWebGpu, MODEL } from "./models.ts";
import { runParscale, runShell, withScratch } from "./run.ts";

Deno.env.set("ORT_DISABLE_TELEMETRY", "1");
const { default: ort } = await import("onnxruntime-node");

const EXPORT = ["export", "--model", MODEL, "--onnx", "--out", "onnx", "--capacity", "128"];
const [TOKENS, STEPS] = [16, 12];

interface About {
  readonly streams: number;
  readonly programs: Record<string, { inputs: { name: string; shape: number[]; next?: string }[] }>;
}

/** Continues a prompt greedily with the exported programs alone, as the written page says. */
async function continued(folder: string, prompt: readonly number[]): Promise<number[]> {
  const about: About = JSON.parse(await Deno.readTextFile(`${folder}/export.json`));
  const open = (name: string) =>
    ort.InferenceSession.create(`${folder}/${name}.onnx`, { logSeverityLevel: 3 });
  const [prefill, decode] = [await open("prefill"), await open("decode")];
  // deno-lint-ignore no-explicit-any -- tensors of a library
  const state: Record<string, any> = {};
  for (const { name, shape, next } of about.programs.decode!.inputs) {
    const count = shape.reduce((product, size) => product * size, 1);
    if (next) state[name] = new ort.Tensor("float32", new Float32Array(count), shape);
  }
  const ints = (list: readonly number[], shape: number[]) =>
    new ort.Tensor("int32", Int32Array.from(list), shape);
  const step = async (
    session: typeof prefill,
    ids: readonly number[],
    start: number,
    last: number,
  ) => {
    const found = await session.run({
      ids: ints(ids, [1, ids.length]),
      positions: ints(ids.map((_, t) => start + t), [1, ids.length]),
      start: ints([start], [1]),
      select: ints([last], [1]),
      ...state,
    });
    for (const name of Object.keys(state)) state[name] = found[`new.${name}`];
    const weights = Array.from(found.weights!.data as Float32Array);
    assert(Math.abs(weights.reduce((sum, w) => sum + w, 0) - 1) < 1e-5);
    const logits = found.logits!.data as Float32Array;
    return logits.indexOf(Math.max(...logits));
  };
  const padded = [...prompt, ...new Array(TOKENS - prompt.length).fill(0)];
  const tokens = [await step(prefill, padded, 0, prompt.length - 1)];
  for (let place = prompt.length; tokens.length < STEPS; place++) {
    tokens.push(await step(decode, [tokens.at(-1)!], place, 0));
  }
  return tokens;
}

Deno.test("the programs go on as the golden model does, and say what they take", async () => {
  await withScratch(async (cwd) => {
    const { code, stderr } = await runParscale([...EXPORT, "--tokens", `${TOKENS}`, "-qq"], {
      cwd,
    });
    assertEquals([code, stderr], [0, ""]);
    const files = Array.from(Deno.readDirSync(`${cwd}/onnx`), ({ name }) => name).sort();
    assertEquals(files.filter((name) => !name.startsWith("tokenizer")), [
      "README.md",
      "decode.onnx",
      "export.json",
      "prefill.onnx",
      "weights.bin",
    ]);
    assertStringIncludes(
      Deno.readTextFileSync(`${cwd}/onnx/README.md`),
      `reads \`${TOKENS}\` tokens`,
    );
    const { prompts, outputs } = EXPECTED.greedy;
    const prompt = prompts.find((each: number[]) => each.length <= TOKENS);
    const expected = outputs[prompts.indexOf(prompt)].slice(0, STEPS);
    assertEquals(await continued(`${cwd}/onnx`, prompt), expected);
  });
});

/** Tokens that the JavaScript of the written page prints, as it stands. */
async function tokensOfPage(cwd: string, args: readonly string[] = []): Promise<number[]> {
  const { code, stderr } = await runParscale(
    [...EXPORT, "--tokens", `${TOKENS}`, "-qq", ...args],
    { cwd },
  );
  assertEquals([code, stderr], [0, ""]);
  const page = await Deno.readTextFile(`${cwd}/onnx/README.md`);
  await Deno.writeTextFile(`${cwd}/onnx/use.mjs`, /```js\n([\s\S]*?)```/.exec(page)![1]!);
  const config = new URL("../../deno.json", import.meta.url).pathname;
  const { stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--config", config, "use.mjs"],
    cwd: `${cwd}/onnx`,
    env: { NO_COLOR: "1" },
  }).output();
  return new TextDecoder().decode(stdout).trim().split("\n").map(Number);
}

async function ownTokens(): Promise<number[]> {
  const asked = ["generate", "--model", MODEL, "--max-tokens", "20", "--ignore-eos", "--jsonl"];
  return JSON.parse((await runParscale(asked, { stdin: '{"tokens":[1,2,3]}\n' })).stdout).tokens;
}

Deno.test("the JavaScript of the page that is written runs as it stands", async () => {
  await withScratch(async (cwd) => assertEquals(await tokensOfPage(cwd), await ownTokens()));
});

Deno.test({
  name: "and so does that for webgpu, whose keys and values stay on the GPU",
  ignore: !await hasWebGpu(),
  async fn() {
    await withScratch(async (cwd) => {
      const page = await tokensOfPage(cwd, ["--device", "webgpu"]);
      assertEquals(page, await ownTokens());
    });
  },
});

Deno.test("files for webgpu run on the processor too; in f16 they are little more than half", async () => {
  const { prompts, outputs } = EXPECTED.greedy;
  const prompt = prompts.find((each: number[]) => each.length <= TOKENS);
  const expected = outputs[prompts.indexOf(prompt)].slice(0, STEPS);
  await withScratch(async (cwd) => {
    const sizes = [];
    for (const dtype of ["f32", "f16"]) {
      const args = [...EXPORT, "--tokens", `${TOKENS}`, "--device", "webgpu", "--dtype", dtype];
      const { code, stdout } = await runParscale([...args, "--overwrite", "--json"], { cwd });
      assertEquals(code, 0);
      const { results } = JSON.parse(stdout);
      assertEquals([results.device, results.weights], ["webgpu", dtype]);
      sizes.push(results.weight_bytes);
      const tokens = await continued(`${cwd}/onnx`, prompt);
      if (dtype === "f32") assertEquals(tokens, expected);
      else assertEquals(tokens[0], expected[0]);
    }
    assert(sizes[1]! < sizes[0]! * 0.6, `${sizes}`);
  });
});

Deno.test("in 8 bits the file is smaller and the first token the same", async () => {
  await withScratch(async (cwd) => {
    const sizes: number[] = [];
    const first: number[] = [];
    for (const weights of ["f32", "q8"]) {
      const args = [
        ...EXPORT,
        "--tokens",
        `${TOKENS}`,
        "--weights",
        weights,
        "--overwrite",
        "--json",
      ];
      const { stdout } = await runParscale(args, { cwd });
      sizes.push(JSON.parse(stdout).results.weight_bytes);
      first.push((await continued(`${cwd}/onnx`, EXPECTED.greedy.prompts[0].slice(0, TOKENS)))[0]!);
    }
    assert(sizes[1]! < sizes[0]! * 0.7, `${sizes}`);
    assertEquals(first[0], first[1]);
  });
});

Deno.test("misuse, bad data, a folder in the way, a plan, and a closed pipe", async () => {
  await withScratch(async (cwd) => {
    const run = (...args: string[]) => runParscale(["export", ...args], { cwd });
    const noFormat = await run("--model", MODEL, "--out", "x");
    assertEquals(noFormat.code, 2);
    assertStringIncludes(noFormat.stderr, "expected --onnx");
    const small = await run(
      "--model",
      MODEL,
      "--onnx",
      "--out",
      "x",
      "--tokens",
      "9",
      "--capacity",
      "8",
    );
    assertEquals(small.code, 2);
    const half = await run("--model", MODEL, "--onnx", "--out", "x", "--dtype", "f16");
    assertEquals(half.code, 2);
    assertStringIncludes(half.stderr, "found --dtype f16 for cpu, expected --device webgpu");
    assertEquals((await run("--model", "nothing", "--onnx", "--out", "x")).code, 3);
    const plan = await run("--model", MODEL, "--onnx", "--out", "x", "--dry-run");
    assertEquals(plan.code, 0);
    assertStringIncludes(plan.stdout + plan.stderr, "would write prefill.onnx");
    await Deno.mkdir(`${cwd}/taken`);
    await Deno.writeTextFile(`${cwd}/taken/mine`, "");
    assertEquals((await run("--model", MODEL, "--onnx", "--out", "taken")).code, 2);
    assertEquals(Array.from(Deno.readDirSync(cwd), ({ name }) => name), ["taken"]);
  });
  const line = EXPORT.map((word) => `'${word}'`).join(" ");
  const gone = await runShell(`parscale ${line} | true; echo \${PIPESTATUS[0]}`);
  assertEquals(gone.stdout, "0\n");
});
