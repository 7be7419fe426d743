/** Flags of `parscale visualize`. */
import { TASK_NAMES } from "../../../core/eval/tasks/names.ts";
import type { CommandValues } from "../../framework/command.ts";
import { engineFlags } from "../../framework/common.ts";
import type { FlagTable } from "../../framework/table.ts";
import { keptQuantizeFlags, modelFlags } from "../../input/model_flags.ts";

const inputFlags = {
  text: {
    type: "string",
    list: "repeat",
    group: "Input",
    conflictsWith: ["FILE", "task"],
    summary: "A text to show; may be repeated",
    details: "Takes the place of FILE and stdin. Special tokens written out become one token each.",
  },
  input: {
    type: "choice",
    choices: ["auto", "text", "jsonl"],
    default: "auto",
    group: "Input",
    summary: "How FILE and stdin are read",
    details:
      "auto: JSON lines if the first line begins with a brace, otherwise one text, without " +
      "the line end after its last line.",
  },
  task: {
    type: "string",
    placeholder: "NAME",
    group: "Input",
    conflictsWith: ["FILE"],
    suggestions: TASK_NAMES,
    summary: "Show rows of this benchmark",
    details: "The prompt with its shots, then the reference answer where the benchmark has one. " +
      "Needs --data. `parscale eval ls` lists the names.",
  },
  data: {
    type: "path",
    placeholder: "DIR|FILE",
    group: "Input",
    requires: ["task"],
    summary: "Folder with one folder per benchmark, or a file, for --task",
    details: "Laid out as for `parscale eval --data`.",
  },
  ids: {
    type: "int",
    min: 0,
    list: "comma",
    group: "Input",
    defaultText: "0",
    requires: ["task"],
    summary: "Rows of --task, counted from 0",
    details: "In the order of the file. Ranges are written 3..9.",
  },
  shots: {
    type: "int",
    min: 0,
    max: 1000,
    group: "Input",
    defaultText: "those of the task",
    requires: ["task"],
    summary: "Number of few-shot examples of --task",
    details: "0 shows the question alone.",
  },
  "max-tokens": {
    type: "int",
    min: 1,
    max: Number.MAX_SAFE_INTEGER,
    group: "Input",
    unit: "tokens",
    defaultText: "the whole text",
    formerly: ["max-length"],
    summary: "Truncate every text to this many tokens",
    details: "The rest is left out. Without it a text longer than the model's context is refused.",
  },
} as const satisfies FlagTable;

/** All flags of the command but the common ones. */
export const visualizeFlags = {
  ...inputFlags,
  ...modelFlags,
  diversity: {
    type: "switch",
    group: "Statistics",
    summary: "Estimate how much the streams' errors correlate",
    details:
      "The rho of the paper's theory: the correlation over tokens of two streams' relative " +
      "residuals (p_i - p) / p, and its mean over pairs. p_i is what stream i alone gives the " +
      "next token: the output matrix on its own normed hidden state, before mixing. The true " +
      "p is unknown, so the token that follows stands for it with p = 1, and the residual is " +
      "p_i(token) - 1. Tokens that are hard for every stream count as correlation, so the " +
      "estimate tends to lie above the rho of the theory: compare models on one text rather " +
      "than read it alone. The standard error is a jackknife over 20 blocks of consecutive " +
      "tokens. Beside it stand the loss in nats of every stream alone, of the plain mean of their " +
      "probabilities, and of the model. Rows get `stream_logprobs`. Takes P more products " +
      "with the output matrix.",
  },
  html: {
    type: "path",
    placeholder: "FILE",
    group: "Figures",
    summary: "Write an HTML page with the weights of every token",
    details:
      "One file that asks for nothing from elsewhere. The pointer, or the arrow keys, show a " +
      "token's weights, entropy and probability. The terminal then has statistics only.",
  },
  ...engineFlags,
  ...keptQuantizeFlags,
} as const satisfies FlagTable;

/** Everything `run` gets. */
export type VisualizeValues = CommandValues<typeof visualizeFlags>;
