/** `parscale convert --quantize` and the commands that run its result, as black boxes. */
import { assert, assertEquals } from "@std/assert";
import { DATA, TINY } from "./eval_testing.ts";
import {
  assertRefusals,
  assertRefused,
  copyFolder,
  jsonLines,
  MODEL,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { names } from "./convert_testing.ts";
import { runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const PROMPTS = jsonLines({ tokens: [1, 2, 3, 5, 8] }, { tokens: [13, 21] });

/** Runs a command successfully and returns `results` of its JSON document. */
// deno-lint-ignore no-explicit-any -- tests look at any field
async function results(cwd: string, ...args: string[]): Promise<any> {
  return JSON.parse(await succeed([...args, "--json"], { cwd })).results;
}

const quantized = (cwd: string, ...args: string[]) =>
  results(cwd, "convert", "--model", MODEL, "--quantize", "q4", "--out", "q4", ...args);

Deno.test("a quantized folder generates and scores as --quantize does at run time", () =>
  withScratch(async (cwd) => {
    for (const [kind, block] of [["q4", "32"], ["q8", "64"]] as const) {
      const how = ["--quantize", kind, "--block-size", block];
      const made = await results(cwd, "convert", "--model", MODEL, "--out", kind, ...how);
      assertEquals([made.quantization, made.block_size, made.streams], [kind, Number(block), 2]);
      assertEquals(names(`${cwd}/${kind}`), made.files.toSorted());
      const run = async (command: string, ...args: string[]) =>
        await rowsOf([command, ...args, ...(command === "generate" ? ["--max-tokens", "8"] : [])], {
          cwd,
          stdin: PROMPTS,
        });
      for (const command of ["generate", "score"]) {
        const expected = await run(command, "--model", MODEL, ...how);
        assertEquals(await run(command, "--model", kind), expected);
        assertEquals(await run(command, "--model", kind, ...how), expected);
      }
    }
  }));

Deno.test("an adapter over a quantized backbone scores as over the quantized original", () =>
  withScratch(async (cwd) => {
    const source = ["convert", "--model", PLAIN_MODEL];
    await results(cwd, ...source, "--streams", "4", "--introduced-only", "--out", "adapter");
    await results(cwd, ...source, "--quantize", "q4", "--out", "q4");
    const score = (...model: string[]) =>
      rowsOf(["score", ...model, "--adapter", "adapter"], { cwd, stdin: PROMPTS });
    const expected = await score("--model", PLAIN_MODEL, "--quantize", "q4");
    assertEquals(await score("--model", "q4"), expected);
    const checked = ["inspect", "--model", "q4", "--adapter", "adapter", "--check"];
    assertEquals((await results(cwd, ...checked)).streams, 4);
  }));

Deno.test("several adapters over a quantized ParScale folder, each as over it alone", () =>
  withScratch(async (cwd) => {
    await quantized(cwd);
    const source = ["convert", "--model", PLAIN_MODEL, "--introduced-only", "--streams"];
    await results(cwd, ...source, "2", "--out", "a");
    await results(cwd, ...source, "3", "--seed", "4", "--out", "b");
    const generate = (adapters: string[], ...names: string[]) =>
      rowsOf(
        ["generate", "--model", "q4", "--max-tokens", "6"].concat(
          adapters.flatMap((name) => ["--adapter", `${name}=${name}`]),
        ),
        { cwd, stdin: jsonLines(...names.map((adapter) => ({ tokens: [1, 2, 3], adapter }))) },
      );
    const [first, second] = await generate(["a", "b"], "a", "b");
    assertEquals(first.tokens, (await generate(["a"], "a"))[0].tokens);
    assertEquals(second.tokens, (await generate(["b"], "b"))[0].tokens);
  }));

Deno.test("inspect, bench, visualize and eval take a quantized folder and name its kind", () =>
  withScratch(async (cwd) => {
    const { tensors, bytes } = await quantized(cwd, "--verify");
    const found = await results(cwd, "inspect", "--model", "q4", "--check");
    assertEquals([found.dtypes, found.block_size], [["q4", "f32"], 32]);
    assertEquals([found.tensors, found.stored_bytes], [tensors, bytes]);
    const short = ["--context", "8", "--rounds", "1", "--steps", "2", "--what", "decode"];
    for (const streams of [[], ["--streams", "1,3"]]) {
      const rows = await rowsOf(["bench", "--model", "q4", ...short, ...streams], { cwd });
      assertEquals(new Set(rows.map(({ weights }) => weights)), new Set(["q4"]));
    }
    const show = ["visualize", "--text", "A cat", "--model"];
    assertEquals(
      await rowsOf([...show, "q4"], { cwd }),
      await rowsOf([...show, MODEL, "--quantize", "q4"], { cwd }),
    );
    await results(cwd, "convert", "--model", TINY, "--quantize", "q8", "--out", "tiny");
    const evaluate = ["eval", "--data", DATA, "--tasks", "piqa", "--ids", "0..3", "--model"];
    const own = await results(cwd, ...evaluate, "tiny");
    const same = await results(cwd, ...evaluate, TINY, "--quantize", "q8");
    assertEquals([own.tasks[0].metrics, own.quantize], [same.tasks[0].metrics, same.quantize]);
  }));

Deno.test("commands and devices that need full-precision weights refuse a quantized folder", () =>
  withScratch(async (cwd) => {
    await quantized(cwd);
    await Deno.writeTextFile(`${cwd}/x.jsonl`, jsonLines({ text: "abc" }));
    const generate = "generate --model q4 --prompt a";
    const is = (what: string) => `error: ${what} needs full-precision weights: "q4" is q4\n`;
    await assertRefusals([
      ["train --model q4 --data x.jsonl --steps 1 --out no", 3, is("`train`")],
      ["convert --model q4 --strip --out no", 3, is("`convert`")],
      ["convert --model q4 --quantize q8 --out no", 3, is("`convert`")],
      ["export --model q4 --onnx --out no", 3, is("`export`")],
      [`${generate} --device reference`, 2, is("the reference device")],
      [`${generate} --device tfjs`, 2, is("the tfjs device")],
      [`${generate} --device cuda`, 2, is("the cuda device")],
      [`${generate} --quantize q8`, 2, is("`--quantize q8`")],
      [`${generate} --quantize q4 --block-size 64`, 2, is("`--block-size 64`")],
      ["bench --model q4 --what decode --quantize q4,q8", 2, is("`--quantize q8`")],
    ], { cwd });
    assertEquals(names(cwd), ["q4", "x.jsonl"]);
  }));

Deno.test("convert --quantize: flags that do not go together", async () => {
  const line = `convert --model ${PLAIN_MODEL} --out no`;
  await assertRefusals([
    [`${line} --quantize q4 --streams 2`, 2, "`--quantize q4` cannot be combined with `--streams`"],
    [`${line} --quantize q4 --strip`, 2, "`--quantize q4` cannot be combined with `--strip`"],
    [`${line} --quantize q4 --block-size 48`, 2, "invalid value 48 for `--block-size`"],
    [`${line} --quantize q5`, 2, 'invalid value "q5" for `--quantize`'],
    [`${line} --streams 2 --block-size 32`, 2, "`--block-size 32` needs `--quantize`"],
    [line, 2, "`convert` needs"],
  ]);
});

Deno.test("convert --quantize: dry run, overwrite, and a source that is the target", () =>
  withScratch(async (cwd) => {
    const plan = await quantized(cwd, "--dry-run");
    assertEquals(names(cwd), []);
    const made = await quantized(cwd);
    assertEquals([made.tensors, made.bytes], [plan.tensors, plan.bytes]);
    const args = ["convert", "--model", MODEL, "--quantize", "q8", "--out", "q4"];
    assertRefused(await runParscale(args, { cwd }), 2, '"q4" already exists');
    const again = await results(cwd, ...args.slice(0), "--overwrite");
    assertEquals(again.quantization, "q8");
    await copyFolder(MODEL, `${cwd}/own`);
    const self = ["convert", "--model", "own", "--quantize", "q8", "--out", "own", "--overwrite"];
    assertRefused(await runParscale(self, { cwd }), 2, '"own" holds the model to convert');
  }));

Deno.test("inspect --check finds a byte of a quantized folder that was changed", () =>
  withScratch(async (cwd) => {
    await quantized(cwd);
    const path = `${cwd}/q4/model.safetensors`;
    const bytes = Deno.readFileSync(path);
    bytes[bytes.length - 999]! ^= 1;
    Deno.writeFileSync(path, bytes);
    const changed = 'error: the weights in "q4" were changed';
    await assertRefusals([["inspect --model q4 --check", 3, changed]], { cwd });
  }));

Deno.test("convert --quantize into a pipe that is read, and one that is closed", () =>
  withScratch(async (cwd) => {
    const line = `parscale convert --model ${MODEL} --quantize q4 --json`;
    const piped = await runShell(`${line} --out a | jq -r .results.quantization`, { cwd });
    assertEquals(piped, { code: 0, stdout: "q4\n", stderr: "" });
    const closed = await runShell(`${line} --out b | true; echo \${PIPESTATUS[0]}`, { cwd });
    assertEquals(closed, { code: 0, stdout: "0\n", stderr: "" });
    const generate = "parscale generate --model a --prompt a --max-tokens 20 | head -c 1";
    const cut = await runShell(`${generate} > /dev/null; echo \${PIPESTATUS[0]}`, { cwd });
    assertEquals([cut.stdout, cut.stderr], ["0\n", ""]);
    assert(names(cwd).includes("b"));
  }));
