/**
 * Merged adapters in Hugging Face transformers: equal logits, and nothing left over. Folders with streams are
 * in `tests/real/hf_test.ts`.
 *
 *   PARSCALE_HF_PYTHON   a Python with torch and transformers
 *
 * Skipped where it is not given. `deno task test:interop` runs this file.
 */
import { fileURLToPath } from "node:url";
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { Engine } from "../../core/generate/engine.ts";
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { jsonLines, PLAIN_MODEL } from "../cli/models.ts";
import { runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";

const python = Deno.env.get("PARSCALE_HF_PYTHON");
const SCRIPT = fileURLToPath(new URL("hf_logits.py", import.meta.url));

/** Two rows of tokens that every fixture model knows. */
const IDS = [[1, 5, 9, 20, 33, 7], [3, 2, 14, 60, 41, 8]];

/** Both compute in f32, in another order. */
const TOLERANCE = 5e-5;

interface HfResult {
  readonly version: string;
  readonly missing: string[];
  readonly unexpected: string[];
  readonly logits: number[];
}

async function transformers(folder: string): Promise<HfResult> {
  const { code, stdout, stderr } = await new Deno.Command(python!, {
    args: [SCRIPT, folder, JSON.stringify(IDS)],
  }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr).slice(-2000));
  return JSON.parse(new TextDecoder().decode(stdout).trim().split("\n").at(-1)!);
}

/** Logits of ours, in double precision. */
async function ours(folder: string): Promise<number[]> {
  const { config, tensors } = await openCheckpoint(folder);
  const engine = new Engine(new ReferenceDevice("f64"), config, tensors);
  const T = IDS[0]!.length;
  const outputs = await engine.forward(engine.createCache(IDS.length, T), {
    ids: IDS,
    start: IDS.map(() => 0),
    select: Array.from({ length: IDS.length * T }, (_, i) => i),
  });
  return Array.from(outputs.get("logits")!);
}

function assertClose(actual: readonly number[], expected: readonly number[]): void {
  assertEquals(actual.length, expected.length);
  const worst = Math.max(...actual.map((x, i) => Math.abs(x - expected[i]!)));
  assert(worst < TOLERANCE, `logits differ by ${worst}`);
}

async function succeed(args: string[], options: { cwd: string; stdin?: string }): Promise<void> {
  const { code, stderr } = await runParscale(args, options);
  assertEquals(code, 0, stderr);
}

const INTRODUCED = "--train-params introduced --data rows.jsonl --no-pack --seq-len 16 --batch 4 " +
  "--steps 3 --lr 0.05 --schedule constant --warmup 0 -q";

/** Trains an adapter in `cwd` and folds it into `cwd/merged`. */
async function mergedAdapter(cwd: string, flags: string): Promise<string> {
  const rows = Array.from({ length: 8 }, (_, i) => ({
    tokens: Array.from({ length: 16 }, (_, t) => (i * 7 + t * 3) % 60),
  }));
  await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...rows));
  const train = [...flags.split(" "), ...INTRODUCED.split(" "), "--out", "run"];
  await succeed(["train", "--model", PLAIN_MODEL, ...train], { cwd });
  await succeed(["convert", "--model", "run", "--merge", "--out", "merged"], { cwd });
  return `${cwd}/merged`;
}

for (const transform of ["lora", "bitfit", "lora,bitfit"]) {
  Deno.test({
    name: `a merged adapter of one stream is a plain model with equal logits: ${transform}`,
    ignore: !python,
    fn: () =>
      withScratch(async (cwd) => {
        const folder = await mergedAdapter(cwd, `--streams 1 --transform ${transform}`);
        const found = await transformers(folder);
        assertEquals([found.missing, found.unexpected], [[], []]);
        assertClose(found.logits, await ours(folder));
      }),
  });
}
