/**
 * Commands with an output, killed at random times and repeated until they exit with 0: the loop ends, and
 * the result is that of an undisturbed run. `train_resume_test.ts` does the same for `train`.
 */
import { createHash } from "node:crypto";
import { assertEquals, assertStringIncludes } from "@std/assert";
import { comparable, DATA, sortedLines, TINY } from "../cli/eval_testing.ts";
import { jsonLines, MODEL, MODEL4, names, PLAIN_MODEL } from "../cli/models.ts";
import { runProcess } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { exists } from "../../cli/output/sink.ts";
import { KILLS, untilDone } from "./until_done.ts";

const PROMPTS = Array.from({ length: 30 }, (_, i) => ({ tokens: [1 + i % 7, 2 + i % 5, i % 11] }));
const LONG = Array.from(
  { length: 300 },
  (_, i) => ({ tokens: Array.from({ length: 50 + i % 9 }, (_, j) => (i + j * j) % 60) }),
);

const GENERATE = `generate --model ${MODEL} in.jsonl --ignore-eos --max-tokens 40 --batch 3 ` +
  "--temperature 0.9 --num-return 2 --seed 3";
const SCORE = `score --model ${MODEL} rows.jsonl --batch 2`;
const EVAL = `eval --model ${TINY} --data ${DATA} --tasks arc_easy,gsm8k --limit 8 ` +
  "--max-tokens 24 --temperature 0.7 --n-samples 2";
const COMPARE = `compare --model ${PLAIN_MODEL} --parscale ${MODEL} --tasks gsm8k --shots 0 ` +
  `--data ${DATA} --limit 3 --max-tokens 6 --latency-rows 1`;

const digest = (path: string) => createHash("sha256").update(Deno.readFileSync(path)).digest("hex");

/** Digest of a file, or of all files of a folder but the lock, which names a process. */
const bytesOf = (path: string): unknown =>
  Deno.statSync(path).isDirectory
    ? names(path).filter((name) => name !== ".lock").map((
      name,
    ) => [name, bytesOf(`${path}/${name}`)])
    : digest(path);

/** Parts of an evaluation that must be equal. */
const evaluation = (path: string): unknown => [
  comparable(path),
  sortedLines(`${path}/samples.jsonl`),
];

interface Case {
  /** Command line, to be followed by the output. */
  readonly line: string;
  /** Parts of the result that must be equal; its bytes unless given. */
  readonly read?: (path: string) => unknown;
  /** Says that the result is there, for commands that refuse to replace it. */
  readonly isDone?: (path: string) => boolean;
}

const CASES: Readonly<Record<string, Case>> = {
  "generate --resume, lines": { line: `${GENERATE} --jsonl --resume -o` },
  "generate --resume, text of one prompt": {
    line: `generate --model ${MODEL} --prompt a --ignore-eos --max-tokens 200 --resume -o`,
  },
  "score --resume, csv": { line: `${SCORE} --format=csv --resume -o` },
  "eval --resume": { line: `${EVAL} --resume --out`, read: evaluation },
  "eval without --resume": { line: `${EVAL} --out`, read: evaluation },
  "compare": {
    line: `${COMPARE} --out`,
    read: (path) => names(path).map((name) => [name, evaluation(`${path}/${name}`)]),
  },
  "convert --streams": { line: `convert --model ${PLAIN_MODEL} -P 8 --out`, isDone: exists },
  "convert --quantize": { line: `convert --model ${MODEL4} --quantize q8 --out`, isDone: exists },
  "export": {
    line: `export --model ${MODEL} --onnx --capacity 128 --tokens 16 --out`,
    isDone: exists,
  },
};

let seed = 0;
for (const [name, { line, read = bytesOf, isDone }] of Object.entries(CASES)) {
  const own = ++seed;
  Deno.test(`${name}: killed at random and repeated until it exits with 0`, () =>
    withScratch(async (cwd) => {
      await Deno.writeTextFile(`${cwd}/in.jsonl`, jsonLines(...PROMPTS));
      await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...LONG));
      const inputs = names(cwd), out = `${cwd}/out`;
      const began = performance.now();
      const whole = await runProcess(`${line} out`, { cwd });
      assertEquals(whole.code, 0, whole.stderr);
      const longest = Math.round(performance.now() - began);
      const expected = read(out);
      for (let kills = 0, round = 0; kills < KILLS; round++) {
        await Deno.remove(out, { recursive: true });
        await untilDone(`${line} out`, {
          ...{ cwd, longest, seed: 100 * own + round },
          onKill: () => Promise.resolve(void kills++),
          isDone: isDone && (() => isDone(out)),
        });
        const kept = names(cwd).filter((name) => name !== ".out.resume");
        assertEquals(kept, [...inputs, "out"].sort());
        assertEquals(read(out), expected, `round ${round}`);
      }
      if (isDone) return;
      const files = bytesOf(out);
      const { code, stderr } = await runProcess(`${line} out`, { cwd });
      assertEquals(code, 0, stderr);
      if (/--resume/.test(line)) assertStringIncludes(stderr, '"out" is complete');
      if (name !== "compare") assertEquals(bytesOf(out), files);
    }));
}
