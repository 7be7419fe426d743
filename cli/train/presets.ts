/**
 * The paper's training recipes as presets. None sets the length of a run: give `--steps`, `--tokens`
 * or `--epochs`.
 */
import type { Preset } from "../flags/resolve.ts";

/** What all of the paper's runs share: 1,024 rows of 2,048 tokens a step, cosine to 1e-5. */
const PAPER = {
  batch: 1024,
  "seq-len": 2048,
  lr: 3e-4,
  "lr-min": 1e-5,
  schedule: "cosine",
  warmup: 2000,
  "weight-decay": 0.1,
  clip: 1,
  beta1: 0.9,
  beta2: 0.95,
  "adam-epsilon": 1e-8,
} as const;

/** How streams are made in the paper: 48 prefix tokens, ε 0.1. */
const STREAMS = { "prefix-tokens": 48, smoothing: 0.1 } as const;

export const trainPresets: Readonly<Record<string, Preset>> = {
  "paper-scratch": {
    summary: "Pre-training from scratch, also stage one of two-stage training at one stream",
    values: { ...PAPER, init: "scratch", "init-std": 0.02, schedule: "wsd", "train-params": "all" },
  },
  "paper-stage2": {
    summary: "Stage two: a pre-trained model goes on with streams, everything trained",
    values: { ...PAPER, ...STREAMS, "train-params": "all" },
  },
  "paper-cpt": {
    summary: "Continual pre-training of an existing checkpoint, everything trained",
    values: { ...PAPER, ...STREAMS, "train-params": "all" },
  },
  "paper-peft": {
    summary: "Only prefixes and aggregator, over a frozen checkpoint",
    values: { ...PAPER, ...STREAMS, "train-params": "introduced" },
  },
  "paper-instruct": {
    summary: "Instruction tuning on messages, loss on the assistant's turns",
    values: { ...PAPER, "train-params": "all", "long-rows": "truncate" },
  },
};
