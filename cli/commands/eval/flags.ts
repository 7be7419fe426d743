/** Flags of `parscale eval`. */
import { SUITES, TASK_NAMES } from "../../../core/eval/tasks/names.ts";
import { defineCommand, type Preset } from "../../framework/command.ts";
import { engineFlags, shardFlag } from "../../framework/common.ts";
import { flagGroup, type FlagTable } from "../../framework/table.ts";
import { maxTokensFlag, temperatureFlag, topPFlag } from "../../input/decoding_flags.ts";
import {
  keptQuantizeFlags,
  modelArgument,
  modelFlags,
  templateVarFlag,
} from "../../input/model_flags.ts";

const taskFlags = flagGroup("Tasks", {
  tasks: {
    type: "string",
    list: "comma",
    placeholder: "NAME|FILE",
    suggestions: [...TASK_NAMES, ...Object.keys(SUITES)],
    summary: "Benchmarks to run, suites of them, or files with benchmarks of your own",
    details: "`parscale eval ls` lists the first two. A file has JSON lines of `prompt` and " +
      "`answer`, of `prompt`, `choices` and `answer`, or of `prompt` and `tests`.",
  },
  data: {
    type: "path",
    sharesFolder: true,
    placeholder: "DIR|FILE",
    defaultText: "fetched from where they are published",
    summary: "Folder with one folder per benchmark, or a file for one task",
    details: "Without it the published files of each task are fetched once, at a pinned commit, " +
      "into the cache of the hub. For `eval fetch` the folder to copy them to. Files are named as their authors or the Hugging Face hub name them: .jsonl, .json, " +
      ".parquet or .csv, compressed or not. `parscale eval ls` tells which each task needs.",
  },
  shots: {
    type: "string",
    list: "comma",
    placeholder: "N|TASK=N",
    defaultText: "those of each task",
    summary: "Number of few-shot examples",
    details: "A number for all tasks, or one for a task: --shots gsm8k=4,arc=0.",
  },
  limit: {
    type: "int",
    min: 1,
    letter: "n",
    unit: "rows",
    conflictsWith: ["ids"],
    summary: "Limit each task to its first N rows",
    details: "Prompts are those these rows have among all.",
  },
  ids: {
    type: "int",
    min: 0,
    list: "comma",
    summary: "Only these rows, numbered from 0 in file order",
    details: "Ranges are written 3..9.",
  },
  chat: {
    type: "switch",
    summary: "Apply the chat template, with shots as earlier turns",
    details: "Uses the checkpoint's chat template, for models trained on chats. humaneval and " +
      "mbpp ask for a script in a code block, as EvalPlus does; without it they are completed " +
      "directly.",
  },
  "exclude-self": {
    type: "switch",
    summary: "Exclude a row from its own shots",
    details: "RACE draws shots from the evaluated rows; the reference does not leave out the row " +
      "itself, so scores with this flag cannot be compared with published ones.",
  },
  shard: {
    ...shardFlag,
    details: `${shardFlag.details} \`cat part-*/samples.jsonl | parscale eval --score -\` gives ` +
      "the scores of a single run.",
  },
});

const decodingFlags = flagGroup("Decoding", {
  "n-samples": {
    type: "int",
    min: 1,
    max: 1000,
    default: 1,
    unit: "samples",
    summary: "Number of sampled answers per question",
    details:
      "With 1 and no --temperature decoding is greedy. For code tasks, more are sampled in " +
      "addition to a greedy one: pass@1 is that one's, pass@10 theirs.",
  },
  temperature: {
    ...temperatureFlag,
    defaultText: "0; 0.8 for more than one sample",
    details: "If given, all answers are sampled at this temperature.",
  },
  "top-p": {
    ...topPFlag,
    default: 0.95,
    details: "The value of EvalPlus; without effect on greedy decoding.",
  },
  "num-beams": {
    type: "int",
    min: 1,
    max: 256,
    default: 1,
    conflictsWith: ["n-samples", "temperature"],
    summary: "Number of beams; 1 disables beam search",
    details: "Concerns answers in free words only: of given choices nothing is decoded.",
  },
  "max-tokens": {
    ...maxTokensFlag,
    defaultText: "those of each task",
    summary: "Maximum number of new tokens per answer",
    details: "256 for mathematics, 768 for code, 1280 for IFEval are what published scores use.",
  },
  "max-length": {
    type: "int",
    min: 16,
    unit: "tokens",
    defaultText: "the model's context",
    summary: "Maximum number of tokens of prompt and answer",
    details: "Longer prompts are truncated on the left, which is where the shots are.",
  },
});

const resultFlags = flagGroup("Result", {
  out: {
    type: "output",
    letter: "o",
    placeholder: "FOLDER",
    defaultText: "nothing is kept",
    summary: "Folder for samples, scores and results",
    details:
      "Run the same command again to resume after an interruption: rows in samples.jsonl are " +
      "not run twice.",
  },
  "log-format": {
    type: "choice",
    choices: ["parscale", "harness"],
    default: "parscale",
    requires: ["out"],
    conflictsWith: ["predict-only"],
    summary: "Layout of the files in --out",
    details:
      "harness adds results_DATE.json and samples_TASK_DATE.jsonl, as lm-evaluation-harness " +
      "writes them with --log_samples, for tools that read these.",
  },
  passing: {
    type: "switch",
    requires: ["out"],
    conflictsWith: ["predict-only"],
    summary: "Write the answers that passed to passing.jsonl in --out",
    details: "As rows for `train --data`: `prompt` and `completion`, with --chat `messages`. A " +
      "program passes by all its tests, another answer by the first metric of its task.",
  },
  resume: {
    type: "switch",
    configurable: false,
    requires: ["out"],
    summary: "Resume the evaluation in --out, or start one",
    details: "So does --out without it; one that is complete is shown and stays as it is.",
  },
  "predict-only": {
    type: "switch",
    requires: ["out"],
    summary: "Only answer; score later with --score",
    details: "Lets code be written on one machine and run on another.",
  },
  score: {
    type: "path",
    placeholder: "FILE|-",
    conflictsWith: ["predict-only"],
    summary: "Score answers that exist already; no model is run",
    details: "samples.jsonl of an evaluation, rows of `parscale generate`, EvalPlus' {task_id, " +
      "solution}, or the samples of lm-evaluation-harness.",
  },
  "fail-under": {
    type: "string",
    list: "comma",
    placeholder: "TASK=VALUE",
    conflictsWith: ["predict-only"],
    summary: "Exit with 1 if a score is lower",
    details: "TASK is a task's headline, TASK.METRIC another of its metrics: gsm8k=0.3, " +
      "humaneval.plus_pass@1=0.2.",
  },
});

export const codeFlags = flagGroup("Code", {
  "allow-code-execution": {
    type: "switch",
    summary: "Run model-written programs in a sandbox",
    details: "Nothing written by a model runs without it. The sandbox has no files, network, " +
      "processes or environment.",
  },
  sandbox: {
    type: "choice",
    choices: ["auto", "bwrap", "pyodide"],
    default: "auto",
    summary: "Sandbox for model-written programs",
    details:
      "pyodide is CPython 3.11 in WebAssembly in a process of its own. bwrap puts that process " +
      "inside bubblewrap as a second wall; auto does where bubblewrap works.",
  },
  sanitize: {
    type: "switch",
    default: true,
    summary: "Reduce programs to what the solution needs",
    details: "As EvalPlus does before it tests. Whole programs of other tools run as they are.",
  },
});

export const evalFlags = {
  model: { ...modelFlags.model, required: undefined, placeholder: "PATH" },
  ...taskFlags,
  ...decodingFlags,
  ...resultFlags,
  ...codeFlags,
  batch: { ...modelFlags.batch, default: 16 },
  ...templateVarFlag,
  ...engineFlags,
  ...keptQuantizeFlags,
} as const satisfies FlagTable;

/** The paper's evaluations: which tasks with how many shots. */
const presets: Readonly<Record<string, Preset>> = {
  "paper-42b": {
    summary: "The paper's general and code benchmarks, for models trained on 42B tokens",
    values: {
      tasks: [
        "winogrande",
        "hellaswag",
        "openbookqa",
        "piqa",
        "arc",
        "sciq",
        "humaneval",
        "mbpp",
      ],
      "n-samples": 10,
    },
  },
  "paper-1t": {
    summary: "The paper's general, mathematical and code benchmarks, for base models",
    values: {
      tasks: ["general", "race", "math", "humaneval", "mbpp"],
      shots: ["gsm8k=4"],
      "n-samples": 10,
    },
  },
  "paper-instruct": {
    summary: "The paper's benchmarks for instruct models, asked as conversations",
    values: { tasks: ["ifeval", "mmlu", "gsm8k"], shots: ["gsm8k=4"], chat: true },
  },
};

export const command = defineCommand({
  description:
    "Asks a model the questions of public benchmarks, exactly as lm-evaluation-harness 0.4.13 and " +
    "EvalPlus do, and scores its answers by their rules. Rows are fetched from where they are " +
    "published, at pinned commits, unless --data names a folder with one folder per benchmark, in " +
    "the layout of its authors or of the Hugging Face hub.\n\n" +
    "`eval ls` lists tasks and what they need, `eval fetch TASK...` only fetches, and `eval show TASK` " +
    "prints exact prompts.\n\n" +
    "With --out every answer is written down as it comes; the same command resumes after any " +
    "interruption. Answers can be scored later, or made by other tools (--score).",
  examples: {
    "A quick look at two benchmarks": "parscale eval --model qwen-p4 --tasks gsm8k,arc --limit 50",
    "The paper's table for base models":
      "parscale eval --model qwen-p4 --preset paper-1t --data bench --allow-code-execution " +
      "--out results",
    "A benchmark of your own": "parscale eval --model qwen-p4 --tasks mine.jsonl --out results",
    "What exactly is asked?": "parscale eval show mmlu -n 2 --data bench",
    "Spread over four machines":
      "parscale eval --model qwen-p4 --tasks mmlu --data bench --shard 1/4 --out part-1",
    "Put their parts together":
      "cat part-*/samples.jsonl | parscale eval --score - --tasks mmlu --data bench --out whole",
    "Score answers made elsewhere":
      "parscale eval --score samples.jsonl --tasks humaneval --data bench " +
      "--allow-code-execution",
  },
  arguments: [
    modelArgument,
    { name: "ls|fetch|show", summary: "Instead of evaluating", choices: ["ls", "fetch", "show"] },
    { name: "TASK", summary: "Tasks to fetch, or task to show", repeated: true },
  ],
  flags: evalFlags,
  presets,
  savesOnInterrupt: true,
});
