/** `parscale export`: what it writes runs in ONNX Runtime's own JavaScript, with the golden tokens. */
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type * as ort from "onnxruntime-node";
import { maxDifference, readExpectedTensors, TOLERANCE } from "../device/goldens.ts";
import { assertRefusals, EXPECTED, hasWebGpu, MODEL, succeed } from "./models.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

Deno.env.set("ORT_DISABLE_TELEMETRY", "1");
const { InferenceSession, Tensor } = await import("onnxruntime-node");

const EXPORT = ["export", "--model", MODEL, "--onnx", "--out", "onnx", "--capacity", "128"];
const [TOKENS, STEPS] = [16, 12];

interface About {
  readonly streams: number;
  readonly programs: Record<string, { inputs: { name: string; shape: number[]; next?: string }[] }>;
}

/** The exported programs in the library's own JavaScript, used as the written page says. */
class Exported {
  readonly #prefill: ort.InferenceSession;
  readonly #decode: ort.InferenceSession;
  readonly #state: Record<string, ort.Tensor> = {};

  private constructor(prefill: ort.InferenceSession, decode: ort.InferenceSession, about: About) {
    [this.#prefill, this.#decode] = [prefill, decode];
    for (const { name, shape, next } of about.programs.decode!.inputs) {
      const count = shape.reduce((product, size) => product * size, 1);
      if (next) this.#state[name] = new Tensor("float32", new Float32Array(count), shape);
    }
  }

  static async open(folder: string): Promise<Exported> {
    const about: About = JSON.parse(await Deno.readTextFile(`${folder}/export.json`));
    const session = (name: string) =>
      InferenceSession.create(`${folder}/${name}.onnx`, { logSeverityLevel: 3 });
    return new Exported(await session("prefill"), await session("decode"), about);
  }

  /** Logits of the last token of a prompt. */
  async read(prompt: readonly number[]): Promise<Float32Array> {
    const padded = [...prompt, ...new Array(TOKENS - prompt.length).fill(0)];
    return await this.#step(this.#prefill, padded, 0, prompt.length - 1);
  }

  /** Logits of one more token. */
  async append(token: number, place: number): Promise<Float32Array> {
    return await this.#step(this.#decode, [token], place, 0);
  }

  async #step(
    session: ort.InferenceSession,
    ids: readonly number[],
    start: number,
    last: number,
  ): Promise<Float32Array> {
    const ints = (list: readonly number[], shape: number[]) =>
      new Tensor("int32", Int32Array.from(list), shape);
    const found = await session.run({
      ids: ints(ids, [1, ids.length]),
      positions: ints(ids.map((_, t) => start + t), [1, ids.length]),
      start: ints([start], [1]),
      select: ints([last], [1]),
      ...this.#state,
    });
    for (const name of Object.keys(this.#state)) this.#state[name] = found[`new.${name}`]!;
    const weights = Array.from(found.weights!.data as Float32Array);
    assert(Math.abs(weights.reduce((sum, w) => sum + w, 0) - 1) < 1e-5);
    return found.logits!.data as Float32Array;
  }
}

/** Continues a prompt greedily with the exported programs alone. */
async function continued(folder: string, prompt: readonly number[]): Promise<number[]> {
  const best = (logits: Float32Array) => logits.indexOf(Math.max(...logits));
  const programs = await Exported.open(folder);
  const tokens = [best(await programs.read(prompt))];
  for (let place = prompt.length; tokens.length < STEPS; place++) {
    tokens.push(best(await programs.append(tokens.at(-1)!, place)));
  }
  return tokens;
}

for (const device of ["cpu", "webgpu"]) {
  Deno.test(`files for ${device}: logits are the golden ones, of a prompt and token by token`, async () => {
    await withScratch(async (cwd) => {
      const args = [...EXPORT, "--tokens", `${TOKENS}`, "--target", device, "-qq"];
      assertEquals((await runParscale(args, { cwd })).code, 0);
      const programs = await Exported.open(`${cwd}/onnx`);
      const ids: number[] = EXPECTED.cases.single.ids[0];
      const expected = (await readExpectedTensors("qwen2-p2-tied-f32")).get("single.logits")!;
      const V = expected.length / ids.length;
      for (let end = 5; end <= ids.length; end++) {
        const logits = end === 5
          ? await programs.read(ids.slice(0, end))
          : await programs.append(ids[end - 1]!, end - 1);
        const difference = maxDifference(logits, expected.subarray((end - 1) * V, end * V));
        assert(difference <= TOLERANCE.logits, `token ${end}: ${difference}`);
      }
    });
  });
}

Deno.test("the programs continue as the golden model does, and say what they take", () =>
  withScratch(async (cwd) => {
    await succeed([...EXPORT, "--tokens", `${TOKENS}`, "-qq"], { cwd });
    const files = Array.from(Deno.readDirSync(`${cwd}/onnx`), ({ name }) => name).sort();
    assertEquals(
      files.filter((name) => !name.startsWith("tokenizer")),
      "README.md decode.onnx export.json prefill.onnx weights.bin".split(" "),
    );
    assertStringIncludes(
      Deno.readTextFileSync(`${cwd}/onnx/README.md`),
      `reads \`${TOKENS}\` tokens`,
    );
    const { prompts, outputs } = EXPECTED.greedy;
    const prompt = prompts.find((each: number[]) => each.length <= TOKENS);
    const expected = outputs[prompts.indexOf(prompt)].slice(0, STEPS);
    assertEquals(await continued(`${cwd}/onnx`, prompt), expected);
  }));

/** Tokens that the JavaScript of the written page prints, as it stands. */
async function tokensOfPage(cwd: string, args: readonly string[] = []): Promise<number[]> {
  await succeed([...EXPORT, "--tokens", `${TOKENS}`, "-qq", ...args], { cwd });
  const page = await Deno.readTextFile(`${cwd}/onnx/README.md`);
  await Deno.writeTextFile(`${cwd}/onnx/use.mjs`, /```js\n([\s\S]*?)```/.exec(page)![1]!);
  const config = fileURLToPath(new URL("../../deno.json", import.meta.url));
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
      const page = await tokensOfPage(cwd, ["--target", "webgpu"]);
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
      const args = [...EXPORT, "--tokens", `${TOKENS}`, "--target", "webgpu", "--dtype", dtype];
      const stdout = await succeed([...args, "--overwrite", "--json"], { cwd });
      const { results } = JSON.parse(stdout);
      assertEquals([results.target, results.weights], ["webgpu", dtype]);
      sizes.push(results.weight_bytes);
      const tokens = await continued(`${cwd}/onnx`, prompt);
      if (dtype === "f32") assertEquals(tokens, expected);
      else assertEquals(tokens[0], expected[0]);
    }
    assert(sizes[1]! < sizes[0]! * 0.6, `${sizes}`);
  });
});

Deno.test("in 8 bits the file is smaller and the first token the same", () =>
  withScratch(async (cwd) => {
    const sizes: number[] = [];
    const first: number[] = [];
    for (const bits of ["none", "q8"]) {
      const sized = ["--tokens", `${TOKENS}`, "--quantize", bits];
      const args = [...EXPORT, ...sized, "--overwrite", "--json"];
      const { stdout } = await runParscale(args, { cwd });
      sizes.push(JSON.parse(stdout).results.weight_bytes);
      first.push((await continued(`${cwd}/onnx`, EXPECTED.greedy.prompts[0].slice(0, TOKENS)))[0]!);
    }
    assert(sizes[1]! < sizes[0]! * 0.7, `${sizes}`);
    assertEquals(first[0], first[1]);
  }));

Deno.test("misuse, bad data, a folder in the way, a plan, and a closed pipe", async () => {
  await withScratch(async (cwd) => {
    await Deno.mkdir(`${cwd}/taken`);
    await Deno.writeTextFile(`${cwd}/taken/mine`, "");
    const line = `export --model ${MODEL} --onnx --out`;
    await assertRefusals([
      [`${line} x --tokens 9 --capacity 8`, 2],
      [
        `${line} x --capacity 4k`,
        2,
        "error: `--capacity 4000` exceeds the model's context of 2048 tokens\n",
      ],
      [`${line} x --dtype f16`, 2, "`--dtype f16` needs `--target webgpu`"],
      ["export --model nothing --onnx --out x", 3],
      [`${line} taken`, 2],
    ], { cwd });
    const plan = await runParscale(["export", MODEL, "--dry-run"], { cwd });
    assertEquals(plan.code, 0, plan.stderr);
    assertStringIncludes(plan.stdout, "would write prefill.onnx");
    assertStringIncludes(plan.stdout, `to ${basename(MODEL)}-onnx`);
    assertEquals(Array.from(Deno.readDirSync(cwd), ({ name }) => name), ["taken"]);
  });
  const line = EXPORT.map((word) => `'${word}'`).join(" ");
  const gone = await runShell(`parscale ${line} | true; echo \${PIPESTATUS[0]}`);
  assertEquals(gone.stdout, "0\n");
});
