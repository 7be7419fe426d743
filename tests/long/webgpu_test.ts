/** `--device webgpu` and `--dtype f16` as a black box: the commands that infer, and misuse. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { fileURLToPath } from "node:url";
import { runEval } from "../cli/eval_testing.ts";
import {
  assertFailed,
  EXPECTED,
  hasWebGpu,
  jsonLines,
  MODEL,
  parseLines,
  rowsOf,
} from "../cli/models.ts";
import { runCommand, runParscale, runProcess, runShell } from "../cli/run.ts";
import { cellOf, COMMANDS, runCommands } from "../gpu/commands.ts";
import { withScratch } from "../scratch.ts";
import { FIXTURES } from "../fixtures.ts";

const ignore = !await hasWebGpu();

const GENERATE = `generate --model ${MODEL} --max-tokens 12 --ignore-eos`;
const PROMPTS = jsonLines(...EXPECTED.greedy.prompts.map((tokens: number[]) => ({ tokens })));

Deno.test({
  name: "webgpu: generate gives the tokens of the golden model, by beams too",
  ignore,
  async fn() {
    const tokensOf = async (flags: string) =>
      (await rowsOf(`${GENERATE} ${flags}`, { stdin: PROMPTS })).map(({ tokens }) => tokens);
    const expected = EXPECTED.greedy.outputs.map((tokens: number[]) => tokens.slice(0, 12));
    assertEquals(await tokensOf("--device webgpu"), expected);
    const beams = "--num-beams 3 --device";
    assertEquals(await tokensOf(`${beams} webgpu`), await tokensOf(`${beams} cpu`));
  },
});

Deno.test({
  name: "webgpu: score gives the log-probabilities and weights of the cpu",
  ignore,
  async fn() {
    const stdin = jsonLines({ tokens: EXPECTED.cases.single.ids[0] });
    const score = `score --model ${MODEL} --stream-weights --device`;
    const [[ours], [theirs]] = [
      await rowsOf(`${score} webgpu`, { stdin }),
      await rowsOf(`${score} cpu`, { stdin }),
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
    const asked = "--tasks arc_easy,gsm8k --ids 0,1 --shots 1 --max-tokens 16 --json --device";
    const documents = [];
    for (const device of ["webgpu", "cpu"]) {
      documents.push(JSON.parse((await runEval(`${asked} ${device}`)).stdout));
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
    const half = `${GENERATE} --device webgpu --dtype f16 --jsonl`;
    const result = await runParscale(half, { stdin: PROMPTS });
    if (result.code === 4) assertStringIncludes(result.stderr, "16-bit arithmetic");
    else {
      const rows = parseLines(result.stdout);
      assertEquals(rows.map(({ tokens }) => tokens.length), EXPECTED.greedy.prompts.map(() => 12));
    }
    await rowsOf(`${GENERATE} --device webgpu --quantize q4`, { stdin: PROMPTS });
    const bench = `bench --model ${MODEL} --rounds 1 --steps 1 --what decode`;
    const rows = await rowsOf(`${bench} --device webgpu`);
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

Deno.test("without a driver --device webgpu says what to install", async () => {
  const env = { VK_ICD_FILENAMES: "/dev/null", VK_DRIVER_FILES: "/dev/null" };
  const line = `score --model ${MODEL} --device webgpu`;
  const found = await runProcess(line, { env, stdin: PROMPTS });
  const hint = "hint: install a Vulkan driver";
  assertFailed(found, 4, "error: the webgpu device has no usable GPU: ", hint);
});

Deno.test({
  name: "webgpu: every command gives what it gives on cpu, as the table in docs/devices.md says",
  ignore,
  async fn() {
    const page = await Deno.readTextFile(new URL("../../docs/devices.md", import.meta.url));
    const rows = page.split("\n").map((line) => line.split("|").map((cell) => cell.trim()))
      .filter(([, command]) => COMMANDS.includes(`${command}`.replaceAll("`", "")));
    assertEquals(rows.map(([, command]) => command!.replaceAll("`", "")), COMMANDS);
    const found = await runCommands(["webgpu"]);
    assertEquals(found.filter(({ error }) => error !== undefined), []);
    for (const [i, result] of found.entries()) {
      const [cell, written] = [cellOf(result), rows[i]![4]!];
      // Drivers round differently, by less than a digit.
      const digits = (text: string) => Number(/^within 1e(-\d+)$/.exec(text)?.[1] ?? -Infinity);
      const isClose = cell === written || digits(cell) <= digits(written) + 1;
      assert(isClose, `${COMMANDS[i]}: ${cell}, docs/devices.md says ${written}`);
    }
  },
});

Deno.test({
  name: "webgpu: a run that does not fit the GPU ends with its plan and what to lower",
  ignore,
  fn: () =>
    withScratch(async (cwd) => {
      const model = `${FIXTURES}models/python-p1`;
      const data = `${FIXTURES}demo/held_out.jsonl`;
      const line = `train --model ${model} --data ${data} --seq-len 16384 --context 16384`;
      const size = "--batch 64 --micro-batch 64 --steps 1 --device webgpu --out run -q";
      const found = await runParscale(`${line} ${size}`, { cwd });
      assertFailed(found, 4, "not enough GPU memory", "activations", "--micro-batch");
    }),
});

for (const params of ["all", "introduced"]) {
  Deno.test({
    name: `webgpu: training of ${params} takes at most 1.1 times the GPU memory of its plan`,
    ignore,
    async fn() {
      const child = fileURLToPath(new URL("webgpu_memory_child.ts", import.meta.url));
      const { stdout, stderr } = await runCommand([
        ...[Deno.execPath(), "run", "-A", "--no-check", child, params],
      ]);
      assert(stdout !== "", stderr);
      const { planned, used, isLavapipe } = JSON.parse(stdout);
      if (!isLavapipe) return; // memory of a GPU is not seen from outside
      assert(used <= 1.1 * planned && used > 0.8 * planned, `${used} of ${planned} bytes`);
    },
  });
}
