/**
 * Runs the study of beams into streams: `deno task distil RUNS MODEL DATA PROBLEMS CORPUS`.
 *
 * MODEL is the GGUF file of Qwen2.5-Coder-0.5B-Instruct in Q4_K_M, DATA a folder with HumanEval(+) and MBPP+,
 * PROBLEMS the folder of `deno task distil-problems`, CORPUS that of `deno task qwen-corpus`. Every step is a
 * command of parscale, as a user would call it, and leaves its numbers or rows in `results`, which `report.ts`
 * reads. What stands there is skipped and what is unfinished in RUNS continues, so that the task can be stopped
 * and started, on another machine too; without `results` all is run again. The steps that the criteria need
 * come first.
 */
import { fileURLToPath } from "node:url";
import { completedFunction } from "../../../core/eval/harness/passing.ts";
import { cutAtStops } from "../../../core/eval/harness/predict.ts";
import { codeStops } from "../../../core/eval/tasks/code.ts";
import { exists, parscale, type Total } from "../frozen-smollm2/study.ts";
import { passesOf } from "../qwen-humaneval/study.ts";

export const RESULTS = fileURLToPath(new URL("results", import.meta.url));

/** Parts trained over the frozen model. */
interface Arm {
  readonly label: string;
  readonly flags: string;
  readonly rows: Rows;
}

/** Ways to decode answers to the problems, of which those that pass are rows. */
const DECODING = {
  beams: "--num-beams 4",
  greedy: "--num-beams 1",
  samples: "--n-samples 4 --temperature 0.8",
  second: "--num-beams 4",
} as const;

type Decoding = keyof typeof DECODING;

/** Of which answers that pass the long ones are rows. */
const LONG_OF = {
  long: ["beams", "samples"],
  "long-second": ["beams", "samples", "second"],
} as const satisfies Record<string, readonly Decoding[]>;

type Rows = Decoding | keyof typeof LONG_OF | "unverified" | "solutions";

/** Seed of the arms that more is asked than HumanEval by direct completion. */
const FOLLOWED = 1;

/** Fewest lines of a long answer. */
const LONG = 5;

const PREFIX = "--streams 1 --transform prefix";
const LORA = "--streams 1 --transform lora --lora-rank 8";

export const ARMS: Readonly<Record<string, Arm>> = {
  p1: { label: "P=1, prefix of 48", flags: PREFIX, rows: "beams" },
  p4: { label: "P=4, prefixes of 48", flags: "--streams 4", rows: "beams" },
  lora: { label: "P=1, LoRA of rank 8", flags: LORA, rows: "beams" },
  p2: { label: "P=2, prefixes of 48", flags: "--streams 2", rows: "beams" },
  "p1-unverified": { label: "P=1, all answers", flags: PREFIX, rows: "unverified" },
  "p1-solutions": { label: "P=1, MBPP's solutions", flags: PREFIX, rows: "solutions" },
  "p1-greedy": { label: "P=1, greedy answers verified", flags: PREFIX, rows: "greedy" },
  "p1-samples": { label: "P=1, samples at 0.8 verified", flags: PREFIX, rows: "samples" },
  "p1-long": { label: "P=1, 5 lines+", flags: PREFIX, rows: "long" },
  "p4-long": { label: "P=4, 5 lines+", flags: "--streams 4", rows: "long" },
  "lora-long": { label: "P=1, LoRA of rank 8, 5 lines+", flags: LORA, rows: "long" },
  "p4-second": { label: "P=4, a second round", flags: "--streams 4", rows: "long-second" },
};

/** Ways to decode the source, and the arms. */
export const LABELS: Readonly<Record<string, string>> = {
  source: "source",
  "source-2": "source, 2 beams",
  "source-4": "source, 4 beams",
  ...Object.fromEntries(Object.entries(ARMS).map(([name, { label }]) => [name, label])),
  "p4-long-4": "P=4, 5 lines+, 4 beams",
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

  /** Flags that open the source, or an arm of a seed after its training. */
  async #open(method: string, seed: number): Promise<string[]> {
    if (!(method in ARMS)) return ["--model", this.model];
    await this.train(method, seed);
    return ["--model", this.#folder(method, seed)];
  }

  /** The file of training rows; those that follow from others are made anew. */
  async rows(name: Rows): Promise<string> {
    switch (name) {
      case "solutions":
        return `${this.problems}/solutions.jsonl`;
      case "unverified":
        return await writeLines(`${this.runs}/${name}.jsonl`, await this.#unverified());
      case "long":
      case "long-second":
        return await writeLines(`${this.runs}/${name}.jsonl`, await this.#long(LONG_OF[name]));
      default:
        return await this.#verified(name);
    }
  }

  /** The file of answers that pass. */
  async #verified(name: Decoding): Promise<string> {
    const kept = `${RESULTS}/rows-${name}.jsonl`;
    if (await exists(kept)) return kept;
    const folder = name === "second"
      ? await this.#ask(name, "p4-long", await this.#unsolved(LONG_OF.long))
      : await this.#ask(name, "source", `${this.problems}/problems.jsonl`);
    return await writeLines(kept, await linesOf(`${folder}/passing.jsonl`));
  }

  /** Answers problems by the source or an arm; returns the folder of the evaluation. */
  async #ask(name: Decoding, method: string, problems: string): Promise<string> {
    const out = `${this.runs}/rows-${name}`;
    const task = ["--tasks", problems, "--passing", "--allow-code-execution"];
    const flags = [...DECODING[name].split(" "), "--max-tokens", "256", "--resume", "--out", out];
    await parscale(["eval", ...await this.#open(method, FOLLOWED), ...task, ...flags]);
    return out;
  }

  /** All answers by beams, right or wrong. */
  async #unverified(): Promise<readonly string[]> {
    const path = `${this.problems}/problems.jsonl`;
    const folder = await this.#ask("beams", "source", path);
    const problems = (await linesOf(path)).map((line) => JSON.parse(line));
    return (await linesOf(`${folder}/samples.jsonl`)).map((line) => {
      const { doc_id, text } = JSON.parse(line);
      const completion = completedFunction(cutAtStops(text, codeStops("humaneval")));
      return JSON.stringify({ prompt: `${problems[doc_id].prompt}\n`, completion });
    });
  }

  /** The different long answers among rows. */
  async #long(names: readonly Decoding[]): Promise<readonly string[]> {
    const isLong = (line: string) =>
      JSON.parse(line).completion.trimEnd().split("\n").length >= LONG;
    return [...new Set((await this.#linesOfAll(names)).filter(isLong))];
  }

  /** Answers that pass, one decoding after the other. */
  async #linesOfAll(names: readonly Decoding[]): Promise<readonly string[]> {
    const lines: string[] = [];
    for (const name of names) lines.push(...await linesOf(await this.#verified(name)));
    return lines;
  }

  /** A file of the problems that no row answers. */
  async #unsolved(names: readonly Decoding[]): Promise<string> {
    const rows = await this.#linesOfAll(names);
    const solved = new Set(rows.map((line) => JSON.parse(line).prompt));
    const problems = await linesOf(`${this.problems}/problems.jsonl`);
    return await writeLines(
      `${this.runs}/unsolved.jsonl`,
      problems.filter((line) => !solved.has(`${JSON.parse(line).prompt}\n`)),
    );
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
    const last = (await linesOf(`${out}/metrics.jsonl`)).at(-1)!;
    const { step, tokens, loss_ema, stream_weights } = JSON.parse(last);
    await keep("training", `${name}-${seed}`, { step, tokens, loss_ema, stream_weights });
  }

  /** Trains P=1 at every rate, and takes the rate that passes most validation problems. */
  async chooseRate(): Promise<void> {
    for (const rate of RATES) {
      if (rate in await readResults("validation")) continue;
      this.rate = rate;
      const tasks = ["--tasks", `${this.problems}/validation.jsonl`, "--max-tokens", "256"];
      const { base } = await this.#evaluate("p1", "validation", tasks, 0);
      await keep("validation", rate, base);
    }
    const passes = Object.entries(await readResults<readonly number[]>("validation"));
    const count = (one: readonly number[]) => one.reduce((sum, pass) => sum + pass, 0);
    [this.rate] = passes.toSorted(([, a], [, b]) => count(b) - count(a))[0]!;
  }

  /** Answers of a method to a benchmark, greedy or by beams. */
  async answer(method: string, benchmark: Benchmark, seed = 0): Promise<void> {
    const name = `${method}-${seed}.${benchmark}`;
    if (name in await readResults("passes")) return;
    const task = [...BENCHMARKS[benchmark].split(" "), "--data", this.data];
    const passes = await this.#evaluate(method, benchmark, task, seed);
    await keep("passes", name, passes);
  }

  async #evaluate(method: string, name: string, task: readonly string[], seed: number) {
    const [, arm = method, beams] = /^(.+)-([24])$/.exec(method) ?? [];
    const out = `${this.#folder(method, seed)}.${name}`;
    const how = beams ? ["--num-beams", beams] : ["--batch", "8"];
    const flags = [...task, ...how, "--allow-code-execution", "--resume", "--out", out];
    await parscale(["eval", ...await this.#open(arm, seed), ...flags]);
    return passesOf(out);
  }

  /** Losses of held-out library functions. */
  async score(method: string, seed = 0): Promise<void> {
    const name = `${method}-${seed}`;
    if (name in await readResults("losses")) return;
    const out = `${this.#folder(method, seed)}.scores.jsonl`;
    if (!await exists(out)) {
      const model = await this.#open(method, seed);
      const flags = ["--quantize", "none", "--jsonl", "--out", out];
      await parscale(["score", `${this.corpus}/held_out.jsonl`, ...model, ...flags]);
    }
    const totals = (await linesOf(out)).map((line): Total => {
      const { tokens, loglikelihood } = JSON.parse(line);
      return { tokens: tokens.length, nats: -loglikelihood };
    });
    await keep("losses", name, totals);
  }
}

async function linesOf(path: string): Promise<string[]> {
  return (await Deno.readTextFile(path)).trim().split("\n");
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
  const firstSeed = [
    "p1",
    "lora",
    "p4",
    "source-4",
    "p1-unverified",
    "p1-samples",
    "p1-solutions",
    "p1-greedy",
    "p2",
    "p1-long",
    "p4-long",
    "lora-long",
  ];
  for (const method of firstSeed) await study.answer(method, "direct");
  const furtherSeeds = async (...arms: string[]) => {
    for (const seed of [1, 2]) {
      for (const arm of arms) await study.answer(arm, "direct", seed);
    }
  };
  await furtherSeeds("p4-long", "lora-long");
  await furtherSeeds("p1-long");
  await study.answer("source-2", "direct");
  await study.answer("p4-long-4", "direct", FOLLOWED);
  const arms = ["p4-long", "lora-long", "p1-long"];
  for (const benchmark of ["chat", "mbpp"] as const) {
    await study.answer("source", benchmark);
    for (const arm of arms) await study.answer(arm, benchmark, FOLLOWED);
  }
  await study.score("source");
  for (const arm of arms) await study.score(arm, FOLLOWED);
  await study.answer("p4-second", "direct", FOLLOWED);
}
