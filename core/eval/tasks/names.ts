/** Names of the benchmarks and of suites of them, without their code: for help and completions. */

/** In the order in which they are listed; those of `TASKS`. */
export const TASK_NAMES = [
  "winogrande",
  "hellaswag",
  "openbookqa",
  "piqa",
  "arc_easy",
  "arc_challenge",
  "sciq",
  "mmlu",
  "race",
  "gsm8k",
  "gsm8k_cot",
  "minerva_math",
  "ifeval",
  "humaneval",
  "mbpp",
  "perplexity",
] as const;

/** Several tasks under one name. */
export const SUITES: Readonly<Record<string, readonly string[]>> = {
  arc: ["arc_easy", "arc_challenge"],
  general: [
    "mmlu",
    "winogrande",
    "hellaswag",
    "openbookqa",
    "piqa",
    "arc_easy",
    "arc_challenge",
    "sciq",
  ],
  math: ["gsm8k", "gsm8k_cot", "minerva_math"],
  code: ["humaneval", "mbpp"],
};
