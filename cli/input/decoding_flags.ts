/** Flags of commands that sample tokens, each with a default of its own. */

export const maxTokensFlag = {
  type: "int",
  min: 1,
  unit: "tokens",
  summary: "Maximum number of new tokens per prompt",
  details: "The model's context limits them further.",
} as const;

export const temperatureFlag = {
  type: "number",
  min: 0,
  summary: "Sampling temperature; 0 is greedy",
  details: "Values below 1 sharpen the distribution, values above 1 flatten it.",
} as const;

export const topPFlag = {
  type: "number",
  above: 0,
  max: 1,
  summary: "Nucleus sampling: keep tokens up to this total probability",
  details: "The smallest set that reaches it is kept.",
} as const;
