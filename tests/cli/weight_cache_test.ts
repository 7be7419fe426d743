/** Quantized weights kept between starts, seen from the command line. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { encodeHeader } from "../../core/checkpoint/safetensors.ts";
import { parseConfig } from "../../core/checkpoint/config.ts";
import { elementCount, parameterSpecs } from "../../core/model/parameters.ts";
import { copyFolder, PLAIN_MODEL } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

/** A model of 76 MB, just large enough to be kept: one layer under a table of 32,768 rows. */
async function wideModel(folder: string): Promise<string> {
  const config = JSON.parse(Deno.readTextFileSync(`${PLAIN_MODEL}/config.json`));
  const wide = { ...config, vocab_size: 32768, hidden_size: 1024, num_hidden_layers: 1 };
  const files = { "config.json": JSON.stringify(wide), "model.safetensors": undefined };
  const model = await copyFolder(PLAIN_MODEL, `${folder}/wide`, files);
  const specs = parameterSpecs(parseConfig(wide, "config.json"))
    .map((spec) => ({ ...spec, dtype: "BF16", byteLength: elementCount(spec.shape) * 2 }));
  // bf16 between 2^-7 and 2^-5, signs in turn.
  const values = Uint16Array.from(
    { length: 1 << 20 },
    (_, i) => (i * 0x9e3779b1 >>> 23 & 0x80ff) | 0x3c00 | (i * 2654435761 & 0x8000),
  );
  using file = await Deno.open(`${model}/model.safetensors`, { create: true, write: true });
  await file.write(encodeHeader(specs));
  const total = specs.reduce((sum, { byteLength }) => sum + byteLength, 0);
  for (let left = total; left > 0;) {
    left -= await file.write(new Uint8Array(values.buffer).subarray(0, left));
  }
  return model;
}

Deno.test("--quantize keeps weights for the next start, which gives the same tokens", () =>
  withScratch(async (folder) => {
    const model = await wideModel(folder);
    const cache = `${folder}/cache`, prompt = '{"tokens":[3,5,7]}\n';
    const generate = async (args: readonly string[], env: Record<string, string> = {}) => {
      const all = ["generate", "--model", model, "-", "--max-tokens", "4", "--jsonl", ...args];
      const result = await runParscale(all, {
        stdin: prompt,
        env: { PARSCALE_CACHE: cache, ...env },
      });
      assertEquals(result.code, 0, result.stderr);
      return { tokens: JSON.parse(result.stdout).tokens, stderr: result.stderr };
    };
    const q4 = ["--quantize", "q4"];
    const { tokens, stderr } = await generate([...q4, "--no-weight-cache"]);
    assertEquals(stderr, "");
    const first = await generate(q4);
    assertEquals(first.tokens, tokens);
    assertMatch(first.stderr, /^keeping q4 weights \(\d+\.\d MB\) for the next start\n/);
    assertEquals(await generate(q4), { tokens, stderr: "" });
    assertEquals((await generate([...q4, "--cache-limit", "1MB"])).tokens, tokens);

    const env = { PARSCALE_CACHE: cache };
    const shown = await runParscale(["doctor", "--jsonl"], { env });
    const row = shown.stdout.split("\n").find((line) => line.includes("weight cache"))!;
    assertMatch(JSON.parse(row).found, /^\d+\.\d MB of quantized weights in /);
    const cleared = await runParscale(["doctor", "--clear-cache", "--jsonl"], { env });
    assertEquals(JSON.parse(cleared.stdout).format, "q4, block size 32");
    assertEquals([...Deno.readDirSync(`${cache}/weights`)], []);

    // Where the cache cannot be written, the command continues without.
    Deno.writeTextFileSync(`${folder}/file`, "");
    const without = await generate(q4, { PARSCALE_CACHE: `${folder}/file` });
    assertEquals(without.tokens, tokens);
    assertStringIncludes(without.stderr, "warning: quantized weights were not kept: ");
  }));

Deno.test("a small model is not kept, and the flags of the cache need --quantize", () =>
  withScratch(async (cwd) => {
    const small = ["generate", "--model", PLAIN_MODEL, "--prompt", "a", "--max-tokens", "1"];
    const env = { PARSCALE_CACHE: `${cwd}/cache` };
    const { code, stderr } = await runParscale([...small, "--quantize", "q8"], { env });
    assertEquals([code, stderr], [0, ""]);
    assert(!(await Deno.stat(`${cwd}/cache/weights`).catch(() => undefined)));
    const idle = await runParscale([...small, "--cache-limit", "1GB"]);
    assertStringIncludes(idle.stderr, "--cache-limit` has no effect without `--quantize`");
  }));
