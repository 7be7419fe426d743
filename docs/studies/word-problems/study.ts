/**
 * `deno task study`: the table of what streams do for a small trained model that meets a shift.
 *
 * The backbone has learnt problems of one and two steps; the data now has mostly three. Only prefixes
 * and aggregator are trained, on answers, and the loss on answers of held-out problems is compared:
 * not only with no training, but with a single stream that has a prefix, one that has as many
 * parameters as two streams, and one that gets the compute of four. Every arm is a call of
 * `parscale train`, as a user would make it.
 */
import { fileURLToPath } from "node:url";
import { main } from "../../../cli/main.ts";
import { Io, processSystem } from "../../../cli/output/io.ts";
import { columnsOf, plainTable } from "../../../cli/output/table.ts";
import { writeWordProblems } from "../../../fixtures/word_problems/write.ts";

const MODEL = fileURLToPath(new URL("../../../fixtures/models/word-problems", import.meta.url));
const SEEDS = 3;
/** Held-out problems. */
const ROWS = 250;

/** One way to spend parameters and compute. */
export interface Arm {
  readonly label: string;
  /** 0 for the model as it is. */
  readonly streams: number;
  readonly prefixTokens: number;
  /** Factor of the number of steps. */
  readonly steps: number;
}

const PREFIX = 16;

export const ARMS: readonly Arm[] = [
  { label: "as it is", streams: 0, prefixTokens: 0, steps: 0 },
  { label: "P=1, prefix only", streams: 1, prefixTokens: PREFIX, steps: 1 },
  { label: "P=1, parameters of P=2", streams: 1, prefixTokens: 96, steps: 1 },
  { label: "P=2", streams: 2, prefixTokens: PREFIX, steps: 1 },
  { label: "P=4", streams: 4, prefixTokens: PREFIX, steps: 1 },
  { label: "P=1, compute of P=4", streams: 1, prefixTokens: PREFIX, steps: 4 },
];

/** Paths and sizes. */
export interface StudyOptions {
  readonly model: string;
  /** Folder written by `write.ts`. */
  readonly data: string;
  /** Folder for the runs. */
  readonly runs: string;
  readonly steps: number;
  /** Held-out rows as prompts and completions. */
  readonly held: string;
}

/** Outcome of one arm with one seed. */
interface Outcome {
  readonly arm: Arm;
  readonly trainedParams: number;
  /** Held-out loss on answers, in nats per token. */
  readonly loss: number;
  /** Share of held-out problems whose final number is right, by greedy decoding. */
  readonly exactMatch: number;
}

/** The command line of an arm. */
export function trainArguments(arm: Arm, seed: number, options: StudyOptions): string[] {
  const out = `${options.runs}/${arm.label.replace(/[^\w]+/g, "-")}-${seed}`;
  const common = [
    "train",
    ...["--model", options.model, "--data", `${options.data}/shifted.jsonl`],
    ...["--eval-data", options.held, "--seq-len", "192", "--batch", "8"],
    ...["--seed", String(seed), "--out", out],
  ];
  // Nothing moves at a rate of 0: the loss of the model as it is.
  if (arm.streams === 0) return [...common, "--steps", "1", "--lr", "0", "--warmup", "0"];
  const transform = arm.streams === 1 ? ["--transform", "prefix"] : [];
  return [
    ...common,
    ...["--streams", String(arm.streams), "--prefix-tokens", String(arm.prefixTokens)],
    ...["--prefix-init", "normal"],
    ...transform,
    ...["--train-params", "introduced", "--smoothing", "0.1"],
    ...["--lr", "0.01", "--lr-prefix", "1", "--lr-aggregator", "0.01", "--lr-min", "0.0003"],
    ...["--warmup", "10", "--steps", String(arm.steps * options.steps)],
    ...["--eval-every", "100000", "--save-every", "100000"],
  ];
}

/** Runs a command and returns what it writes to stdout; its progress stays on the terminal. */
async function outputOf(args: readonly string[], stdin = ""): Promise<string> {
  let text = "";
  const system = processSystem();
  const code = await main(
    args,
    new Io({
      ...system,
      stdin: () => new Blob([stdin]).stream(),
      isTerminal: (stream) => stream === "stderr" && system.isTerminal(stream),
      write(stream, bytes) {
        if (stream === "stdout") text += new TextDecoder().decode(bytes);
        else system.write(stream, bytes);
      },
    }),
  );
  if (code !== 0) throw new Error(`parscale ${args.join(" ")} ended with ${code}`);
  return text;
}

async function runArm(arm: Arm, seed: number, options: StudyOptions): Promise<Outcome> {
  const args = trainArguments(arm, seed, options);
  const { results } = JSON.parse(await outputOf([...args, "--json"]));
  const run = args[args.indexOf("--out") + 1]!;
  const config = JSON.parse(Deno.readTextFileSync(`${run}/config.json`));
  return {
    arm,
    trainedParams: arm.streams === 0 ? 0 : config.trained_params,
    loss: results.eval_loss,
    exactMatch: await exactMatch(arm.streams === 0 ? [] : ["--adapter", run], options),
  };
}

async function exactMatch(adapter: readonly string[], options: StudyOptions): Promise<number> {
  const rows = Deno.readTextFileSync(options.held).trim().split("\n")
    .map((line) => JSON.parse(line) as { prompt: string; answer: string });
  const prompts = rows.map(({ prompt }) => JSON.stringify({ prompt })).join("\n");
  const args = ["generate", "--model", options.model, ...adapter, "--jsonl"];
  const text = await outputOf([...args, "--max-tokens", "110", "--batch", "32"], prompts);
  const final = (answer: string) => /#### (-?\d+)/.exec(answer)?.[1];
  const answers = text.trim().split("\n").map((line): string => JSON.parse(line).text);
  const right = answers.filter((answer, i) => final(answer) === final(rows[i]!.answer));
  return right.length / rows.length;
}

/** Rows of the table, one per arm: means over seeds, with all values where there are several. */
function summarise(outcomes: readonly Outcome[]): Record<string, unknown>[] {
  const of = (arm: Arm) => outcomes.filter((outcome) => outcome.arm === arm);
  const mean = (arm: Arm) => of(arm).reduce((sum, { loss }) => sum + loss, 0) / of(arm).length;
  const control = ARMS[1]!;
  return ARMS.map((arm) => {
    const own = of(arm), change = 100 * (mean(arm) / mean(control) - 1);
    return {
      arm: arm.label,
      trained: own[0]!.trainedParams,
      loss: mean(arm).toFixed(3),
      seeds: own.map(({ loss }) => loss.toFixed(3)).join(" "),
      change: arm === control ? "" : `${change > 0 ? "+" : "−"}${Math.abs(change).toFixed(0)}%`,
      "exact match": own.map(({ exactMatch }) => exactMatch.toFixed(2)).join(" "),
    };
  });
}

if (import.meta.main) {
  const folder = Deno.makeTempDirSync({ prefix: "parscale-study-" });
  const options = {
    model: MODEL,
    data: `${folder}/data`,
    runs: `${folder}/runs`,
    steps: 120,
    held: `${folder}/held.jsonl`,
  };
  await writeWordProblems(options.data, 30_000);
  // Rows with names the model knows: the loss of unknown names would drown the rest.
  const known = Deno.readTextFileSync(`${options.data}/test.jsonl`).trim().split("\n")
    .filter((row) => !(JSON.parse(row) as { held_out_name: boolean }).held_out_name);
  Deno.writeTextFileSync(options.held, known.slice(0, ROWS).join("\n"));
  const outcomes: Outcome[] = [];
  for (let seed = 0; seed < SEEDS; seed++) {
    for (const arm of ARMS) {
      // Nothing in the model as it is depends on the seed.
      if (arm.streams > 0 || seed === 0) outcomes.push(await runArm(arm, seed, options));
    }
  }
  const rows = summarise(outcomes);
  console.log(plainTable(columnsOf(rows), rows));
  Deno.removeSync(folder, { recursive: true });
}
