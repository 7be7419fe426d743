/**
 * Ctrl-C at random moments of every command, twice in a row: the first is answered at once, the second ends
 * the program, native code never crashes, and what was saved is whole. `tests/real` does the same on a model
 * that takes seconds to open.
 */
import { assert, assertEquals } from "@std/assert";
import { DATA, TINY } from "../cli/eval_testing.ts";
import { jsonLines, MODEL, parseLines, PLAIN_MODEL } from "../cli/models.ts";
import { runParscale } from "../cli/run.ts";
import { texts } from "../cli/train_testing.ts";
import { withScratch } from "../scratch.ts";
import { exists } from "../../cli/output/sink.ts";
import { Draws } from "./fuzzing.ts";
import { requireEnded } from "./interrupts.ts";

const ROUNDS = 8;

/** Commands with the longest time to a signal in milliseconds, and what must be whole in their output. */
const CASES: readonly (readonly [string, number, ((out: string) => unknown)?])[] = [
  [
    `train --model ${MODEL} --data rows.jsonl --no-pack --seq-len 16 --batch 4 --steps 2000 ` +
    "--save-every 20 --eval-data rows.jsonl --eval-every 10 --out out",
    2500,
    requireRun,
  ],
  [`convert --model ${PLAIN_MODEL} --streams 2 --out out`, 700, requireModel],
  [
    `eval --model ${TINY} --data ${DATA} --tasks arc_easy,gsm8k --max-tokens 200 --out out`,
    2500,
    requireSamples,
  ],
  [`generate --model ${MODEL} prompts.jsonl --ignore-eos --max-tokens 100 --jsonl -o out`, 1500],
  [`generate --model ${MODEL} prompts.jsonl --ignore-eos --max-tokens 100 --jsonl`, 1500],
  [`serve --model ${MODEL} --port 0`, 1500],
  [`export --model ${MODEL} --onnx --out out`, 1500, requireExport],
];

async function requireModel(out: string): Promise<void> {
  if (!exists(out)) return;
  const { code, stderr } = await runParscale(["inspect", "--model", out]);
  assertEquals(code, 0, stderr);
}

async function requireRun(out: string): Promise<void> {
  if (exists(`${out}/last`)) await requireModel(out);
}

function requireSamples(out: string): void {
  const path = `${out}/samples.jsonl`;
  if (!exists(path)) return;
  // The last line may have no end yet, and is then written again.
  const text = Deno.readTextFileSync(path);
  parseLines(text.slice(0, text.lastIndexOf("\n") + 1));
}

function requireExport(out: string): void {
  assert(!exists(out) || exists(`${out}/export.json`), "half an export");
}

for (const [line, longest, requireWhole] of CASES) {
  Deno.test(`Ctrl-C at any moment: ${line.replace(/ .*?( -o)? ?\w*$/, "$1")}`, async () => {
    const draws = new Draws(7, line);
    for (let round = 0; round < ROUNDS; round++) {
      await withScratch(async (cwd) => {
        const rows = texts(40), prompts = rows.map(({ text }) => ({ prompt: text }));
        await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...rows));
        await Deno.writeTextFile(`${cwd}/prompts.jsonl`, jsonLines(...prompts));
        await requireEnded(line, { cwd, after: draws.below(longest), isDouble: round % 4 > 0 });
        await requireWhole?.(`${cwd}/out`);
      });
    }
  });
}
