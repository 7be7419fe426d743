/**
 * The paper's training recipes as presets. Most leave the length of a run open: give `--steps`,
 * `--tokens` or `--epochs`. What the paper leaves unsaid about a recipe is that of its pre-training runs.
 */
import type { Preset } from "../../framework/resolve.ts";

/** Section 3.1 and appendix C: 1,024 rows of 2,048 tokens a step, warm-up to 3e-4, cosine to 1e-5. */
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

/** A new model as in appendix C. It trains in bf16 where the device has it, and is saved so. */
const SCRATCH = {
  ...PAPER,
  init: "scratch",
  "init-std": 0.02,
  "rope-theta": 10_000,
  "save-dtype": "bf16",
  "train-params": "all",
} as const;

/** Streams as in appendix A: 48 prefix tokens, ε 0.1. */
const STREAMS = { "prefix-tokens": 48, smoothing: 0.1 } as const;

export const trainPresets: Readonly<Record<string, Preset>> = {
  "paper-scratch": {
    summary: "Pre-training from scratch, as for the scaling law",
    values: SCRATCH,
  },
  "paper-stage1": {
    summary: "Stage one of two-stage training: one stream, constant learning rate",
    values: { ...SCRATCH, schedule: "constant" },
  },
  "paper-stage2": {
    summary: "Stage two: the model of stage one gets streams, the learning rate anneals to 1e-5",
    values: { ...PAPER, ...STREAMS, warmup: 0, "train-params": "all" },
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
    summary: "Instruction tuning on messages for two epochs, 8,192 tokens a row",
    values: {
      ...PAPER,
      "seq-len": 8192,
      context: 8192,
      "rope-theta": 100_000,
      epochs: 2,
      "train-params": "all",
      "long-rows": "truncate",
    },
  },
  "paper-openwebtext": {
    summary: "Pre-training on repeated data with a validation loss; give --epochs",
    values: { ...SCRATCH, "eval-split": 0.005 },
  },
};
