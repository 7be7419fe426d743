/** Flags of `parscale fit`. Questions are texts here and are read in `queries.ts`. */
import type { CommandValues } from "../../framework/command.ts";
import { engineFlags } from "../../framework/common.ts";
import type { FlagTable } from "../../framework/table.ts";

const lawFlags = {
  "data-set": {
    type: "choice",
    choices: ["stack-v2-python", "pile"],
    group: "Law",
    defaultText: "none; stack-v2-python with --parameters paper",
    summary: "Take the paper's observations instead of files",
    details: "The 24 losses of each of its two corpora; the laws it prints for them are taken by " +
      "--preset paper.",
  },
  law: {
    type: "choice",
    choices: ["log", "theoretical", "chinchilla", "both"],
    default: "log",
    group: "Law",
    summary: "Which law to fit",
    details:
      "log: E + (A / (N (k ln P + 1)))^alpha. theoretical: E + (A / N)^alpha ((P - 1) rho + 1) / P. " +
      "chinchilla: without P. both compares log with theoretical and goes on with the better one.",
  },
  parameters: {
    type: "choice",
    choices: ["fit", "paper"],
    default: "fit",
    group: "Law",
    summary: "Fit the parameters, or take those the paper prints",
    details:
      "paper fits nothing: it judges the printed law by the observations and answers questions. " +
      "--preset paper is the same.",
  },
} as const satisfies FlagTable;

const uncertaintyFlags = {
  bootstrap: {
    type: "int",
    min: 0,
    max: 1_000_000,
    default: 0,
    group: "Uncertainty",
    placeholder: "REFITS",
    conflictsWith: ["parameters=paper"],
    summary: "Number of bootstrap refits; 500 is enough",
    details:
      "Gives the middle 95 percent of every parameter and of every answer. Refits that reach no " +
      "optimum are left out and counted.",
  },
  seed: {
    ...engineFlags.seed,
    group: "Uncertainty",
    details: "Only --bootstrap draws. The same seed and observations give the same intervals.",
  },
} as const satisfies FlagTable;

const questionFlags = {
  predict: {
    type: "string",
    list: "repeat",
    group: "Questions",
    placeholder: "N,P",
    summary: "Loss of N parameters with P streams",
    details: "Numbers may end in k, M, B or T. May be repeated, as all questions may.",
  },
  equivalent: {
    type: "string",
    list: "repeat",
    group: "Questions",
    placeholder: "N,P",
    summary: "Parameters with one stream that N with P streams act like",
    details: "N times k ln P + 1 in the logarithmic law.",
  },
  "params-for": {
    type: "string",
    list: "repeat",
    group: "Questions",
    placeholder: "LOSS,P",
    summary: "Parameters needed for a loss with P streams",
    details: "The loss must lie above E, which no model goes below.",
  },
  "streams-for": {
    type: "string",
    list: "repeat",
    group: "Questions",
    placeholder: "LOSS,N",
    summary: "Streams with which N parameters reach a loss",
    details: "Not rounded. Out of reach where no number of streams does it.",
  },
  saving: {
    type: "int",
    min: 1,
    max: 1_000_000,
    list: "comma",
    group: "Questions",
    placeholder: "P",
    summary: "Share of parameters that P streams save at equal loss",
    details: "Lists and ranges: 2,4,8 or 1..8*2.",
  },
} as const satisfies FlagTable;

const outputFlags = {
  curves: {
    type: "path",
    group: "Output",
    placeholder: "SVG",
    summary: "Draw loss over parameters, one curve per P",
    details: "Observations are marks; parameters and R^2 stand under the title.",
  },
  latex: {
    type: "switch",
    group: "Output",
    conflictsWith: ["format"],
    summary: "Write the rows of the table for LaTeX",
    details: "P, N, predicted, observed, error, as in the paper's tables.",
  },
} as const satisfies FlagTable;

/** The whole table, in the order of help. */
export const fitFlags = {
  ...lawFlags,
  ...uncertaintyFlags,
  ...questionFlags,
  ...outputFlags,
} as const satisfies FlagTable;

/** Everything `run` gets. */
export type FitValues = CommandValues<typeof fitFlags>;
