/** Flags of `parscale plot`. */
import { defineCommand } from "../../framework/command.ts";
import { flagGroup } from "../../framework/table.ts";

const curveFlags = flagGroup("Curves", {
  x: {
    type: "choice",
    choices: ["tokens", "steps"],
    default: "tokens",
    summary: "What the x axis counts",
    details: "Tokens are those the run has read, padding left out.",
  },
  measure: {
    type: "choice",
    choices: ["train", "eval"],
    list: "comma",
    default: ["train", "eval"],
    summary: "Training loss, validation loss, or both",
    details: "Validation loss is there where a run has --eval-data or --eval-split.",
  },
  ema: {
    type: "number",
    min: 0,
    below: 1,
    default: 0.95,
    summary: "EMA smoothing of the training loss; 0 turns it off",
    details: "The paper's figures use 0.95 and 0.98. Validation loss is drawn as it is.",
  },
  label: {
    type: "string",
    list: "comma",
    placeholder: "NAME",
    defaultText: "the names of the folders",
    summary: "Name of each run, in their order",
    details: "Folders of one name have their paths as names.",
  },
  chain: {
    type: "switch",
    summary: "Start a run where the run it was trained from ends",
    details: "For training in two stages: a run whose --model is another run of the figure, or a " +
      "checkpoint of it, continues there on the x axis.",
  },
});

const figureFlags = flagGroup("Figure", {
  log: {
    type: "choice",
    choices: ["x", "y"],
    list: "comma",
    summary: "Axes with a logarithmic scale",
    details: "--log x,y for both.",
  },
  title: {
    type: "string",
    defaultText: "the measure",
    summary: "Title of the SVG figure",
    requires: ["svg"],
    details: "Stands above the curves.",
  },
  svg: {
    type: "output",
    placeholder: "FILE",
    summary: "Draw the figure as SVG too",
    details: "The file appears complete or not at all.",
  },
  height: {
    type: "int",
    min: 5,
    max: 200,
    default: 16,
    unit: "lines",
    summary: "Height of the figure on the terminal",
    details: "Its width is that of the terminal.",
  },
});

export const command = defineCommand({
  description:
    "Draws training and validation loss of several runs into one figure, on the terminal and as SVG, " +
    "as the paper's figures of two-stage training, repeated data and continual training do. A run " +
    "that is still going is drawn as far as it is.\n\n" +
    "With --json or --jsonl every curve comes with all its points.",
  examples: {
    "Two runs by tokens": "parscale plot run-p1 run-p4",
    "A figure for a paper":
      "parscale plot run-p1 run-p4 --label P=1,P=4 --ema 0.98 --log x --svg loss.svg",
    "Both stages of two-stage training, one after the other":
      "parscale plot stage1 stage2 --chain --svg stages.svg",
    "Repeated data: where validation loss turns": "parscale plot epochs --measure eval --x steps",
  },
  arguments: [
    { name: "RUN", summary: "Folders of runs, files like metrics.jsonl, or -", repeated: true },
  ],
  flags: { ...curveFlags, ...figureFlags },
});
