/** Flags of `parscale visualize`. */
import { TASK_NAMES } from "../../../core/eval/tasks/names.ts";
import { defineCommand } from "../../framework/command.ts";
import { engineFlags } from "../../framework/common.ts";
import { flagGroup, type FlagTable } from "../../framework/table.ts";
import {
  keptQuantizeFlags,
  modelArgument,
  modelFlags,
  templateVarFlag,
} from "../../input/model_flags.ts";

const inputFlags = flagGroup("Input", {
  text: {
    type: "string",
    list: "repeat",
    conflictsWith: ["FILE", "task"],
    summary: "A text to show; may be repeated",
    details: "Takes the place of FILE and stdin. Special tokens written out become one token each.",
  },
  input: {
    type: "choice",
    choices: ["auto", "text", "jsonl"],
    default: "auto",
    summary: "How FILE and stdin are read",
    details:
      "auto: JSON lines if the first line begins with a brace, otherwise one text, without " +
      "the line end after its last line.",
  },
  task: {
    type: "string",
    placeholder: "NAME",
    conflictsWith: ["FILE"],
    suggestions: TASK_NAMES,
    summary: "Show rows of this benchmark",
    details: "The prompt with its shots, then the reference answer where the benchmark has one. " +
      "Needs --data. `parscale eval ls` lists the names.",
  },
  data: {
    type: "path",
    sharesFolder: true,
    placeholder: "DIR|FILE",
    requires: ["task"],
    summary: "Folder with one folder per benchmark, or a file, for --task",
    details: "Laid out as for `parscale eval --data`.",
  },
  ids: {
    type: "int",
    min: 0,
    list: "comma",
    defaultText: "0",
    requires: ["task"],
    summary: "Rows of --task, counted from 0",
    details: "In the order of the file. Ranges are written 3..9.",
  },
  shots: {
    type: "int",
    min: 0,
    max: 1000,
    defaultText: "those of the task",
    requires: ["task"],
    summary: "Number of few-shot examples of --task",
    details: "0 shows the question alone.",
  },
  "max-tokens": {
    type: "int",
    min: 1,
    max: Number.MAX_SAFE_INTEGER,
    unit: "tokens",
    defaultText: "the whole text",
    summary: "Truncate every text to this many tokens",
    details: "The rest is left out. Without it a text longer than the model's context is refused.",
  },
});

const visualizeFlags = {
  ...inputFlags,
  ...modelFlags,
  ...templateVarFlag,
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
    type: "output",
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

export const command = defineCommand({
  description:
    "Runs a ParScale model over texts and shows, for every token, in which shares its streams " +
    "were mixed there to predict the next token. The stream with the largest share wins the " +
    "token: its letter (a number beyond 26 streams) stands below the text, colour only " +
    "repeats it.\n\n" +
    "FILE and stdin hold one text, or JSON lines with `text`, `prompt` (and `text` or " +
    "`tokens`, the answer as `generate` writes it), `messages` or `tokens`. A row of a " +
    "benchmark is shown with its reference answer. Every text is a section of its own.\n\n" +
    "Statistics: the share of tokens each stream wins; the entropy of the weights in nats, " +
    "and as a share of ln P, which equal weights have; the mean length of runs of one winner, " +
    "beside the length that independent winners with the same shares would have; and " +
    "between texts, how much of their " +
    "tokens they give to the same streams, and how often the same token has the same winner.\n\n" +
    "Rows of --jsonl have `text_id`, `position`, `token`, `text` (empty before the last token " +
    "of a character that takes several), `winner`, `stream` (from 0), `weights`, `entropy` " +
    "and `logprob`, what the model gave this token after those before. --json has them with " +
    "all statistics.",
  examples: {
    "A sentence on the terminal":
      'parscale visualize --model qwen-p4 --text "The cat sat on the mat"',
    "A page to look at in a browser":
      "parscale visualize story.txt --model qwen-p4 --html story.html",
    "What the model wrote itself, from the rows of generate --jsonl":
      "parscale visualize answers.jsonl --model qwen-p4 --jsonl -o weights.jsonl",
    "Three rows of a benchmark with their answers":
      "parscale visualize --model qwen-p4 --task gsm8k --data bench --ids 3,4,5",
    "How differently the streams err":
      "parscale visualize wiki.txt --model qwen-p4 --max-tokens 2048 --diversity --json",
  },
  arguments: [modelArgument, {
    name: "FILE|-",
    summary: "Texts to show; stdin when absent or -",
    repeated: true,
  }],
  flags: visualizeFlags,
});
