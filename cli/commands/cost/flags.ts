/** Flags of `parscale cost`. Defaults that depend on others are resolved in `setting.ts`. */
import { modelArgument } from "../../input/model_flags.ts";
import { DEVICES } from "../../../core/analysis/devices.ts";
import { defineCommand } from "../../framework/command.ts";
import { engineFlags } from "../../framework/common.ts";
import { flagGroup } from "../../framework/table.ts";

const { threads, unverified } = engineFlags;

/** Shared by the flags that describe a model without any file. */
const sizeFlag = { type: "int", min: 1, conflictsWith: ["model", "config-from"] } as const;

const modelFlags = flagGroup("Model", {
  model: {
    type: "path",
    placeholder: "FOLDER|FILE|SIZE|-",
    summary: "Checkpoint or run folder, config.json, or a size of the paper",
    defaultText: "none; 1.6B with --svg",
    details:
      "Sizes are 0.5B, 0.7B, 1.1B, 1.6B, 2.8B and 4.4B. Only config.json is read, so weights " +
      "need not be there, and - reads one from stdin; a model on the hub counts once it has been " +
      "downloaded.",
  },
  "config-from": {
    type: "path",
    placeholder: "SHAPE|PATH",
    conflictsWith: ["model"],
    summary: "Shape by name, folder or config.json, as in `train --config-from`",
    details: "paper-0.5b to paper-4.4b are the sizes of the paper. Stands in place of --model.",
  },
  "hidden-size": {
    ...sizeFlag,
    max: 1_000_000,
    summary: "Hidden size",
    details: "With --intermediate-size describes a model without any file.",
  },
  "intermediate-size": {
    ...sizeFlag,
    max: 10_000_000,
    summary: "Intermediate size of the MLP",
    details: "The gate and up projections each have this many outputs.",
  },
  "num-layers": {
    ...sizeFlag,
    max: 4096,
    defaultText: "36",
    summary: "Number of layers",
    details: "Without --model.",
  },
  "num-heads": {
    ...sizeFlag,
    max: 4096,
    defaultText: "16",
    summary: "Number of query heads",
    details: "Must divide --hidden-size.",
  },
  "num-kv-heads": {
    ...sizeFlag,
    max: 4096,
    defaultText: "2",
    summary: "Number of key/value heads",
    details: "Must divide --num-heads.",
  },
  "vocab-size": {
    ...sizeFlag,
    max: 100_000_000,
    defaultText: "151936",
    summary: "Vocabulary size",
    details: "Without --model.",
  },
  streams: {
    type: "int",
    letter: "P",
    min: 1,
    max: 1024,
    list: "comma",
    defaultText: "the model's, or 1",
    summary: "Number of parallel streams",
    details: "Lists and ranges: 1,2,4 or 1..8*2.",
  },
  "prefix-tokens": {
    type: "int",
    min: 0,
    max: 65_536,
    unit: "tokens",
    defaultText: "the model's, or 48",
    summary: "Prefix tokens per stream and layer",
    details: "They count only with more than one stream.",
  },
});

/** Shared by the lists of numbers that describe the work. */
const listFlag = { type: "int", min: 1, list: "comma" } as const;

const workFlags = flagGroup("Work", {
  batch: {
    ...listFlag,
    max: 1_000_000,
    default: [1],
    unit: "sequences",
    summary: "Batch size: sequences at a time",
    details: "Lists and ranges.",
  },
  input: {
    ...listFlag,
    max: 10_000_000,
    unit: "tokens",
    defaultText: "64",
    summary: "Prompt tokens",
    details: "Lists and ranges. --svg averages over 64, 128, 256 and 512 when both lengths are " +
      "left out.",
  },
  output: {
    ...listFlag,
    max: 10_000_000,
    unit: "tokens",
    defaultText: "64",
    summary: "Generated tokens",
    details: "Lists and ranges. --svg takes each --input as its own output when left out.",
  },
});

/** Shared by the numbers that describe hardware. */
const rateFlag = { type: "number", above: 0 } as const;

const hardwareFlags = flagGroup("Hardware", {
  hardware: {
    type: "string",
    placeholder: "NAME",
    defaultText: "a100-sxm-80gb",
    suggestions: DEVICES.map(({ name }) => name),
    summary: "Hardware to predict for",
    details: "`parscale cost ls` prints the names. A new one needs --bandwidth and --tflops. " +
      "this-machine is measured on the spot.",
  },
  bandwidth: {
    ...rateFlag,
    unit: "GB/s",
    defaultText: "that of the hardware",
    summary: "Memory bandwidth, 10^9 bytes per second",
    details: "Replaces that of the hardware.",
  },
  tflops: {
    ...rateFlag,
    unit: "TFLOPS",
    defaultText: "that of the hardware",
    summary: "Dense 16-bit TFLOPS",
    details: "Replaces that of the hardware; other widths follow: half for 32 bits, twice for 8, " +
      "four times for 4.",
  },
  capacity: {
    ...rateFlag,
    unit: "GiB",
    defaultText: "that of the hardware",
    summary: "Memory of the hardware, in GiB",
    details: "Configurations that exceed it are computed all the same, with a warning.",
  },
  "flops-efficiency": {
    ...rateFlag,
    max: 1,
    defaultText: "0.7; 1 on this-machine",
    summary: "Fraction of the peak FLOPS that is reached",
    details: "The official script has this flag and ignores it; here it counts.",
  },
  "memory-efficiency": {
    ...rateFlag,
    max: 1,
    defaultText: "0.9; 1 on this-machine",
    summary: "Fraction of the peak bandwidth that is reached",
    details: "The official script has this flag and ignores it; here it counts.",
  },
});

const bits = (what: string, more: string) =>
  ({
    type: "choice",
    choices: ["4", "8", "16", "32"],
    defaultText: "16",
    summary: `Bits per ${what}`,
    details: more,
  }) as const;

const methodFlags = flagGroup("Method", {
  method: {
    type: "choice",
    choices: ["exact", "paper"],
    default: "exact",
    summary: "A corrected roofline, or the paper's script to the last digit",
    details: "docs/analysis.md lists what differs.",
  },
  "weight-bits": bits(
    "weight",
    "Those of a quantized file unless given. The wider of weight and activation decides on the rate.",
  ),
  "activation-bits": bits("activation", "Of what passes between layers."),
  "cache-bits": bits("key and value", "Of the cache; it does not change the rate."),
  "prefix-cache": {
    type: "choice",
    choices: ["shared", "copied"],
    default: "shared",
    requires: ["method=exact"],
    summary: "Whether sequences share prefixes or copy them",
    details: "Only for --method exact; the paper always copies.",
  },
  "step-overhead": {
    type: "duration",
    min: 0,
    default: 0,
    requires: ["method=exact"],
    summary: "Fixed overhead per forward pass",
    details: "For launch cost that was measured, such as 20ms. Only for --method exact.",
  },
});

const questionFlags = flagGroup("Questions", {
  match: {
    type: "choice",
    choices: ["observed", "law"],
    default: "observed",
    onlyWith: ["svg"],
    summary: "Losses of --svg: observed by the paper, or of its law",
    details:
      "observed takes the paper's losses on Stack-V2-Python, for the sizes of the paper and " +
      "1, 2, 4 or 8 streams; law takes its fitted scaling law, for any model.",
  },
  svg: {
    type: "output",
    placeholder: "FILE",
    summary: "Draw loss against memory and latency, as the paper does",
    details: "Sizes of the paper, with arrows for more parameters and for more streams; means " +
      "over all batches and lengths. The file appears complete or not at all.",
  },
  device: {
    ...engineFlags.device,
    onlyWith: ["hardware=this-machine"],
    summary: "Device that --hardware this-machine measures",
  },
});

export const command = defineCommand({
  description:
    "Computes memory, latency and arithmetic of generation from the shape of a model and the rates " +
    "of the hardware. Nothing of the model is run; `parscale bench` measures it.\n\n" +
    "--method exact, the default, is a roofline; --method paper gives the numbers of the ParScale " +
    "paper's own script to the last digit.\n\n" +
    "`parscale cost ls` prints the hardware that is known by name.",
  examples: {
    "What do more streams cost on one A100?":
      "parscale cost --model qwen-p4 --streams 1..8*2 --batch 1,4",
    "The paper's figure: loss against memory and latency":
      "parscale cost --method paper --svg cost.svg",
    "A shape without files, on hardware of your own":
      "parscale cost --hidden-size 2048 --intermediate-size 11008 --hardware mine " +
      "--bandwidth 200 --tflops 20 --capacity 16",
    "On this machine": "parscale cost --model qwen-p4 --hardware this-machine --streams 1,4",
  },
  arguments: [modelArgument, { name: "ls", summary: "List the known hardware", choices: ["ls"] }],
  flags: {
    ...modelFlags,
    ...workFlags,
    ...hardwareFlags,
    ...methodFlags,
    ...questionFlags,
    threads,
    unverified,
  },
});
