/**
 * Runs the study of Qwen on HumanEval: `deno task qwen-humaneval CORPUS RUNS MODEL DATA`.
 *
 * CORPUS is the folder that `deno task qwen-corpus` writes, MODEL the GGUF file of
 * Qwen2.5-Coder-0.5B-Instruct in Q4_K_M, DATA a folder with HumanEval and HumanEval+. Arms are trained by
 * `parscale train`, scored by `parscale score` and answer in one `parscale compare`, as a user would call
 * them. What is finished is skipped and what is not continues, so that the task can be stopped and started.
 * Writes `losses.json`, `answers.json` and `passes.json` into `results`, which `report.ts` reads.
 */
import { fileURLToPath } from "node:url";
import { parseScores, SCORES } from "../../../core/eval/harness/eval_folder.ts";
import { exists, parscale, type Total } from "../frozen-smollm2/study.ts";
import { ENTRY } from "../small-law/grid.ts";

export const RESULTS = fileURLToPath(new URL("results", import.meta.url));

/** Flags of the parts trained over the frozen model, by the names that `compare` gives in this order. */
const ARMS: Readonly<Record<string, string>> = {
  "parscale-1": "--streams 1 --transform prefix",
  "parscale-2": "--streams 1 --transform lora --lora-rank 8",
  "parscale-3": "--streams 4",
};

/** All methods, by the names that `compare` gives. */
export const LABELS: Readonly<Record<string, string>> = {
  p1: "source",
  "beams-2": "source, 2 beams",
  "beams-4": "source, 4 beams",
  "parscale-1": "P=1, prefix of 48",
  "parscale-2": "P=1, LoRA of rank 8 (parameters of P=4)",
  "parscale-3": "P=4, prefixes of 48",
};

/** Passed problems, 1 or 0 each: those of HumanEval, and those that also pass the tests of HumanEval+. */
export interface Passes {
  readonly base: readonly number[];
  readonly plus: readonly number[];
}

/** 30 steps of 2,048 tokens; rates are those that `train` chose at the time. */
const TRAIN =
  "--train-params introduced --lr-aggregator 0.001 --seq-len 512 --batch 4 --micro-batch 1 --tokens 60000 " +
  "--seed 0 --save-every 5 --keep 1";

/** Paths. */
interface Folders {
  readonly corpus: string;
  readonly runs: string;
  readonly model: string;
  readonly data: string;
}

/** Trains an arm, or continues with it. */
async function train(arm: string, { corpus, runs, model }: Folders): Promise<void> {
  const out = `${runs}/${arm}`;
  if (await exists(`${out}.done`)) return;
  const data = ["--model", model, "--data", `${corpus}/train.jsonl`, "--out", out, "--overwrite"];
  const fresh = [...ARMS[arm]!.split(" "), ...TRAIN.split(" "), ...data];
  const resumes = await exists(`${out}/last`);
  await parscale(["train", ...(resumes ? ["--resume", "--out", out] : fresh)]);
  await Deno.writeTextFile(`${out}.done`, "");
}

/** Losses of the held-out functions, computed once. */
async function score(method: string, { corpus, runs, model }: Folders): Promise<Total[]> {
  const out = `${runs}/${method}.scores.jsonl`;
  if (!await exists(out)) {
    const adapter = method in ARMS ? ["--adapter", `${runs}/${method}`] : [];
    const rows = ["score", `${corpus}/held_out.jsonl`, "--model", model, "--quantize", "none"];
    await parscale([...rows, ...adapter, "--jsonl", "--out", out]);
  }
  const lines = (await Deno.readTextFile(out)).trim().split("\n").map((line) => JSON.parse(line));
  return lines.map(({ tokens, loglikelihood }) => ({
    tokens: tokens.length,
    nats: -loglikelihood,
  }));
}

/** Answers by all methods, in folders that a later call continues with; the results are those of compare. */
async function answer({ runs, model, data }: Folders): Promise<Record<string, Passes>> {
  const out = `${runs}/compare`, arms = Object.keys(ARMS);
  const models = ["--model", model, ...arms.flatMap((arm) => ["--parscale", `${runs}/${arm}`])];
  const task = ["--tasks", "humaneval", "--data", data, "--allow-code-execution"];
  const args = ["run", "-A", ENTRY, "compare", ...models, "--beams", "2,4", ...task, "--out", out];
  const command = new Deno.Command(Deno.execPath(), {
    args: [...args, "--json"],
    stderr: "inherit",
  });
  const { code, stdout } = await command.output();
  // 1 says that a method is worse than the first.
  if (code > 1) throw new Error("parscale compare has failed");
  const { results } = JSON.parse(new TextDecoder().decode(stdout));
  await Deno.writeTextFile(`${RESULTS}/answers.json`, `${JSON.stringify(results, null, 2)}\n`);
  const passes = Object.keys(LABELS).map((method) => [method, passesOf(`${out}/${method}`)]);
  return Object.fromEntries(passes);
}

/** Passes of a finished evaluation, problem by problem. */
export function passesOf(folder: string): Passes {
  const path = `${folder}/${SCORES}`;
  const scores = parseScores(Deno.readTextFileSync(path), path).sort((a, b) => a.doc_id - b.doc_id);
  const metric = (name: string) => scores.map(({ metrics }) => Number(metrics[name]));
  return { base: metric("pass@1"), plus: metric("plus_pass@1") };
}

if (import.meta.main) {
  const [corpus, runs, model, data] = Deno.args;
  if (!corpus || !runs || !model || !data) {
    throw new Error("usage: deno task qwen-humaneval CORPUS RUNS MODEL DATA");
  }
  const folders = { corpus, runs, model, data };
  for (const folder of [runs, RESULTS]) await Deno.mkdir(folder, { recursive: true });
  const losses: Record<string, Total[]> = { p1: await score("p1", folders) };
  for (const arm of Object.keys(ARMS)) {
    await train(arm, folders);
    losses[arm] = await score(arm, folders);
  }
  await Deno.writeTextFile(`${RESULTS}/losses.json`, `${JSON.stringify(losses)}\n`);
  const passes = await answer(folders);
  await Deno.writeTextFile(`${RESULTS}/passes.json`, `${JSON.stringify(passes)}\n`);
}
