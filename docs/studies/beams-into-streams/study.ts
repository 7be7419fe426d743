/**
 * Runs the study of beams into streams: `deno task distil RUNS MODEL DATA PROBLEMS CORPUS`.
 *
 * MODEL is the GGUF file of Qwen2.5-Coder-0.5B-Instruct in Q4_K_M, DATA a folder with HumanEval(+) and MBPP+,
 * PROBLEMS the folder of `deno task distil-problems`, CORPUS that of `deno task qwen-corpus`. Every step is a
 * command of parscale, as a user would call it; what is finished is skipped and what is not continues, so that
 * the task can be stopped and started. The steps that the criteria need come first. Each leaves its numbers in
 * `results`, which `report.ts` reads.
 */
import { fileURLToPath } from "node:url";
import { completedFunction } from "../../../core/eval/harness/passing.ts";
import { cutAtStops } from "../../../core/eval/harness/predict.ts";
import { codeStops } from "../../../core/eval/tasks/code.ts";
import { exists, parscale, type Total } from "../frozen-smollm2/study.ts";
import { passesOf } from "../qwen-humaneval/study.ts";

export const RESULTS = fileURLToPath(new URL("results", import.meta.url));

/** Parts trained over the frozen model on rows of one of `ROWS`. */
interface Arm {
  readonly label: string;
  readonly flags: string;
  readonly rows: keyof typeof ROWS;
}

/** Answers of a model to the problems, and MBPP's own. */
const ROWS = {
  beams: "--num-beams 4",
  unverified: "",
  solutions: "",
  greedy: "",
  samples: "--n-samples 4 --temperature 0.8",
  second: "--num-beams 4",
  long: "",
} as const;

/** Fewest lines of the answers in the rows `long`. */
const LONG = 5;

const PREFIX = "--streams 1 --transform prefix";
const LORA = "--streams 1 --transform lora --lora-rank 8";

export const ARMS: Readonly<Record<string, Arm>> = {
  p1: { label: "P=1, prefix of 48", flags: PREFIX, rows: "beams" },
  p4: { label: "P=4, prefixes of 48", flags: "--streams 4", rows: "beams" },
  lora: {
    label: "P=1, LoRA of rank 8 (parameters of P=4)",
    flags: LORA,
    rows: "beams",
  },
  p2: { label: "P=2, prefixes of 48", flags: "--streams 2", rows: "beams" },
  "p1-unverified": { label: "P=1, all answers", flags: PREFIX, rows: "unverified" },
  "p1-solutions": { label: "P=1, MBPP's solutions", flags: PREFIX, rows: "solutions" },
  "p1-greedy": { label: "P=1, greedy answers verified", flags: PREFIX, rows: "greedy" },
  "p1-samples": { label: "P=1, samples at 0.8 verified", flags: PREFIX, rows: "samples" },
  "p1-second": { label: "P=1, a second round", flags: PREFIX, rows: "second" },
  "p1-long": { label: "P=1, verified answers of 5 lines or more", flags: PREFIX, rows: "long" },
  "p4-long": { label: "P=4, the same", flags: "--streams 4", rows: "long" },
  "lora-long": { label: "P=1, LoRA of rank 8, the same", flags: LORA, rows: "long" },
};

/** Ways to decode the source, and the arms. */
export const LABELS: Readonly<Record<string, string>> = {
  source: "source",
  "source-2": "source, 2 beams",
  "source-4": "source, 4 beams",
  ...Object.fromEntries(Object.entries(ARMS).map(([name, { label }]) => [name, label])),
  "p1-4": "P=1, prefix of 48, 4 beams",
  "p4-4": "P=4, prefixes of 48, 4 beams",
};

/** Rates of prefixes that are tried; the first is what `train` chooses. */
const RATES = ["0.02", "0.005"];

/** Steps of two rows of 512 tokens. */
const TRAIN = "--train-params introduced --epochs 3 --seq-len 512 --batch 2 --micro-batch 1";

/** Benchmarks of the answers. */
export const BENCHMARKS = {
  direct: "--tasks humaneval",
  chat: "--tasks humaneval --chat",
  mbpp: "--tasks mbpp",
} as const;

export type Benchmark = keyof typeof BENCHMARKS;

/** The study in a folder of runs. */
class Study {
  /** Of prefixes. */
  rate = RATES[0]!;

  constructor(
    readonly runs: string,
    readonly model: string,
    readonly data: string,
    readonly problems: string,
    readonly corpus: string,
  ) {}

  /** Folder of an arm, or of what a method answered. */
  #folder(name: string, seed: number): string {
    return `${this.runs}/${name}-${seed}${name.startsWith("source") ? "" : `-${this.rate}`}`;
  }

  /** Flags that open the source, or a trained arm of a seed. */
  #open(arm: string, seed: number): string[] {
    return ["--model", arm in ARMS ? this.#folder(arm, seed) : this.model];
  }

  /** The file of training rows; those of a model are its answers. */
  async rows(name: keyof typeof ROWS): Promise<string> {
    const { runs, problems } = this, out = `${runs}/rows-${name}`;
    if (name === "solutions") return `${problems}/solutions.jsonl`;
    if (name === "unverified") return await this.#unverified(await this.rows("beams"));
    if (name === "long") {
      return await this.#long([await this.rows("beams"), await this.rows("samples")]);
    }
    const passing = `${out}/passing.jsonl`;
    if (await exists(passing)) return passing;
    const model = this.#open(name === "second" ? "p1" : "source", 0);
    const task = ["--tasks", `${problems}/problems.jsonl`, "--passing", "--allow-code-execution"];
    const flags = ROWS[name].split(" ").filter((flag) => flag !== "");
    const run = ["--max-tokens", "256", "--resume", "--out", out];
    await parscale(["eval", ...model, ...task, ...flags, ...run]);
    return passing;
  }

  /** All answers of an evaluation, right or wrong. */
  async #unverified(passing: string): Promise<string> {
    const problems = await readLines(`${this.problems}/problems.jsonl`);
    const samples = await readLines(passing.replace("passing.jsonl", "samples.jsonl"));
    const rows = samples.map(({ doc_id, text }) => ({
      prompt: `${problems[doc_id].prompt}\n`,
      completion: completedFunction(cutAtStops(text, codeStops("humaneval"))),
    }));
    return await writeLines(
      `${this.runs}/unverified.jsonl`,
      rows.map((row) => JSON.stringify(row)),
    );
  }

  /** The different long answers among rows. */
  async #long(paths: readonly string[]): Promise<string> {
    const rows = (await Promise.all(paths.map(readLines))).flat();
    const long = rows.filter(({ completion }) => completion.trimEnd().split("\n").length >= LONG);
    const different = new Set(long.map((row) => JSON.stringify(row)));
    return await writeLines(`${this.runs}/long.jsonl`, [...different]);
  }

  /** Trains an arm, or continues with it; keeps what its streams came to. */
  async train(name: string, seed = 0): Promise<void> {
    const arm = ARMS[name]!, out = this.#folder(name, seed);
    if (!await exists(`${out}.done`)) {
      const data = ["--data", await this.rows(arm.rows), "--seed", String(seed), "--out", out];
      const rate = arm.flags.includes("lora") ? [] : ["--lr-prefix", this.rate];
      const flags = [...arm.flags.split(" "), ...TRAIN.split(" "), ...rate, ...data];
      const resumes = await exists(`${out}/last`);
      const how = resumes ? ["--resume", "--out", out] : ["--model", this.model, ...flags];
      await parscale(["train", ...how, ...(resumes ? [] : ["--overwrite"])]);
      await Deno.writeTextFile(`${out}.done`, "");
    }
    const metrics = await readLines(`${out}/metrics.jsonl`);
    const { step, tokens, loss_ema, stream_weights } = metrics.at(-1);
    await keep("training", `${name}-${seed}`, { step, tokens, loss_ema, stream_weights });
  }

  /** Trains P=1 at every rate, and takes the rate that passes most validation problems. */
  async chooseRate(): Promise<void> {
    const passed: (readonly [rate: string, count: number])[] = [];
    for (const rate of RATES) {
      this.rate = rate;
      await this.train("p1");
      const tasks = ["--tasks", `${this.problems}/validation.jsonl`, "--max-tokens", "256"];
      const { base } = await this.#evaluate("p1", "validation", tasks, 0);
      await keep("validation", rate, base);
      passed.push([rate, base.reduce((sum, one) => sum + one, 0)]);
    }
    [this.rate] = passed.toSorted(([, a], [, b]) => b - a)[0]!;
  }

  /** Answers of a method to a benchmark, greedy or by beams. */
  async answer(method: string, benchmark: Benchmark, seed = 0): Promise<void> {
    const task = [...BENCHMARKS[benchmark].split(" "), "--data", this.data];
    const passes = await this.#evaluate(method, benchmark, task, seed);
    await keep("passes", `${method}-${seed}.${benchmark}`, passes);
  }

  async #evaluate(method: string, name: string, task: readonly string[], seed: number) {
    const [, arm = method, beams] = /^(.+)-([24])$/.exec(method) ?? [];
    const out = `${this.#folder(method, seed)}.${name}`;
    const how = beams ? ["--num-beams", beams] : ["--batch", "8"];
    const flags = [...task, ...how, "--allow-code-execution", "--resume", "--out", out];
    await parscale(["eval", ...this.#open(arm, seed), ...flags]);
    return passesOf(out);
  }

  /** Losses of held-out library functions. */
  async score(arm: string, seed = 0): Promise<void> {
    const out = `${this.#folder(arm, seed)}.scores.jsonl`;
    if (!await exists(out)) {
      const flags = ["--quantize", "none", "--jsonl", "--out", out];
      await parscale([
        "score",
        `${this.corpus}/held_out.jsonl`,
        ...this.#open(arm, seed),
        ...flags,
      ]);
    }
    const rows = await readLines(out);
    const totals = rows.map(({ tokens, loglikelihood }): Total => (
      { tokens: tokens.length, nats: -loglikelihood }
    ));
    await keep("losses", `${arm}-${seed}`, totals);
  }
}

/** Values of a file of JSON lines. */
// deno-lint-ignore no-explicit-any -- what our own commands wrote
async function readLines(path: string): Promise<any[]> {
  return (await Deno.readTextFile(path)).trim().split("\n").map((line) => JSON.parse(line));
}

/** Writes lines, and returns where. */
async function writeLines(path: string, lines: readonly string[]): Promise<string> {
  await Deno.writeTextFile(path, lines.map((line) => `${line}\n`).join(""));
  return path;
}

/** Results of a kind by their names; none before the first. */
export async function readResults<T>(kind: string): Promise<Record<string, T>> {
  const path = `${RESULTS}/${kind}.json`;
  return await exists(path) ? JSON.parse(await Deno.readTextFile(path)) : {};
}

async function keep(kind: string, name: string, value: unknown): Promise<void> {
  const all = { ...await readResults<unknown>(kind), [name]: value };
  await Deno.mkdir(RESULTS, { recursive: true });
  await Deno.writeTextFile(`${RESULTS}/${kind}.json`, `${JSON.stringify(all)}\n`);
}

if (import.meta.main) {
  const [runs, model, data, problems, corpus] = Deno.args;
  if (!runs || !model || !data || !problems || !corpus) {
    throw new Error("usage: deno task distil RUNS MODEL DATA PROBLEMS CORPUS");
  }
  await Deno.mkdir(runs, { recursive: true });
  const study = new Study(runs, model, data, problems, corpus);
  await study.answer("source", "direct");
  await study.chooseRate();
  for (const arm of ["p1", "lora", "p4"]) {
    await study.train(arm);
    await study.answer(arm, "direct");
  }
  await study.answer("source-4", "direct");
  for (
    const arm of [
      "p1-unverified",
      "p1-samples",
      "p1-solutions",
      "p1-greedy",
      "p2",
      "p1-long",
      "p4-long",
      "lora-long",
    ]
  ) {
    await study.train(arm);
    await study.answer(arm, "direct");
  }
  const seeds = async (...arms: string[]) => {
    for (const seed of [1, 2]) {
      for (const arm of arms) {
        await study.train(arm, seed);
        await study.answer(arm, "direct", seed);
      }
    }
  };
  await seeds("p4-long", "lora-long", "p1-long");
  await study.train("p1-second");
  for (const method of ["p1-second", "source-2", "p1-4", "p4-4"]) {
    await study.answer(method, "direct");
  }
  await seeds("p1", "p4", "lora");
  for (const benchmark of ["chat", "mbpp"] as const) {
    for (const method of ["source", "p1", "p4", "lora"]) await study.answer(method, benchmark);
  }
  for (const arm of ["source", "p1", "p4", "lora"]) await study.score(arm);
}
