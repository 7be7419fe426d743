/** `parscale cost`: predicts memory and latency of a model on given hardware. */
import { costFlags } from "./flags.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "cost",
  summary: "Estimate memory and latency on given hardware",
  description:
    "Computes memory, latency and arithmetic of generation, or of a training step, from the shape " +
    "of a model and the rates of the hardware. Nothing is run unless --measured asks for it.\n\n" +
    "--method exact, the default, is a roofline; --method paper gives the numbers of the ParScale " +
    "paper's own script to the last digit.\n\n" +
    "`parscale cost ls` prints the hardware that is known by name.",
  examples: [
    {
      text: "What do more streams cost on one A100?",
      line: "parscale cost --model qwen-p4 --streams 1..8*2 --batch 1,4",
    },
    {
      text: "The paper's figure: loss against memory and latency",
      line: "parscale cost --method paper --svg cost.svg",
    },
    {
      text: "A shape without files, on hardware of your own",
      line: "parscale cost --hidden-size 2048 --intermediate-size 11008 --hardware mine " +
        "--bandwidth 200 --tflops 20 --capacity 16",
    },
    {
      text: "Does training fit?",
      line: "parscale cost --mode train --model 1.6B --streams 4 --train-params introduced " +
        "--batch 64 --micro-batch 1..8*2 --recompute",
    },
    {
      text: "Is it true here?",
      line: "parscale cost --model qwen-p4 --measured --streams 1,4 --input 128 --output 32",
    },
  ],
  arguments: [
    { name: "ls", summary: "List the known hardware", choices: ["ls"] },
  ],
  flags: costFlags,
  async run(values, io, invocation) {
    const { runCost } = await import("./run.ts");
    await runCost(values, io, invocation);
  },
});
