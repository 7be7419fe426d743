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

/** Most tokens drafted in a step, unless told. */
export const DRAFT_TOKENS = 7;

export const speculateFlag = {
  type: "int",
  min: 0,
  max: 31,
  unit: "tokens",
  defaultText: String(DRAFT_TOKENS),
  summary: "Maximum number of tokens drafted in a step; 0 turns drafts off",
  details:
    "Prompt lookup: what followed the last three tokens, else two, where they stood before in prompt " +
    "and answer. Answers are bit for bit those without; where a device or format cannot keep that, " +
    "and for Qwen3.5, there are no drafts. How many pay follows measured times. Given for weights " +
    "mostly in 4 bits, steps of one token round as steps of several do, and take 1.2 to 1.4 times " +
    "their time; without the flag these weights have no drafts.",
} as const;
