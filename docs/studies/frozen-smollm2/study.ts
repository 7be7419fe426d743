/**
 * Trains and scores the arms of the study of a frozen model: `deno task frozen CORPUS RUNS MODEL`.
 *
 * CORPUS is the folder that `deno task frozen-corpus` writes, MODEL the GGUF file of
 * SmolLM2-135M-Instruct. An arm is a call of `parscale train` and of `parscale score`, as a user would
 * make them. What is finished is skipped and an unfinished arm resumed, so that the task can be stopped
 * and started at any time. Each finished arm leaves `ID.json` in `results`, which `report.ts` reads.
 */
import { fileURLToPath } from "node:url";
import { runParscale } from "../small-law/grid.ts";

const RESULTS = fileURLToPath(new URL("results", import.meta.url));

/** Rows of 512 tokens, four a step: 74 steps are 151,552 tokens. */
const DATA = { seqLen: 512, batch: 4, tokens: 150_000, rateTokens: 50_000 };
/** Held-out data of the corpus; validation only chooses rates. */
const HELD_OUT = ["validation", "python", "english"] as const;

/** Parameters trained over the frozen model. */
export interface Arm {
  readonly label: string;
  /** Flags of `train` beside those that all arms share; undefined for the untouched model. */
  readonly flags?: Readonly<Record<string, string | number>>;
  /** Rates to choose from, for what the arm adds; one is taken as it is. */
  readonly rates: readonly number[];
  /** Factor of the number of tokens. */
  readonly repeats?: number;
  readonly seeds: number;
}

const PREFIX_RATES = [0.003, 0.01, 0.03];
const ONE = { streams: 1, transform: "prefix" };

/** All arms, the comparison that matters first. */
export const ARMS: Readonly<Record<string, Arm>> = {
  untouched: { label: "untouched model", rates: [], seeds: 1 },
  p1: {
    label: "P=1, prefix of 48",
    flags: { ...ONE, "prefix-tokens": 48 },
    rates: PREFIX_RATES,
    seeds: 3,
  },
  p4: { label: "P=4", flags: { streams: 4, "prefix-tokens": 48 }, rates: PREFIX_RATES, seeds: 3 },
  "p1-307": {
    label: "P=1, prefix of 307 (parameters of P=4)",
    flags: { ...ONE, "prefix-tokens": 307 },
    rates: PREFIX_RATES,
    seeds: 3,
  },
  "p1-lora": {
    label: "P=1, LoRA of rank 12 (parameters of P=4)",
    flags: { streams: 1, transform: "lora", "lora-rank": 12 },
    rates: [0.0003, 0.001, 0.003],
    seeds: 1,
  },
  "p4-fixed": {
    label: "P=4, prefixes as they start, aggregator trained",
    flags: { streams: 4, "prefix-tokens": 48 },
    rates: [0],
    seeds: 1,
  },
  "p1-compute": {
    label: "P=1, prefix of 48, four times the tokens",
    flags: { ...ONE, "prefix-tokens": 48 },
    rates: PREFIX_RATES,
    repeats: 4,
    seeds: 1,
  },
  "p4-average": {
    label: "P=4, equal weights",
    flags: { streams: 4, "prefix-tokens": 48, aggregation: "average" },
    rates: PREFIX_RATES,
    seeds: 1,
  },
  p2: { label: "P=2", flags: { streams: 2, "prefix-tokens": 48 }, rates: PREFIX_RATES, seeds: 1 },
};

/** Arms that take the rate another one chose. */
const RATE_OF: Readonly<Record<string, string>> = {
  "p1-compute": "p1",
  "p4-average": "p4",
  p2: "p4",
};

/** Outcome of one arm with one seed: what `results/ID.json` holds. */
export interface Outcome {
  readonly arm: string;
  readonly seed: number;
  /** Peak learning rate of what the arm adds. */
  readonly rate: number | null;
  readonly tokens: number;
  readonly trainedParams: number;
  /** Per file of held-out data and document: its tokens and the sum of their losses in nats. */
  readonly losses: Readonly<
    Record<string, readonly (Total & { readonly id: string })[]>
  >;
}

/** Tokens of some documents, and the sum of their losses in nats. */
export interface Total {
  readonly tokens: number;
  readonly nats: number;
}

/** Nats per token of all documents together. */
export function lossOf(documents: readonly Total[]): number {
  let tokens = 0, nats = 0;
  for (const document of documents) {
    tokens += document.tokens;
    nats += document.nats;
  }
  return nats / tokens;
}

/** Paths. */
interface Folders {
  readonly corpus: string;
  readonly runs: string;
  readonly model: string;
}

/** One training run: an arm, and what differs between its runs. */
interface Run {
  readonly arm: string;
  readonly seed: number;
  readonly rate: number;
  readonly tokens: number;
  readonly out: string;
}

/** The command line of a run. */
export function trainArguments(run: Run, { corpus, model }: Folders): string[] {
  const flags: Record<string, string | number> = {
    model,
    ...ARMS[run.arm]!.flags,
    "train-params": "introduced",
    data: `${corpus}/train.jsonl`,
    "seq-len": DATA.seqLen,
    batch: DATA.batch,
    "micro-batch": 1,
    tokens: run.tokens,
    lr: 0.001,
    "lr-prefix": run.rate,
    "lr-aggregator": 0.001,
    "lr-min": 0.0001,
    "weight-decay": 0,
    seed: run.seed,
    "save-every": 5,
    keep: 1,
    "save-dtype": "f32",
    out: run.out,
  };
  return ["train", ...Object.entries(flags).flatMap(([name, value]) => [`--${name}`, `${value}`])];
}

export const exists = (path: string) => Deno.stat(path).then(() => true, () => false);

/** Runs a command to its end; its progress stays on the terminal. */
export async function parscale(args: readonly string[]): Promise<void> {
  if (!await runParscale(args)) throw new Error(`parscale ${args.join(" ")} has failed`);
}

/** Trains a run, or continues with it. */
async function train(run: Run, folders: Folders): Promise<void> {
  if (await exists(`${run.out}.done`)) return;
  const resumes = await exists(`${run.out}/last`);
  await parscale(
    resumes
      ? ["train", "--resume", "--out", run.out]
      : [...trainArguments(run, folders), "--overwrite"],
  );
  await Deno.writeTextFile(`${run.out}.done`, "");
}

/** Losses of the documents of one held-out file, computed once for a run. */
async function score(file: string, adapter: string | undefined, id: string, folders: Folders) {
  const out = `${folders.runs}/${id}-${file}.scores.jsonl`;
  if (!await exists(out)) {
    const rows = `${folders.runs}/${file}.rows.jsonl`;
    const texts = (await Deno.readTextFile(`${folders.corpus}/${file}.jsonl`)).trim().split("\n");
    await Deno.writeTextFile(
      rows,
      texts.map((line) => JSON.parse(line) as { id: string; text: string })
        .map(({ id, text }) => `${JSON.stringify({ id, text })}\n`).join(
          "",
        ),
    );
    const args = ["score", rows, "--model", folders.model, "--quantize", "none", "--batch", "2"];
    const into = ["--jsonl", "--out", out, "--overwrite"];
    await parscale([...args, ...into, ...(adapter ? ["--adapter", adapter] : [])]);
  }
  const rows = (await Deno.readTextFile(out)).trim().split("\n").map((line) => JSON.parse(line));
  return rows.map(({ id, tokens, loglikelihood }) => ({
    id: (id as string).slice(0, 8),
    tokens: tokens.length as number,
    nats: Math.round(-loglikelihood * 1e4) / 1e4,
  }));
}

/** The rate of an arm with the lowest loss on validation documents after a third of the tokens. */
async function chooseRate(name: string, folders: Folders): Promise<number> {
  const arm = RATE_OF[name] ?? name, { rates } = ARMS[arm]!;
  if (rates.length === 1) return rates[0]!;
  const result = `${RESULTS}/rate-${arm}.json`;
  if (!await exists(result)) {
    const losses: Record<number, number> = {};
    for (const rate of rates) {
      const id = `rate-${arm}-${rate}`, out = `${folders.runs}/${id}`;
      await train({ arm, seed: 0, rate, tokens: DATA.rateTokens, out }, folders);
      losses[rate] = lossOf(await score("validation", out, id, folders));
    }
    await Deno.writeTextFile(result, `${JSON.stringify(losses)}\n`);
  }
  const losses: Record<number, number> = JSON.parse(await Deno.readTextFile(result));
  return rates.reduce((best, rate) => losses[rate]! < losses[best]! ? rate : best);
}

/** Trains and scores one arm with one seed. */
async function runArm(arm: string, seed: number, folders: Folders): Promise<void> {
  const id = `${arm}-${seed}`,
    result = `${RESULTS}/${id}.json`,
    { flags, repeats = 1 } = ARMS[arm]!;
  if (await exists(result)) return;
  const tokens = flags ? repeats * DATA.tokens : 0, out = `${folders.runs}/${id}`;
  const rate = flags ? await chooseRate(arm, folders) : null;
  if (rate !== null) await train({ arm, seed, rate, tokens, out }, folders);
  const losses: Record<string, Awaited<ReturnType<typeof score>>> = {};
  for (const file of HELD_OUT) {
    losses[file] = await score(file, flags && out, id, folders);
  }
  const trainedParams = flags
    ? JSON.parse(await Deno.readTextFile(`${out}/config.json`)).trained_params
    : 0;
  const outcome: Outcome = { arm, seed, rate, tokens, trainedParams, losses };
  await Deno.writeTextFile(result, `${JSON.stringify(outcome)}\n`);
}

if (import.meta.main) {
  const [corpus, runs, model] = Deno.args;
  if (!corpus || !runs || !model) throw new Error("usage: deno task frozen CORPUS RUNS MODEL");
  await Deno.mkdir(runs, { recursive: true });
  await Deno.mkdir(RESULTS, { recursive: true });
  // What the criteria compare comes first: the arms with several seeds, seed by seed.
  const planned = Object.entries(ARMS).flatMap(([name, { seeds }]) =>
    Array.from({ length: seeds }, (_, seed) => ({ name, seeds, seed }))
  ).sort((a, b) => b.seeds - a.seeds || a.seed - b.seed);
  for (const { name, seed } of planned) await runArm(name, seed, { corpus, runs, model });
}
