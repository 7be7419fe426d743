/** Flags of `parscale fit`. Questions are texts here and are read in `plan.ts`. */
import { defineCommand } from "../../framework/command.ts";
import { engineFlags } from "../../framework/common.ts";
import { flagGroup } from "../../framework/table.ts";

const lawFlags = flagGroup("Law", {
  "data-set": {
    type: "choice",
    choices: ["stack-v2-python", "pile"],
    defaultText: "none; stack-v2-python with --parameters paper",
    summary: "Take the paper's observations instead of files",
    details: "The 24 losses of each of its two corpora; the laws it prints for them are taken by " +
      "--preset paper.",
  },
  law: {
    type: "choice",
    choices: ["log", "theoretical", "chinchilla", "both"],
    default: "log",
    summary: "Which law to fit",
    details:
      "log: E + (A / (N (k ln P + 1)))^alpha. theoretical: E + (A / N)^alpha ((P - 1) rho + 1) / P. " +
      "chinchilla: without P. both compares log with theoretical and continues with the better one by " +
      "its objective.",
  },
  parameters: {
    type: "choice",
    choices: ["fit", "paper"],
    default: "fit",
    summary: "Fit the parameters, or take those the paper prints",
    details:
      "paper fits nothing: it tests the printed law against the observations and answers questions. " +
      "--preset paper is the same.",
  },
});

const uncertaintyFlags = flagGroup("Uncertainty", {
  bootstrap: {
    type: "int",
    min: 0,
    max: 1_000_000,
    default: 0,
    placeholder: "REFITS",
    conflictsWith: ["parameters=paper"],
    summary: "Number of bootstrap refits; 500 is enough",
    details:
      "Gives the middle 95 percent of every parameter and of every answer. Refits that reach no " +
      "optimum are left out and counted.",
  },
  seed: {
    ...engineFlags.seed,
    details: "Only --bootstrap draws. The same seed and observations give the same intervals.",
  },
});

/** Shared by the questions that take two quantities. */
const pairFlag = { type: "string", list: "repeat" } as const;

const questionFlags = flagGroup("Questions", {
  predict: {
    ...pairFlag,
    placeholder: "N,P",
    summary: "Loss of N parameters with P streams",
    details: "Numbers may end in k, M, B or T. May be repeated, as all questions may.",
  },
  equivalent: {
    ...pairFlag,
    placeholder: "N,P",
    summary: "Parameters with one stream that N with P streams act like",
    details: "N times k ln P + 1 in the logarithmic law.",
  },
  "params-for": {
    ...pairFlag,
    placeholder: "LOSS,P",
    summary: "Parameters needed for a loss with P streams",
    details: "The loss must lie above E, which no model goes below.",
  },
  "streams-for": {
    ...pairFlag,
    placeholder: "LOSS,N",
    summary: "Streams with which N parameters reach a loss",
    details: "Not rounded. Out of reach where no number of streams does it.",
  },
  saving: {
    type: "int",
    min: 1,
    max: 1_000_000,
    list: "comma",
    placeholder: "P",
    summary: "Share of parameters that P streams save at equal loss",
    details: "Lists and ranges: 2,4,8 or 1..8*2.",
  },
});

const outputFlags = flagGroup("Output", {
  curves: {
    type: "output",
    placeholder: "SVG",
    summary: "Draw loss over parameters, one curve per P",
    details: "Observations are marks; parameters and R^2 stand under the title.",
  },
});

export const command = defineCommand({
  description:
    "Fits loss as a function of parameters N and streams P, as the ParScale paper does: Huber losses " +
    "of logarithms, from a grid of 300 starting points, here each down to the optimum itself.\n\n" +
    "Observations are rows of n_params, streams and loss, as CSV, JSON or JSON lines. A folder of " +
    "`parscale train` is one observation: its last eval_loss, or else its smoothed training loss. " +
    "N counts parameters without embeddings, with prefixes and aggregator, at the P in question: " +
    "from one stream to eight it grows by one or two percent.\n\n" +
    "A law printed without intervals says more than it knows: pass --bootstrap 500. The exit code is " +
    "1 when no optimum was reached.",
  examples: {
    "The paper's law for Stack-V2-Python, with intervals":
      "parscale fit --data-set stack-v2-python --bootstrap 500",
    "Predict a model from your own losses":
      "parscale fit losses.csv --bootstrap 200 --predict 1.6e9,8 --json",
    "From training runs": "parscale fit run-p1 run-p2 run-p4 --law chinchilla",
    "Which law is right?": "parscale fit --data-set stack-v2-python --law both",
    "The parameters that the paper prints, and how much eight streams save":
      "parscale fit --preset paper --saving 8 --params-for 1.05,8",
    "The figure": "parscale fit --data-set stack-v2-python --curves curves.svg",
  },
  arguments: [
    {
      name: "FILE|-|RUN_FOLDER",
      summary: "Observations: files, stdin, or folders of runs",
      repeated: true,
    },
  ],
  flags: { ...lawFlags, ...uncertaintyFlags, ...questionFlags, ...outputFlags },
  presets: {
    paper: {
      summary: "The parameters that the paper prints, instead of a fit",
      values: { parameters: "paper" },
    },
  },
});
