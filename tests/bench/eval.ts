/**
 * Evaluation: shared prefixes against a loop over sequences, and the grading of saved answers.
 *
 *   deno run -A tests/bench/eval.ts --data DATA_FOLDER --tokenizer MODEL_FOLDER
 *       [--tasks mmlu,arc_easy] [--rows 200] [--alone 2] [--streams 1] [--threads 2] [--rounds 3]
 *
 * A model of Qwen2.5-0.5B's shape with random weights scores the choices of `rows` rows as `eval` does.
 * Beside it, in turn, `alone` rows are scored by a loop of one `score` per choice, which shares nothing;
 * their time per row is what the ratio is against, since all rows would take hours. Then 10,000 saved
 * GSM8K answers are read and graded.
 */
import { parseArgs } from "@std/cli/parse-args";
import { readTaskData } from "../../core/eval/harness/data_folder.ts";
import {
  documentsOf,
  type LikelihoodRequest,
  requestsOf,
} from "../../core/eval/harness/documents.ts";
import { RequestEncoder } from "../../core/eval/harness/encode.ts";
import { taskOf } from "../../core/eval/tasks/mod.ts";
import { Engine } from "../../core/generate/engine.ts";
import { scoreBatch } from "../../core/generate/score.ts";
import { type ScoreSet, scoreSets } from "../../core/generate/score_sets.ts";
import { CpuDevice } from "../../core/runtime/onnxruntime/cpu.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { main } from "../../cli/main.ts";
import { Io, processSystem } from "../../cli/output/io.ts";
import { qwen05b, randomWeights } from "./random_model.ts";

const flags = parseArgs(Deno.args, {
  string: ["data", "tokenizer", "tasks", "rows", "alone", "streams", "threads", "rounds"],
  default: {
    tasks: "mmlu,arc_easy",
    rows: "200",
    alone: "2",
    streams: "1",
    threads: "2",
    rounds: "3",
  },
});
if (!flags.data || !flags.tokenizer) throw new Error("pass --data and --tokenizer");

const seconds = async (work: () => Promise<void>) => {
  const began = performance.now();
  await work();
  return (performance.now() - began) / 1000;
};

async function setsOf(name: string): Promise<ScoreSet[]> {
  const task = taskOf(name)!;
  const tokenizer = await openTokenizer(flags.tokenizer!);
  const encoder = new RequestEncoder({ tokenizer, maxLength: 32768, startToken: undefined });
  const data = await readTaskData(task, flags.data!, task.shots.count);
  const documents = [...documentsOf(task, data, { limit: Number(flags.rows) })];
  return await Promise.all(
    documents.map(async (document) =>
      encoder.pairs(await requestsOf(document) as LikelihoodRequest[])
    ),
  );
}

async function compareScoring(): Promise<void> {
  const config = qwen05b(Number(flags.streams));
  const device = new CpuDevice({ threads: Number(flags.threads) });
  const engine = new Engine(device, config, randomWeights(config, "qwen05b"));
  for (const name of flags.tasks.split(",")) {
    const sets = await setsOf(name);
    const lengths = sets.flatMap((set) => set.map(({ tokens }) => tokens.length));
    const tokens = lengths.reduce((a, b) => a + b, 0) / lengths.length;
    await scoreBatch(engine, [sets[0]![0]!]); // builds the session
    // Half of the loop before, half after, so that a machine that changes its speed shows.
    const alone = Number(flags.alone);
    const loop = () =>
      seconds(async () => {
        for (let i = 0; i < alone; i++) {
          for (const request of sets[(i * 37) % sets.length]!) await scoreBatch(engine, [request]);
        }
      });
    const before = await loop();
    const together = await seconds(async () => {
      for await (const _ of scoreSets(engine, sets, { batch: 16 }));
    });
    const after = await loop();
    const perRow = (before + after) / 2 / alone;
    console.log(
      `${name}: ${sets.length} rows of ${tokens.toFixed(0)} tokens a choice in ` +
        `${together.toFixed(1)} s; alone ${perRow.toFixed(2)} s a row (${before.toFixed(1)} s ` +
        `before, ${after.toFixed(1)} s after); ${(perRow * sets.length / together).toFixed(1)}x`,
    );
  }
  device.close();
}

/** The whole command, from file to table. */
async function gradeSaved(): Promise<void> {
  const { rows } = await readTaskData(taskOf("gsm8k")!, flags.data!, 0);
  const lines = Array.from({ length: 10_000 }, (_, n) => {
    const [doc_id, sample] = [n % rows.length, Math.floor(n / rows.length)];
    const text = n % 3 === 0 ? " I think it is 3." : ` ${rows[doc_id]!.text("answer")}`;
    return JSON.stringify({ task: "gsm8k", doc_id, sample, text });
  });
  const path = await Deno.makeTempFile();
  await Deno.writeTextFile(path, lines.join("\n"));
  const system = { ...processSystem(), write: () => {} };
  const args = ["eval", "--score", path, "--tasks", "gsm8k", "--data", flags.data!];
  const times: number[] = [];
  for (let round = 0; round < Number(flags.rounds); round++) {
    times.push(await seconds(async () => void await main(args, new Io(system))));
  }
  console.log(`10,000 GSM8K answers graded in ${times.map((t) => t.toFixed(2)).join(", ")} s`);
  await Deno.remove(path);
}

await gradeSaved();
await compareScoring();
