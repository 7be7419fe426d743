/** `parscale export`: what it writes runs in ONNX Runtime's own JavaScript, with the golden tokens. */
import { basename } from "node:path";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type * as ort from "onnxruntime-node";
import {
  maxDifference,
  modelFolder,
  readExpected,
  readExpectedTensors,
  TOLERANCE,
} from "../device/goldens.ts";
import { documentOf, EXPECTED, hasWebGpu, MODEL, names, rowsOf, succeed } from "./models.ts";
import { runCommand, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { ROOT } from "../fixtures.ts";

Deno.env.set("ORT_DISABLE_TELEMETRY", "1");
const { InferenceSession, Tensor } = await import("onnxruntime-node");

const TOKENS = 16;
const EXPORT = `export --model ${MODEL} --onnx --out onnx --capacity 128 --tokens ${TOKENS}`;

/** A prompt that a golden model continues, and the first token that follows. */
const { prompts, outputs } = EXPECTED.greedy;
const AT = prompts.findIndex((each: number[]) => each.length <= TOKENS);
const PROMPT: number[] = prompts[AT], NEXT: number = outputs[AT][0];

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

/** Requires the golden logits of a prompt, and of tokens behind it one by one. */
async function assertGolden(folder: string, name = "qwen2-p2-tied-f32"): Promise<void> {
  const programs = await Exported.open(folder);
  const ids = readExpected(name).cases.single!.ids[0]!;
  const expected = (await readExpectedTensors(name)).get("single.logits")!;
  const V = expected.length / ids.length;
  for (let end = 5; end <= ids.length; end++) {
    const logits = end === 5
      ? await programs.read(ids.slice(0, end))
      : await programs.append(ids[end - 1]!, end - 1);
    const difference = maxDifference(logits, expected.subarray((end - 1) * V, end * V));
    assert(difference <= TOLERANCE.logits, `token ${end}: ${difference}`);
  }
}

Deno.test("files of a model with delta nets have the golden logits: states begin and end where tokens do", () =>
  withScratch(async (cwd) => {
    const name = "qwen35-p2-tied-f32";
    const sizes = `--capacity 128 --tokens ${TOKENS}`;
    await succeed(`export --model ${modelFolder(name)} --onnx --out onnx ${sizes} -qq`, { cwd });
    await assertGolden(`${cwd}/onnx`, name);
  }));

for (const target of ["cpu", "webgpu"]) {
  Deno.test({
    name:
      `files for ${target} have the golden logits, and the JavaScript of their page runs as it stands`,
    ignore: target === "webgpu" && !await hasWebGpu(),
    fn: () =>
      withScratch(async (cwd) => {
        await succeed(`${EXPORT} -qq --target ${target}`, { cwd });
        assertEquals(
          names(`${cwd}/onnx`).filter((name) => !name.startsWith("tokenizer")).join(" "),
          "README.md decode.onnx export.json prefill.onnx weights.bin",
        );
        await assertGolden(`${cwd}/onnx`);
        const page = await Deno.readTextFile(`${cwd}/onnx/README.md`);
        assertStringIncludes(page, `reads \`${TOKENS}\` tokens`);
        await Deno.writeTextFile(`${cwd}/onnx/use.mjs`, /```js\n([\s\S]*?)```/.exec(page)![1]!);
        const config = `${ROOT}deno.json`;
        const use = [Deno.execPath(), "run", "-A", "--config", config, "use.mjs"];
        const options = { cwd: `${cwd}/onnx`, env: { NO_COLOR: "1" } };
        const { stdout } = await runCommand(use, options);
        const [{ tokens }] = await rowsOf(
          `generate --model ${MODEL} --max-tokens 20 --ignore-eos`,
          { stdin: '{"tokens":[1,2,3]}\n' },
        );
        const printed = stdout.trim().split("\n").map(Number);
        assertEquals(printed, tokens);
      }),
  });
}

/** Fields of a protocol buffer, by number: integers, and bytes of all else that these files hold. */
function fieldsOf(bytes: Uint8Array): (readonly [field: number, value: number | Uint8Array])[] {
  const fields: (readonly [number, number | Uint8Array])[] = [];
  let at = 0;
  const varint = () => {
    let value = 0, scale = 1, byte: number;
    do {
      byte = bytes[at++]!;
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  while (at < bytes.length) {
    const key = varint(), type = key & 7;
    if (type === 0) fields.push([key >> 3, varint()]);
    else {
      const end = (type === 2 ? varint() : type === 5 ? 4 : 8) + at;
      fields.push([key >> 3, bytes.subarray(at, end)]);
      at = end;
    }
  }
  return fields;
}

/** Messages, texts and integers of a field. */
function read(message: Uint8Array, field: number) {
  const values = fieldsOf(message).flatMap(([number, value]) => number === field ? [value] : []);
  const messages = values.filter((value) => typeof value !== "number");
  const texts = messages.map((value) => new TextDecoder().decode(value));
  return { messages, texts, integers: values.filter((value) => typeof value === "number") };
}

Deno.test("nodes of exported graphs come after those that they read, in the IR version of their opset", async (t) => {
  const models =
    "qwen2-p2-tied-f32 qwen3-p2-untied-f32 qwen35-p4-untied-f32 llama-p1-llama3-tied-f32";
  for (const name of models.split(" ")) {
    for (const flags of ["", "--quantize q4", "--target webgpu --dtype f16"]) {
      await t.step(`${name} ${flags}`, () =>
        withScratch(async (cwd) => {
          const sizes = `--capacity 32 --tokens ${TOKENS}`;
          const line = `export --model ${
            modelFolder(name)
          } --onnx --out onnx ${sizes} -qq ${flags}`;
          await succeed(line, { cwd });
          for (const file of ["prefill", "decode"]) {
            const model = await Deno.readFile(`${cwd}/onnx/${file}.onnx`);
            const [opset] = read(model, 8).messages;
            // `onnx.helper.VERSION_TABLE`: opset 24 came with version 12.
            assertEquals([read(model, 1).integers, read(opset!, 2).integers], [[12], [24]]);
            const graph = read(model, 7).messages[0]!;
            const initializers = read(graph, 5).messages.flatMap((each) => read(each, 8).texts);
            const inputs = read(graph, 11).messages.flatMap((each) => read(each, 1).texts);
            const known = new Set(["", ...initializers, ...inputs]);
            for (const node of read(graph, 1).messages) {
              const early = read(node, 1).texts.filter((input) => !known.has(input));
              assertEquals(early, [], read(node, 3).texts[0]);
              for (const output of read(node, 2).texts) known.add(output);
            }
          }
        }));
    }
  }
});

Deno.test("f16 and 8 bits are smaller files with the same first token; those for webgpu run on the processor", () =>
  withScratch(async (cwd) => {
    const made = async (flags: string) => {
      const { results } = await documentOf(`${EXPORT} ${flags} --overwrite`, { cwd });
      assertEquals(results.files.toSorted(), names(`${cwd}/onnx`));
      const logits = await (await Exported.open(`${cwd}/onnx`)).read(PROMPT);
      assertEquals(logits.indexOf(Math.max(...logits)), NEXT, flags);
      return results;
    };
    const exact = await made("--target webgpu --dtype f32");
    assertEquals([exact.target, exact.weights], ["webgpu", "f32"]);
    await assertGolden(`${cwd}/onnx`);
    const half = await made("--target webgpu --dtype f16");
    assertEquals(half.weights, "f16");
    assert(half.weight_bytes < exact.weight_bytes * 0.6);
    const plain = await made("--quantize none"), q8 = await made("--quantize q8");
    assert(q8.weight_bytes < plain.weight_bytes * 0.7);
  }));

Deno.test("beside quantized matrices the embedding table has 8 bits, once where it is the head as well", () =>
  withScratch(async (cwd) => {
    const model = MODEL.replace("qwen2-p2-tied-f32", "python-p1");
    const bytes = async (quantize: string) => {
      const line = `export --model ${model} --onnx --out onnx --overwrite --capacity 128`;
      const { results } = await documentOf(`${line} --tokens ${TOKENS} --quantize ${quantize}`, {
        cwd,
      });
      return results.weight_bytes;
    };
    // 2,048 rows of two blocks of 32 columns, each with a scale; and all other weights.
    const table = 2048 * (64 + 8), head = 2048 * (32 + 8);
    assertEquals(await bytes("q8"), 397_312 + table);
    assertEquals(await bytes("q4"), 348_160 + table + head);
  }));

Deno.test("a plan has pieces of a prompt that fit its capacity; a closed pipe ends an export with 0", () =>
  withScratch(async (cwd) => {
    const plan = await succeed(`export ${MODEL} --capacity 32 --dry-run`, { cwd });
    assertStringIncludes(plan, "would write prefill.onnx (32 of 32 tokens)");
    assertStringIncludes(plan, `to ${basename(MODEL)}-onnx`);
    assertEquals(names(cwd), []);
    const gone = await runShell(`parscale ${EXPORT} | true; echo \${PIPESTATUS[0]}`, { cwd });
    assertEquals(gone.stdout, "0\n");
  }));
