/** `parscale plot`: loss curves of training runs. */
import { plotFlags } from "./flags.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "plot",
  summary: "Draw loss curves of training runs",
  description:
    "Draws training and validation loss of several runs into one figure, on the terminal and as SVG, " +
    "as the paper's figures of two-stage training, repeated data and continual training do. A run " +
    "that is still going is drawn as far as it is.\n\n" +
    "With --json or --jsonl every curve comes with all its points.",
  examples: [
    { text: "Two runs by tokens", line: "parscale plot run-p1 run-p4" },
    {
      text: "A figure for a paper",
      line: "parscale plot run-p1 run-p4 --label P=1,P=4 --ema 0.98 --log x --svg loss.svg",
    },
    {
      text: "Three seeds of two settings, each a mean with its range",
      line: "parscale plot a0 a1 a2 b0 b1 b2 --label P=1,P=1,P=1,P=4,P=4,P=4 --svg seeds.svg",
    },
    {
      text: "Both stages of two-stage training, one after the other",
      line: "parscale plot stage1 stage2 --chain --svg stages.svg",
    },
    {
      text: "Repeated data: where validation loss turns",
      line: "parscale plot epochs --measure eval --x steps",
    },
  ],
  arguments: [
    { name: "RUN", summary: "Folders of runs, files like metrics.jsonl, or -", repeated: true },
  ],
  flags: plotFlags,
  async run(values, io, invocation) {
    const { runPlot } = await import("./run.ts");
    await runPlot(values, io, invocation);
  },
});
