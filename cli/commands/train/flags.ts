/** The flag table of `parscale train`. */
import { modelArgument, smoothingFlag, templateVarFlag } from "../../input/model_flags.ts";
import { defineCommand, type Preset } from "../../framework/command.ts";
import { engineFlags } from "../../framework/common.ts";
import { flagGroup, type FlagTable } from "../../framework/table.ts";
import { rankFlags, runFlags, trainingFlags } from "./loop_flags.ts";

const model = flagGroup("Model", {
  model: {
    type: "path",
    letter: "m",
    summary: "Folder, GGUF file, run or OWNER/NAME[@REVISION] on the hub",
    details: "A plain model is given streams with --streams; a ParScale one keeps its own.",
  },
  init: {
    type: "choice",
    choices: ["checkpoint", "scratch"],
    default: "checkpoint",
    requires: ["config-from"],
    summary: "Start from a checkpoint or from random weights",
    details: "scratch takes --config-from in place of --model.",
  },
  "config-from": {
    type: "path",
    placeholder: "SHAPE|PATH",
    requires: ["init=scratch"],
    summary: "Shape of a new model: paper-1.6b, a folder or a config.json",
    details:
      "Shapes of the paper's appendix C are paper-0.5b, paper-0.7b, paper-1.1b, paper-1.6b, " +
      "paper-2.8b and paper-4.4b. A folder's tokenizer is used and saved with the model; for " +
      "other shapes pass --tokenizer, unless the data are rows of tokens.",
  },
  tokenizer: {
    type: "path",
    placeholder: "FOLDER",
    defaultText: "that of --config-from",
    requires: ["init=scratch"],
    summary: "Folder, or organisation/name, whose tokenizer a new model gets",
    details: "Its files are saved with the model. Needs --init scratch; a checkpoint has its own.",
  },
  ...templateVarFlag,
  "init-std": {
    type: "number",
    above: 0,
    default: 0.02,
    onlyWith: ["init=scratch"],
    summary: "Standard deviation of random initialization",
    details: "Norm weights start at one and biases at zero.",
  },
  streams: {
    type: "int",
    min: 1,
    max: 64,
    letter: "P",
    defaultText: "those of the checkpoint",
    summary: "Number of streams to add to a plain model",
    details: "As `parscale convert` does, without a folder in between.",
  },
  transform: {
    type: "choice",
    choices: ["prefix", "lora", "bitfit"],
    list: "comma",
    defaultText: "prefix",
    summary: "Input transformation of the streams",
    details: "prefix is the paper's choice; lora and bitfit, a low-rank update or a bias per " +
      "stream in every projection, are those of its ablation. With --streams 1 it must be named.",
  },
  "prefix-tokens": {
    type: "int",
    min: 0,
    max: 65536,
    defaultText: "those of the checkpoint, or 48",
    summary: "Prefix tokens per stream and layer",
    details:
      "Each is a learned key and value in every attention layer. With 0 all streams compute " +
      "the same: a control for experiments.",
  },
  "prefix-init": {
    type: "choice",
    choices: ["text", "normal"],
    defaultText: "text where streams are added to a checkpoint with a tokenizer",
    summary: "Initialize new prefixes from a text or randomly",
    details:
      "text lets the streams of a pretrained model begin as good as their source. normal is " +
      "the paper's way, and that of models from scratch.",
  },
  "lora-rank": {
    type: "int",
    min: 1,
    max: 4096,
    defaultText: "8",
    summary: "Rank of --transform lora",
    details: "The update is scaled by two, that is, alpha is twice the rank.",
  },
  smoothing: { ...smoothingFlag, defaultText: "that of the checkpoint, or 0.1" },
  aggregation: {
    type: "choice",
    choices: ["dynamic", "linear", "static", "average"],
    defaultText: "that of the checkpoint, or dynamic",
    summary: "How streams are aggregated",
    details: "dynamic: a weighted sum, by an MLP at every token. linear: a linear map of the " +
      "concatenated streams, which starts as their average. static: one learned weight per stream. " +
      "average: equal weights. linear has a format of its own, which the authors' code cannot open.",
  },
  reparameterize: {
    type: "int",
    min: 0,
    max: 65536,
    default: 0,
    placeholder: "HIDDEN",
    summary: "Hidden size of the reparameterization MLP; 0 turns it off",
    details: "The MLP is folded into plain prefixes when the model is saved. Prefixes of a " +
      "ParScale checkpoint are started anew.",
  },
  "rope-theta": {
    type: "number",
    above: 0,
    defaultText: "that of the checkpoint",
    summary: "New base of the rotary embedding, for longer context",
    details: "Qwen2.5 has 1,000,000.",
  },
  context: {
    type: "int",
    min: 1,
    unit: "tokens",
    defaultText: "that of the checkpoint",
    summary: "New context length of the model",
    details: "Written as max_position_embeddings; rows may not be longer.",
  },
  "save-dtype": {
    type: "choice",
    choices: ["f32", "bf16", "f16"],
    defaultText: "that of the checkpoint",
    summary: "Data type of saved weights",
    details: "Training itself is in f32, and so is the state it resumes from.",
  },
});

const data = flagGroup("Data", {
  data: {
    type: "path",
    list: "several",
    placeholder: "PATH[=WEIGHT]",
    summary: "Files, folders, globs, hf:// or - (stdin)",
    details:
      "JSON lines with `text`, `tokens`, `prompt` and `completion`, or `messages`; parquet " +
      "with such columns; anything else is plain text, a document a file. gzip and zstd are unpacked. " +
      "All paths up to the next flag are taken. With weights, rows are drawn in " +
      "these shares, each source in epochs of its own. hf://datasets/OWNER/NAME[@REVISION]/GLOB " +
      "reads parquet or JSON lines from the hub, file by file, until --tokens or --steps are " +
      "covered; only the tokens are kept.",
  },
  "text-column": {
    type: "string",
    placeholder: "NAME",
    defaultText: "text",
    summary: "Column that holds the text of data on the hub",
    details: "A field of a field is written with a dot.",
  },
  where: {
    type: "string",
    list: "repeat",
    placeholder: "COLUMN=VALUE",
    summary: "Read only such rows of data on the hub; may be repeated",
    details: "All conditions must hold. Example: --where metadata.language=Python.",
  },
  "seq-len": {
    type: "int",
    min: 2,
    unit: "tokens",
    defaultText: "2048, or the model's context",
    summary: "Tokens per row",
    details: "Longer texts are cut into rows; other documents may not be longer.",
  },
  pack: {
    type: "switch",
    default: true,
    summary: "Pack several documents into one row",
    details: "Attention does not cross their borders, and positions restart. Without, each row " +
      "is one document, padded to the longest.",
  },
  shuffle: {
    type: "switch",
    default: true,
    summary: "Shuffle documents every epoch",
    details: "Every epoch has an order of its own, decided by the seed.",
  },
  "long-rows": {
    type: "choice",
    choices: ["error", "drop", "truncate"],
    default: "error",
    summary: "What to do with documents that do not fit a row",
    details: "Concerns prompts, messages and, without packing, tokens.",
  },
  "skip-bad-files": {
    type: "switch",
    summary: "Leave out files that cannot be read",
    details: "Such as text that is not UTF-8; a note counts them. Empty files are always left out.",
  },
  "end-token": {
    type: "int",
    min: 0,
    placeholder: "ID",
    defaultText: "<|endoftext|>, <|end_of_text|> or the checkpoint's first end token",
    summary: "Token that ends a document",
    details: "Added after texts and completions. Rows of tokens stay as they are.",
  },
  "eval-data": {
    type: "path",
    list: "several",
    placeholder: "PATH",
    summary: "Validation data",
    details: "Its loss is computed every --eval-every steps and at the end.",
  },
  "eval-split": {
    type: "number",
    above: 0,
    below: 1,
    placeholder: "SHARE",
    conflictsWith: ["eval-data"],
    summary: "Fraction of documents held out for validation",
    details: "Decided by the seed. Only without weights.",
  },
  "eval-tokens": {
    type: "int",
    min: 1,
    unit: "tokens",
    defaultText: "16,384 of --eval-split; all of --eval-data",
    onlyWith: ["eval-data", "eval-split", "resume"],
    summary: "Maximum number of tokens of a validation",
    details: "Up to whole rows, the first ones, so that every validation reads the same.",
  },
});

export const trainFlags = {
  ...model,
  ...data,
  ...trainingFlags,
  ...runFlags,
  ...rankFlags,
  ...engineFlags,
  dtype: { ...engineFlags.dtype, choices: ["auto", "f32", "bf16"] },
  "memory-limit": {
    ...engineFlags["memory-limit"],
    summary: "Fit the run into this much memory, or fail",
    defaultText: "the free memory",
    details: "By fewer rows at a time and by recomputed activations, where neither is given.",
  },
} as const satisfies FlagTable;

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

/** Streams as in appendix A: 48 random prefix tokens, ε 0.1. */
const STREAMS = { "prefix-tokens": 48, "prefix-init": "normal", smoothing: 0.1 } as const;

/** Most leave the length of a run open; what the paper leaves unsaid is that of its pre-training runs. */
const presets: Readonly<Record<string, Preset>> = {
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

export const command = defineCommand({
  description:
    "Trains a Qwen, Llama or ParScale checkpoint on texts, prompts with completions, conversations or " +
    "rows of tokens. A plain checkpoint is given streams with --streams. Documents are packed into " +
    "rows without seeing each other; the loss is the mean over all tokens that count.\n\n" +
    "The run folder gets a line of metrics per step and checkpoints; --resume continues from the " +
    "last one, bit for bit. It can be passed as --model or --adapter to every other command.\n\n" +
    "One rate for everything is the paper's way. Prefixes and aggregator that are trained alone take " +
    "higher ones by default: see --lr-prefix and --lr-aggregator.",
  examples: {
    "Only prefixes and aggregator of four streams":
      "parscale train --model qwen2.5-0.5b --streams 4 --train-params introduced " +
      "--data corpus.jsonl.gz --tokens 20M --out run",
    "Continue after an interruption": "parscale train --resume --out run",
    "See what would be done, with the memory it takes":
      "parscale train --preset paper-cpt --model qwen-p4 --data corpus --tokens 1B " +
      "--micro-batch 4 --out run --dry-run",
  },
  arguments: [modelArgument],
  flags: trainFlags,
  atLeastOneOf: [["model", "config-from", "resume"], ["data", "resume"]],
  presets,
  savesOnInterrupt: true,
});
