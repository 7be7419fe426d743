/** Flags of `parscale bench`: what is timed, and how often. */
import { defineCommand } from "../../framework/command.ts";
import { engineFlags } from "../../framework/common.ts";
import { flagGroup, type FlagTable } from "../../framework/table.ts";
import { modelArgument, modelFlags, quantizeFlags } from "../../input/model_flags.ts";

const workFlags = flagGroup("Work", {
  what: {
    type: "choice",
    choices: ["decode", "prefill", "train"],
    list: "comma",
    default: ["decode", "prefill"],
    summary: "What to benchmark: decode, prefill, training or several",
    details:
      "decode is a step that adds a token to every sequence; prefill is a whole prompt for " +
      "every sequence; train is a training step over a prompt for every sequence.",
  },
  "train-params": {
    type: "choice",
    choices: ["all", "introduced"],
    list: "comma",
    requires: ["what=train"],
    defaultText: "all",
    summary: "Train all parameters, or only the ParScale parameters; both are compared",
    details: "As `train` has it. Rows of --what train name them under `train_params`.",
  },
  streams: {
    type: "int",
    min: 1,
    max: 64,
    list: "comma",
    letter: "P",
    defaultText: "those of the model",
    summary: "Numbers of streams to benchmark",
    details: "Where they are not the model's own, prefixes and aggregator are random ones over " +
      "the same backbone, which takes as long; rows say so under `introduced`.",
  },
  batch: {
    type: "int",
    min: 1,
    max: 1024,
    list: "comma",
    default: [1],
    unit: "sequences",
    summary: "Batch size",
    details: "A step of decode gives each of them one token.",
  },
  context: {
    type: "int",
    min: 1,
    list: "comma",
    unit: "tokens",
    defaultText: "512, or what the model's context leaves",
    summary: "Cached tokens before decode",
    details: "They count as cached without having been computed, which changes no time.",
  },
  prompt: {
    type: "int",
    min: 1,
    list: "comma",
    unit: "tokens",
    defaultText: "512, or the model's context",
    summary: "Prompt length for prefill and train",
    details: "prefill takes it in by chunks, as generate does; train as one row.",
  },
});

const timingFlags = flagGroup("Timing", {
  rounds: {
    type: "int",
    min: 1,
    max: 10_000,
    default: 5,
    summary: "Timed rounds",
    details: "Rows take turns, so that a busy machine slows all of them alike.",
  },
  steps: {
    type: "int",
    min: 1,
    max: 10_000,
    default: 8,
    summary: "Decode steps per round",
    details: "Each is a sample.",
  },
  warmup: {
    type: "int",
    min: 1,
    max: 1000,
    default: 1,
    summary: "Warm-up rounds",
    details: "The first one loads weights and compiles.",
  },
});

const deviceFlags = {
  ...engineFlags,
  device: {
    ...engineFlags.device,
    list: "comma",
    default: ["auto"],
    summary: "Devices to compute on; several are compared",
  },
  quantize: {
    ...quantizeFlags.quantize,
    list: "comma",
    summary: "Quantize weights to 8 or 4 bits; several are compared",
  },
  "block-size": quantizeFlags["block-size"],
} as const satisfies FlagTable;

export const command = defineCommand({
  description:
    "Times a model on made-up tokens: decode, one step after another with --context cached " +
    "tokens; prefill, a prompt of --prompt tokens; and with --what train a training step over " +
    "such prompts: forward and backward pass, clipping and AdamW. One row per combination of the " +
    "lists. All engines are open at once and take turns, round by round.\n\n" +
    "A row holds every sample in `samples_ms`: the time of a step for decode and train, of the " +
    "whole prompt for prefill. `median_ms` is their median, `spread_ms` the distance between their quartiles, " +
    "`tokens_per_s` what the median means for all sequences together, `ratio` the median over that " +
    "of the first row of its kind. `introduced` tells whether prefixes and aggregator are the " +
    "model's own, random because another number of streams was asked for, or absent.",
  examples: {
    "What do streams cost on this machine?": "parscale bench --model qwen-p4 --streams 1..8*2",
    "Quantised against exact, after a long context":
      "parscale bench --model qwen-p4 --what decode --quantize none,q8,q4 --context 4k",
    "Training, in full and of the ParScale parameters alone":
      "parscale bench --model qwen-p4 --what train --train-params all,introduced --batch 4",
  },
  arguments: [modelArgument],
  flags: { model: modelFlags.model, ...workFlags, ...timingFlags, ...deviceFlags },
});
