/** `parscale fit`: the scaling law of a set of losses, how sure it is, and what follows from it. */
import { fitFlags } from "./flags.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "fit",
  summary: "Fit a scaling law to losses and query it",
  description:
    "Fits loss as a function of parameters N and streams P, as the ParScale paper does: Huber losses " +
    "of logarithms, from a grid of 300 starting points, here each down to the optimum itself.\n\n" +
    "Observations are rows of n_params, streams and loss, as CSV, JSON or JSON lines. A folder of " +
    "`parscale train` is one observation: its last eval_loss, or else its smoothed training loss. " +
    "N counts parameters without embeddings, with prefixes and aggregator, at the P in question: " +
    "from one stream to eight it grows by one or two percent.\n\n" +
    "A law printed without intervals says more than it knows: pass --bootstrap 500. The exit code is " +
    "1 when no optimum was reached.",
  examples: [
    {
      text: "The paper's law for Stack-V2-Python, with intervals",
      line: "parscale fit --data-set stack-v2-python --bootstrap 500",
    },
    {
      text: "Predict a model from your own losses",
      line: "parscale fit losses.csv --bootstrap 200 --predict 1.6e9,8 --json",
    },
    { text: "From training runs", line: "parscale fit run-p1 run-p2 run-p4 --law chinchilla" },
    {
      text: "Which law is right?",
      line: "parscale fit --data-set stack-v2-python --law both",
    },
    {
      text: "The parameters that the paper prints, and how much eight streams save",
      line: "parscale fit --preset paper --saving 8 --params-for 1.05,8",
    },
    {
      text: "The figure",
      line: "parscale fit --data-set stack-v2-python --curves curves.svg",
    },
  ],
  arguments: [
    {
      name: "FILE|-|RUN_FOLDER",
      summary: "Observations: files, stdin, or folders of runs",
      repeated: true,
    },
  ],
  flags: fitFlags,
  presets: {
    paper: {
      summary: "The parameters that the paper prints, instead of a fit",
      values: { parameters: "paper" },
    },
  },
  async run(values, io, invocation) {
    const { runFit } = await import("./run.ts");
    return await runFit(values, io, invocation);
  },
});
