/** Flags of commands that open a model. */
import type { Argument } from "../framework/command.ts";
import { flagGroup, type FlagTable } from "../framework/table.ts";

/** The checkpoint to run; for commands that need one. */
export const modelFlags = {
  model: {
    type: "path",
    letter: "m",
    required: true,
    group: "Model",
    summary: "Checkpoint folder, GGUF file, or OWNER/NAME[@REVISION] on the hub",
    details: "A Qwen2, Qwen2.5, Qwen3, Llama (SmolLM and SmolLM2 too) or ParScale checkpoint as " +
      "Hugging Face lays it out, or a .gguf file of such a model. A path that exists is never " +
      "looked up on the hub, where OWNER/NAME:Q8_0 and OWNER/NAME:FILE.gguf name a GGUF file.",
  },
  batch: {
    type: "int",
    min: 1,
    max: 1024,
    default: 8,
    group: "Engine",
    unit: "sequences",
    summary: "Batch size",
    details: "More is faster per sequence and takes more memory; fewer run at a time where as " +
      "many would not fit into `--memory-limit`, or else four fifths of the free memory. A row's " +
      "result does not depend on the others beyond rounding.",
  },
} as const satisfies FlagTable;

/** Smoothing of a model's aggregation, for commands that give it streams. */
export const smoothingFlag = {
  type: "number",
  min: 0,
  max: 1,
  summary: "Smoothing of the aggregation weights (paper: 0.1)",
  details: "Keeps streams from dying early in training; the paper uses 0.1.",
} as const;

/** First argument of commands that open a model. */
export const modelArgument = {
  name: "MODEL",
  summary: "the model, in place of --model",
  sets: "model",
} as const satisfies Argument;

/** Adapters by name, for commands that keep several over one backbone. */
export const namedAdapterFlag = {
  type: "path",
  list: "repeat",
  placeholder: "NAME=PATH",
  group: "Model",
  details: "PATH is a folder written by `convert --introduced-only` or by training with " +
    "--train-params introduced. The backbone is loaded once.",
} as const;

/** Template of conversations, for commands that take messages. */
export const chatTemplateFlag = {
  "chat-template": {
    type: "path",
    group: "Model",
    placeholder: "FILE",
    defaultText: "the model's own",
    summary: "Jinja template that makes a prompt of messages",
    details: "As in `chat_template.jinja` of a checkpoint. For base models, and for tools with a " +
      "model whose template has none.",
  },
} as const satisfies FlagTable;

/** Quantization of weights, for commands that run or export a model. */
export const quantizeFlags = flagGroup("Engine", {
  quantize: {
    type: "choice",
    choices: ["none", "q8", "q4"],
    defaultText: "as stored",
    summary: "Quantize weights to 8 or 4 bits",
    details:
      "Takes less memory and is faster, at some loss of quality. Matrices are quantized while " +
      "loading, by block of columns; convert --quantize does it once. On cpu and webgpu, which " +
      "keep the codes of GGUF files (of Q4_1 files not); none dequantizes them.",
  },
  "block-size": {
    type: "int",
    min: 16,
    max: 256,
    defaultText: "32",
    summary: "Columns that share one scale with --quantize",
    details: "A power of two. Larger blocks take less memory, are less exact, and on some " +
      "processors faster.",
  },
});

/** Quantization, for commands that load a model at every start. */
export const keptQuantizeFlags = flagGroup("Engine", {
  ...quantizeFlags,
  "weight-cache": {
    type: "switch",
    default: true,
    summary: "Keep quantized weights for the next start",
    details: "Those of `--quantize` and of GGUF files, in the cache folder, unless the model is " +
      "small. The next start maps them; `doctor` shows how much there is.",
  },
  "cache-limit": {
    type: "size",
    min: 0,
    default: 10 * 2 ** 30,
    unit: "bytes",
    summary: "Maximum size of the cache of quantized weights",
    details: "Weights that were not used for longest are removed.",
  },
});

/** Variables of the chat template, for commands that render conversations. */
export const templateVarFlag = flagGroup("Model", {
  "template-var": {
    type: "string",
    list: "repeat",
    placeholder: "NAME=VALUE",
    summary: "Variable of the chat template, such as enable_thinking=false",
    details:
      "VALUE is JSON, or else text. A variable that the template does not read is an error, " +
      "unless it is false or null.",
  },
});
