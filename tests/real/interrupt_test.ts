/** Ctrl-C while a real model opens, is quantized, compiled, trained and read. */
import { DATA } from "../cli/eval_testing.ts";
import { jsonLines } from "../cli/models.ts";
import { Draws } from "../long/fuzzing.ts";
import { requireEnded } from "../long/interrupts.ts";
import { withScratch } from "../scratch.ts";
import { qwenTest, TEXTS } from "./model.ts";

/** Commands, each interrupted before this many milliseconds. */
const LONGEST = 12_000, ROUNDS = 3;

const LINES = [
  "convert --streams 2 --out out",
  `eval --tasks gsm8k --shots 0 --limit 4 --data ${DATA} --out out`,
  "train --data rows.jsonl --streams 2 --steps 4 --seq-len 128 --batch 1 --out out",
  "generate --prompt hello --max-tokens 200",
];

for (const line of LINES) {
  qwenTest(`Ctrl-C at any moment: ${line.replace(/ .*/, "")}`, async (model) => {
    const draws = new Draws(11, line);
    for (let round = 0; round < ROUNDS; round++) {
      await withScratch(async (cwd) => {
        await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines({ text: TEXTS.Python }));
        // The first round has no weights that an earlier start kept.
        const env: Record<string, string> = round === 0 ? { PARSCALE_CACHE: `${cwd}/cache` } : {};
        const after = draws.below(LONGEST);
        await requireEnded(`${line} --model ${model}`, { cwd, env, after, isDouble: true });
      });
    }
  });
}
