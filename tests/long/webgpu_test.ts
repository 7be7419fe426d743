/** `--device webgpu` and `--dtype f16` as a black box: the commands that infer, and misuse. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { DATA, EVAL } from "../cli/eval_testing.ts";
import { assertRefused, EXPECTED, hasWebGpu, jsonLines, MODEL, parseLines } from "../cli/models.ts";
import { runParscale, runProcess, runShell } from "../cli/run.ts";

const ignore = !await hasWebGpu();

/** Runs a command that must succeed and say nothing but its progress. */
async function run(args: readonly string[], stdin?: string): Promise<string> {
  const result = await runParscale([...args, "-q"], { stdin });
  assertEquals([result.code, result.stderr], [0, ""]);
  return result.stdout;
}

const GENERATE = ["generate", "--model", MODEL, "--max-tokens", "12", "--ignore-eos", "--jsonl"];
const PROMPTS = jsonLines(...EXPECTED.greedy.prompts.map((tokens: number[]) => ({ tokens })));

Deno.test({
  name: "webgpu: generate gives the tokens of the golden model, by beams too",
  ignore,
  async fn() {
    const rows = parseLines(await run([...GENERATE, "--device", "webgpu"], PROMPTS));
    const expected = EXPECTED.greedy.outputs.map((tokens: number[]) => tokens.slice(0, 12));
    assertEquals(rows.map(({ tokens }) => tokens), expected);
    const beams = [...GENERATE, "--num-beams", "3"];
    const [ours, theirs] = [
      parseLines(await run([...beams, "--device", "webgpu"], PROMPTS)),
      parseLines(await run([...beams, "--device", "cpu"], PROMPTS)),
    ];
    assertEquals(ours.map(({ tokens }) => tokens), theirs.map(({ tokens }) => tokens));
  },
});

Deno.test({
  name: "webgpu: score gives the log-probabilities and weights of the cpu",
  ignore,
  async fn() {
    const row = jsonLines({ tokens: EXPECTED.cases.single.ids[0] });
    const score = ["score", "--model", MODEL, "--stream-weights", "--jsonl", "--device"];
    const [ours, theirs] = [
      parseLines(await run([...score, "webgpu"], row))[0],
      parseLines(await run([...score, "cpu"], row))[0],
    ];
    for (const key of ["token_logprobs", "weights"]) {
      const [a, b] = [ours[key].flat(), theirs[key].flat()];
      assertEquals(a.length, b.length);
      a.forEach((x: number, i: number) => assert(Math.abs(x - b[i]) < 1e-4, `${key} ${i}`));
    }
  },
});

Deno.test({
  name: "webgpu: eval agrees with the cpu, and its document names the device",
  ignore,
  async fn() {
    const asked = [...EVAL, "--tasks", "arc_easy,gsm8k", "--ids", "0,1", "--shots", "1"]
      .concat("--max-tokens", "16", "--json", "--device");
    const documents = [];
    for (const device of ["webgpu", "cpu"]) {
      const { code, stdout, stderr } = await runParscale([...asked, device]);
      assertEquals(code, 0, stderr);
      documents.push(JSON.parse(stdout));
    }
    assertEquals(documents.map(({ device }) => device), ["webgpu", "cpu"]);
    const metrics = documents.map(({ results }) =>
      results.tasks.map(({ metrics }: { metrics: unknown }) => metrics)
    );
    assertEquals(metrics[0], metrics[1]);
  },
});

Deno.test({
  name: "webgpu: f16 generates, q4 generates, and bench names what it timed",
  ignore,
  async fn() {
    const half = ["--device", "webgpu", "--dtype", "f16"];
    const result = await runParscale([...GENERATE, ...half], { stdin: PROMPTS });
    if (result.code === 4) assertStringIncludes(result.stderr, "16-bit arithmetic");
    else {
      const rows = parseLines(result.stdout);
      assertEquals(rows.map(({ tokens }) => tokens.length), EXPECTED.greedy.prompts.map(() => 12));
    }
    parseLines(await run([...GENERATE, "--device", "webgpu", "--quantize", "q4"], PROMPTS));
    const bench = ["bench", "--model", MODEL, "--rounds", "1", "--steps", "1", "--jsonl"];
    const rows = parseLines(await run([...bench, "--what", "decode", "--device", "webgpu"]));
    assertEquals(rows.map(({ device, dtype }) => `${device} ${dtype}`), ["webgpu f32"]);
  },
});

Deno.test({
  name: "webgpu: a pipe that closes ends it quietly",
  ignore,
  async fn() {
    const { stdout, stderr } = await runShell(
      `parscale generate --model ${MODEL} --prompt x --device webgpu | head -c 1 | wc -c`,
    );
    assertEquals([stdout.trim(), stderr], ["1", ""]);
  },
});

Deno.test("webgpu: training is refused with the devices that train", async () => {
  const args = ["train", "--model", MODEL, "--data", DATA, "--out", "run", "--device", "webgpu"];
  const result = await runParscale(args);
  assertEquals(result.code, 2);
  assertStringIncludes(
    result.stderr,
    'invalid value "webgpu" for `--device`: must be one of auto, cpu, cuda',
  );
});

Deno.test("--dtype f16 where it is not had names the device that has it", async () => {
  const args = ["generate", "--model", MODEL, "--prompt", "x", "--dtype", "f16"];
  const result = await runParscale(args);
  assertRefused(result, 2, "the cpu device does not support `--dtype f16`, only f32");
  assertStringIncludes(result.stderr, "hint: leave out `--dtype`, or pass `--device webgpu`");
});

Deno.test("without a driver --device webgpu says what to install", async () => {
  const env = { VK_ICD_FILENAMES: "/dev/null", VK_DRIVER_FILES: "/dev/null" };
  const args = ["score", "--model", MODEL, "--device", "webgpu"];
  const { code, stdout, stderr } = await runProcess(args, { env, stdin: PROMPTS });
  assertEquals([code, stdout], [4, ""]);
  assertStringIncludes(stderr, "error: the webgpu device has no usable GPU: ");
  assertStringIncludes(stderr, "hint: install a Vulkan driver");
});
