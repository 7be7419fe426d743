/** Flags of `parscale train` that concern the course of the run and its folder. */
import { flagGroup } from "../../framework/table.ts";

export const trainingFlags = flagGroup("Training", {
  "train-params": {
    type: "choice",
    choices: ["all", "introduced"],
    defaultText: "all; introduced over a .gguf file",
    summary: "Train all parameters, or only the ParScale parameters",
    details:
      "introduced saves adapters and leaves the backbone untouched. Over a .gguf file all has " +
      "to be asked for: every checkpoint then holds the whole model.",
  },
  steps: {
    type: "int",
    min: 1,
    summary: "Number of steps",
    details: "With several lengths the shortest counts.",
  },
  tokens: {
    type: "int",
    min: 1,
    unit: "tokens",
    summary: "Number of tokens, padding included",
    details: "For instance 20M or 1.5B; rounded up to whole steps.",
  },
  epochs: {
    type: "int",
    min: 1,
    group: "Training",
    defaultText: "1 if neither --steps nor --tokens is given",
    summary: "Number of epochs",
    details: "With --steps or --tokens alone the data is repeated as often as needed.",
  },
  batch: {
    type: "int",
    min: 1,
    default: 8,
    unit: "rows",
    summary: "Batch size: rows per step",
    details: "The loss is a mean over the tokens of all of them.",
  },
  "micro-batch": {
    type: "int",
    min: 1,
    unit: "rows",
    defaultText: "--batch, or less to fit the memory",
    summary: "Micro-batch: rows computed at a time",
    details: "Must divide --batch. Smaller takes less memory and gives the same result.",
  },
  lr: {
    type: "number",
    min: 0,
    defaultText: "3e-4; of ParScale parameters trained alone see --lr-prefix",
    summary: "Peak learning rate",
    details: "Of the backbone, and of the others unless they have their own.",
  },
  "lr-prefix": {
    type: "number",
    min: 0,
    defaultText: "--lr; with --train-params introduced 0.02 from text and 0.1 from random prefixes",
    summary: "Peak learning rate of prefixes and other transformations",
    details:
      "LoRA and BitFit take 0.001. The defaults suit models of 0.1 to 1 billion parameters; " +
      "much smaller ones take more.",
  },
  "lr-aggregator": {
    type: "number",
    min: 0,
    defaultText: "--lr; 0.0001 with --train-params introduced",
    summary: "Peak learning rate of the aggregator",
    details: "Too high, and one stream does all the work.",
  },
  "lr-min": {
    type: "number",
    min: 0,
    defaultText: "1e-5, or a tenth of --lr where that is less",
    onlyWith: ["schedule=cosine", "schedule=wsd", "resume"],
    summary: "Learning rate at the end of the schedule",
    details: "Rates of groups fall by the same factor as --lr.",
  },
  schedule: {
    type: "choice",
    choices: ["cosine", "wsd", "constant"],
    default: "cosine",
    summary: "Learning rate schedule after warm-up",
    details: "wsd stays at the peak and falls linearly over the last --decay-steps.",
  },
  warmup: {
    type: "int",
    min: 0,
    unit: "steps",
    defaultText: "2000, or a tenth of a shorter run",
    summary: "Steps of linear warm-up",
    details: "The peak is reached with the last of them.",
  },
  "decay-steps": {
    type: "int",
    min: 1,
    unit: "steps",
    defaultText: "a tenth of the run",
    onlyWith: ["schedule=wsd", "resume"],
    summary: "Steps of the decay phase of --schedule wsd",
    details: "The presets paper-stage1 and paper-stage2 are the two phases of WSD as two runs.",
  },
  "weight-decay": {
    type: "number",
    min: 0,
    default: 0.1,
    summary: "Decoupled weight decay",
    details: "For matrices, embeddings and prefixes; not for biases and norms.",
  },
  clip: {
    type: "number",
    min: 0,
    default: 1,
    summary: "Gradient clipping by global norm; 0 turns it off",
    details: "One norm over all trained parameters.",
  },
  beta1: {
    type: "number",
    min: 0,
    below: 1,
    default: 0.9,
    summary: "AdamW beta1",
    details: "Moments are kept in f32.",
  },
  beta2: {
    type: "number",
    min: 0,
    below: 1,
    default: 0.95,
    summary: "AdamW beta2",
    details: "Moments are kept in f32.",
  },
  "adam-epsilon": {
    type: "number",
    above: 0,
    default: 1e-8,
    summary: "AdamW epsilon",
    details: "Added to the root of the mean square.",
  },
  "checkpoint-activations": {
    type: "switch",
    summary: "Activation checkpointing: recompute each layer in the backward pass",
    details: "Takes much less memory and about a third more time; the result is the same. On by " +
      "itself where a run would not fit the memory otherwise.",
  },
});

export const runFlags = flagGroup("Run", {
  out: {
    type: "output",
    default: "run",
    letter: "o",
    group: "Run",
    placeholder: "FOLDER",
    summary: "Folder of the run",
    details: "Gets config.json, metrics.jsonl, checkpoints, and `last`, the newest one's name.",
  },
  resume: {
    type: "switch",
    configurable: false,
    summary: "Resume the run in --out, or start one",
    details:
      "Flags come from the run; the result is the same bit for bit as without a break. With " +
      "--data a run starts where there is none, so that one command can be repeated until it exits " +
      "with 0.",
  },
  "save-every": {
    type: "int",
    min: 1,
    default: 500,
    unit: "steps",
    summary: "Steps between checkpoints",
    details: "The end of the run and an interruption save too.",
  },
  keep: {
    type: "int",
    min: 1,
    defaultText: "all",
    summary: "Number of newest checkpoints to keep",
    details: "Older ones are removed after a save.",
  },
  "eval-every": {
    type: "int",
    min: 1,
    default: 100,
    unit: "steps",
    onlyWith: ["eval-data", "eval-split", "resume"],
    summary: "Steps between validations",
    details: "The last step is validated too.",
  },
  "log-every": {
    type: "int",
    min: 1,
    default: 10,
    unit: "steps",
    summary: "Steps between progress lines where none is redrawn",
    details: "metrics.jsonl has every step.",
  },
  tensorboard: {
    type: "switch",
    summary: "Also write TensorBoard event files",
    details: "Into the folder tensorboard of the run.",
  },
});

export const rankFlags = flagGroup("Ranks", {
  deterministic: {
    type: "switch",
    summary: "Add up gradients in the same order in every run",
    details:
      "NCCL then leaves out algorithms whose order of additions changes, so that runs on several " +
      "GPUs agree bit for bit. Processes on one GPU or on processors always do.",
  },
  dist: {
    type: "choice",
    choices: ["auto", "solo", "mpi", "nccl"],
    default: "auto",
    summary: "How the processes of a launcher train together",
    details:
      "auto: those that mpirun, srun or torchrun started train together, on GPUs by NCCL and on " +
      "processors by MPI; a process without a launcher trains alone. --batch is that of all " +
      "together, and the result is that of one process but for rounding.",
  },
  "shard-optimizer": {
    type: "switch",
    default: true,
    summary: "Keep the moments of one slice per rank (ZeRO-1)",
    details: "Without it every rank keeps all of them. Nothing changes for a single process.",
  },
  "dist-timeout": {
    type: "duration",
    min: 1,
    default: 600,
    summary: "How long to wait for the other ranks in a step",
    details:
      "Longer than a step and the saving of a checkpoint take. After it the run ends with exit " +
      "code 4 and the command that resumes it.",
  },
  ranks: {
    type: "int",
    min: 1,
    max: 1_000_000,
    configurable: false,
    requires: ["dry-run"],
    summary: "With --dry-run: plan for this many ranks",
    defaultText: "those of the launcher",
    details: "Shows the memory of each rank on a machine that has none of them.",
  },
});
