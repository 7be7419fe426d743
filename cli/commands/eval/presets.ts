/**
 * The paper's evaluations: which tasks with how many shots, and the columns of its tables.
 *
 * In tables a score is a percentage. ARC is the mean of its two sets. The general tasks have six columns
 * in each table: SciQ is one of them for 42B tokens, MMLU for 1T. Tasks of a preset that are in none of
 * its columns are reported beside the tables.
 */
import type { Preset } from "../../framework/resolve.ts";

/** A column of a table: one metric, or the mean of several columns. */
export interface TableColumn {
  readonly title: string;
  /** `task.metric`, several of which are averaged. */
  readonly of: readonly string[];
}

const CODE: readonly TableColumn[] = ["1", "10"].flatMap((k) => [
  { title: `HumanEval @${k}`, of: [`humaneval.pass@${k}`] },
  { title: `HumanEval+ @${k}`, of: [`humaneval.plus_pass@${k}`] },
  { title: `MBPP @${k}`, of: [`mbpp.pass@${k}`] },
  { title: `MBPP+ @${k}`, of: [`mbpp.plus_pass@${k}`] },
]);

const ARC: TableColumn = { title: "ARC", of: ["arc_easy.acc_norm", "arc_challenge.acc_norm"] };

const COMMON_SENSE: readonly TableColumn[] = [
  { title: "WinoGrande", of: ["winogrande.acc"] },
  { title: "HellaSwag", of: ["hellaswag.acc_norm"] },
  { title: "OpenBookQA", of: ["openbookqa.acc_norm"] },
  { title: "PIQA", of: ["piqa.acc_norm"] },
  ARC,
];

const SCIQ: TableColumn = { title: "SciQ", of: ["sciq.acc_norm"] };

const MMLU: TableColumn = { title: "MMLU", of: ["mmlu.acc"] };

const MATH: readonly TableColumn[] = [
  { title: "GSM8K", of: ["gsm8k.strict_match"] },
  { title: "GSM8K-CoT", of: ["gsm8k_cot.strict_match"] },
  { title: "MATH", of: ["minerva_math.exact_match"] },
];

/** Columns of the tables a preset stands for; each table ends in the mean of its columns. */
export const PAPER_TABLES: Readonly<
  Record<string, readonly { readonly name: string; readonly columns: readonly TableColumn[] }[]>
> = {
  "paper-42b": [
    { name: "General", columns: [...COMMON_SENSE, SCIQ] },
    { name: "Code", columns: CODE },
  ],
  "paper-1t": [
    { name: "General", columns: [MMLU, ...COMMON_SENSE] },
    { name: "Math", columns: MATH },
    { name: "Code", columns: CODE },
  ],
  "paper-instruct": [
    {
      name: "Instruct",
      columns: [
        { title: "IFEval", of: ["ifeval.mean"] },
        MMLU,
        { title: "GSM8K", of: ["gsm8k.strict_match"] },
      ],
    },
  ],
};

export const evalPresets: Readonly<Record<string, Preset>> = {
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
