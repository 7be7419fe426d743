/** Flags of `parscale compare`. */
import { defineCommand } from "../../framework/command.ts";
import { codeFlags, evalFlags } from "../eval/flags.ts";
import { engineFlags } from "../../framework/common.ts";
import type { FlagTable } from "../../framework/table.ts";
import { keptQuantizeFlags } from "../../input/model_flags.ts";

const { data, shots, limit, ids, chat } = evalFlags;
const { threads, device, unverified, dtype, seed } = engineFlags;

const compareFlags = {
  model: {
    ...evalFlags.model,
    conflictsWith: ["FOLDER"],
    summary: "The model with one stream, which also searches beams",
    details: "A checkpoint or a run folder. Everything is compared with it.",
  },
  parscale: {
    type: "path",
    list: "repeat",
    placeholder: "PATH",
    group: "Model",
    summary: "A model with streams, or an adapter over --model; may be repeated",
    details: "Checkpoints, run folders, and folders of ParScale parameters.",
  },
  beams: {
    type: "int",
    min: 2,
    max: 256,
    list: "comma",
    default: [2, 4, 8],
    group: "Model",
    summary: "Numbers of beams to search with --model",
    details: "Each is one more evaluation. The paper compares P streams with as many beams.",
  },
  tasks: {
    ...evalFlags.tasks,
    summary: "Generative benchmarks to compare on",
    details: "gsm8k, gsm8k_cot, minerva_math, humaneval, mbpp, ifeval, and files as in `eval`; " +
      "multiple-choice tasks decode nothing, so beams change nothing.",
  },
  data,
  shots,
  limit,
  ids,
  chat,
  "template-var": evalFlags["template-var"],
  "max-tokens": evalFlags["max-tokens"],
  "max-length": evalFlags["max-length"],
  "latency-rows": {
    type: "int",
    min: 0,
    max: 1000,
    default: 4,
    group: "Decoding",
    unit: "rows",
    summary: "Rows to time one at a time; 0 turns it off",
    details: "Scores come from batches, which hide what one answer takes; latency and memory are " +
      "measured on the first rows in a process of their own.",
  },
  out: {
    ...evalFlags.out,
    summary: "Folder with one evaluation per method",
    details: "Run the same command again to resume after an interruption.",
  },
  ...codeFlags,
  batch: evalFlags.batch,
  device,
  dtype,
  ...keptQuantizeFlags,
  threads,
  unverified,
  seed,
  "memory-limit": engineFlags["memory-limit"],
} as const satisfies FlagTable;

export const command = defineCommand({
  description:
    "Evaluates a model with one stream, the same with beam search, and models with several streams, " +
    "on benchmarks that are answered in free words: the paper's comparison of ParScale with " +
    "inference-time scaling. Differences are taken row by row, with 95% intervals, and what one " +
    "answer takes in time and memory stands beside the scores.\n\n" +
    "Finished evaluations are compared as well: pass their folders as arguments, the one to compare " +
    "with first, or - for documents of `parscale eval --json` on stdin, one after the other. Of those " +
    "whose folder is gone only means are known, and intervals are wider. The exit code is 1 when a " +
    "model with streams is worse beyond its interval.",
  examples: {
    "The paper's table":
      "parscale compare --model qwen --parscale p2 --parscale p4 --parscale p8 " +
      "--tasks gsm8k,minerva_math --data bench --out table",
    "Programs, in a sandbox": "parscale compare --model qwen --parscale qwen-run --beams 2,4 " +
      "--tasks humaneval --allow-code-execution --out table",
    "Two finished evaluations": "parscale compare results-p1 results-p4 --json",
    "Documents that were kept": "cat p1.json p4.json | parscale compare -",
  },
  arguments: [
    {
      name: "FOLDER",
      summary: "Finished evaluations to compare, in place of models; - reads documents from stdin",
      repeated: true,
    },
  ],
  flags: compareFlags,
  atLeastOneOf: [["model", "FOLDER"], ["tasks", "FOLDER"]],
  savesOnInterrupt: true,
});
