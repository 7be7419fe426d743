/**
 * Runs the study of Qwen on HumanEval: `deno task qwen-humaneval CORPUS RUNS MODEL DATA`.
 *
 * CORPUS is the folder that `deno task qwen-corpus` writes, MODEL the GGUF file of
 * Qwen2.5-Coder-0.5B-Instruct in Q4_K_M, DATA a folder with HumanEval and HumanEval+. Arms are trained by
 * `parscale train`, scored by `parscale score` and answer in one `parscale compare`, as a user would call
 * them. What is finished is skipped and what is not continues, so that the task can be stopped and started.
 * Writes `losses.json`, `answers.json`, `parameters.json` and `beams.json` into `results`, and prints the losses.
 */
import { fileURLToPath } from "node:url";
import { columnsOf, plainTable } from "../../../cli/output/table.ts";
import { bootstrapDifference } from "../frozen-smollm2/report.ts";
import { exists, lossOf, parscale, type Total } from "../frozen-smollm2/study.ts";
import { ENTRY } from "../small-law/grid.ts";

const RESULTS = fileURLToPath(new URL("results", import.meta.url));

/** Parts trained over the frozen model, by the names that `compare` gives in this order. */
const ARMS: Readonly<Record<string, { readonly label: string; readonly flags: string }>> = {
  "parscale-1": { label: "P=1, prefix of 48", flags: "--streams 1 --transform prefix" },
  "parscale-2": {
    label: "P=1, LoRA of rank 8 (parameters of P=4)",
    flags: "--streams 1 --transform lora --lora-rank 8",
  },
  "parscale-3": { label: "P=4, prefixes of 48", flags: "--streams 4" },
};

/** 30 steps of 2,048 tokens; rates are those that `train` chooses. */
const TRAIN = "--train-params introduced --seq-len 512 --batch 4 --micro-batch 1 --tokens 60000 " +
  "--seed 0 --save-every 5 --keep 1";

const BEAMS = "2,4";

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
  const fresh = [...ARMS[arm]!.flags.split(" "), ...TRAIN.split(" "), ...data];
  const resumes = await exists(`${out}/last`);
  await parscale(["train", ...(resumes ? ["--resume", "--out", out] : fresh)]);
  await Deno.writeTextFile(`${out}.done`, "");
}

/** Losses of the held-out functions, computed once. */
async function score(arm: string | undefined, { corpus, runs, model }: Folders): Promise<Total[]> {
  const out = `${runs}/${arm ?? "source"}.scores.jsonl`;
  if (!await exists(out)) {
    const adapter = arm === undefined ? [] : ["--adapter", `${runs}/${arm}`];
    const rows = ["score", `${corpus}/held_out.jsonl`, "--model", model, "--quantize", "none"];
    await parscale([...rows, ...adapter, "--jsonl", "--out", out]);
  }
  const lines = (await Deno.readTextFile(out)).trim().split("\n").map((line) => JSON.parse(line));
  return lines.map(({ tokens, loglikelihood }) => ({
    tokens: tokens.length,
    nats: -loglikelihood,
  }));
}

/** Compares, and keeps the document; a method may be worse than the first. */
async function compare(name: string, ...args: readonly string[]): Promise<void> {
  const line = ["run", "-A", ENTRY, "compare", ...args, "--json"];
  const { code, stdout } = await new Deno.Command(Deno.execPath(), {
    args: line,
    stderr: "inherit",
  })
    .output();
  if (code > 1) throw new Error(`parscale compare ${args.join(" ")} has failed`);
  await Deno.writeFile(`${RESULTS}/${name}.json`, stdout);
}

/** The answers of all methods, in folders that a later call continues with; then P=4 beside criteria 1 and 2. */
async function answer({ runs, model, data }: Folders): Promise<void> {
  const arms = Object.keys(ARMS).flatMap((arm) => ["--parscale", `${runs}/${arm}`]);
  const task = ["--tasks", "humaneval", "--data", data, "--allow-code-execution"];
  const out = `${runs}/compare`;
  await compare("answers", "--model", model, ...arms, "--beams", BEAMS, ...task, "--out", out);
  await compare("parameters", `${out}/parscale-2`, `${out}/parscale-3`);
  await compare("beams", `${out}/beams-4`, `${out}/parscale-3`);
}

if (import.meta.main) {
  const [corpus, runs, model, data] = Deno.args;
  if (!corpus || !runs || !model || !data) {
    throw new Error("usage: deno task qwen-humaneval CORPUS RUNS MODEL DATA");
  }
  const folders = { corpus, runs, model, data };
  for (const folder of [runs, RESULTS]) await Deno.mkdir(folder, { recursive: true });
  const losses: Record<string, Total[]> = { source: await score(undefined, folders) };
  for (const arm of Object.keys(ARMS)) {
    await train(arm, folders);
    losses[arm] = await score(arm, folders);
  }
  await Deno.writeTextFile(`${RESULTS}/losses.json`, `${JSON.stringify(losses)}\n`);
  const rows = Object.entries(losses).map(([arm, documents]) => {
    const minus = losses.source!.map(({ nats }, i) => ({
      tokens: documents[i]!.tokens,
      nats: documents[i]!.nats - nats,
    }));
    const [change, low, high] = bootstrapDifference(minus).map((x) => x.toFixed(4));
    return { arm: ARMS[arm]?.label ?? arm, loss: lossOf(documents).toFixed(4), change, low, high };
  });
  console.log(plainTable(columnsOf(rows), rows));
  await answer(folders);
}
