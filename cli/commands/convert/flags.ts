/** `parscale convert`: a plain checkpoint becomes a ParScale one, an adapter, or plain again. */
import { engineFlags } from "../../framework/common.ts";
import {
  modelArgument,
  modelFlags,
  quantizeFlags,
  smoothingFlag,
} from "../../input/model_flags.ts";
import { defineCommand } from "../../framework/command.ts";
import { flagGroup } from "../../framework/table.ts";

export const command = defineCommand({
  description:
    "Adds the tensors that ParScale introduces, prefixes for every stream and layer and the " +
    "aggregator, to a Qwen2, Qwen2.5, Qwen3 or Llama checkpoint. Prefixes start from a text, so that " +
    "the new model is as good as its source; with --prefix-init normal they are drawn from a " +
    "normal distribution (0.02) by --seed. Every other byte is copied untouched, and its hash is " +
    "reported. The new folder appears complete or not at all.\n\n" +
    "The result is untrained: it does not yet predict better than its source.",
  examples: {
    "Four streams": "parscale convert --model qwen2.5-0.5b --streams 4 --out qwen-p4",
    "Only the new tensors, as an adapter over the same backbone":
      "parscale convert --model qwen2.5-0.5b --streams 8 --introduced-only --out p8",
    "One folder of a run that trained an adapter":
      "parscale convert --model run --merge --out merged",
    "Weights in 4 bits, which open at once":
      "parscale convert --model qwen-p4 --quantize q4 --out qwen-p4-q4",
    "Four streams over a GGUF file, which stays as it is":
      "parscale convert --model model.gguf --streams 4 --out p4",
    "A Hugging Face folder of a GGUF file": "parscale convert --model model.gguf --out folder",
    "Back to a plain model": "parscale convert --model qwen-p4 --strip --out qwen",
  },
  arguments: [modelArgument],
  flags: flagGroup("Conversion", {
    model: {
      ...modelFlags.model,
      details: "A path that exists is never looked up on the hub. A .gguf file becomes a folder " +
        "that transformers opens; with --streams it is kept, under an adapter.",
    },
    out: {
      type: "output",
      letter: "o",
      group: "Conversion",
      defaultText: "the model's name and what is made of it, such as qwen-p4 or qwen-q4",
      summary: "Output folder",
      details: "Must not exist, or --overwrite replaces it.",
    },
    streams: {
      type: "int",
      letter: "P",
      min: 2,
      max: 64,
      summary: "Number of parallel streams",
      details: "Needed unless --strip, --merge or --quantize is given, or --model is a .gguf file.",
    },
    "prefix-tokens": {
      type: "int",
      min: 0,
      max: 4096,
      default: 48,
      unit: "tokens",
      onlyWith: ["streams"],
      summary: "Learned prefix tokens per stream and layer",
      details: "The paper uses 48. With 0 all streams compute the same: a control for experiments.",
    },
    "prefix-init": {
      type: "choice",
      choices: ["text", "normal"],
      defaultText: "text; normal for a model without a tokenizer",
      onlyWith: ["streams"],
      summary: "Initialize prefixes from a text or randomly",
      details:
        "text starts every stream from the keys and values of a piece of text, and the aggregator " +
        "as an average, so that the new model begins as good as its source. normal is the " +
        "paper's way: the model has to be trained before it is of use.",
    },
    "prefix-text": {
      type: "path",
      placeholder: "FILE",
      defaultText: "a text in many languages that parscale brings along",
      conflictsWith: ["strip", "merge"],
      summary: "Text for --prefix-init text",
      details:
        "Streams take pieces spread evenly over it; best is text like that to be trained on.",
    },
    smoothing: { ...smoothingFlag, default: 0.1, onlyWith: ["streams"] },
    aggregation: {
      type: "choice",
      choices: ["dynamic", "linear"],
      default: "dynamic",
      onlyWith: ["streams"],
      summary: "How streams are aggregated",
      details: "dynamic: a weighted sum, by an MLP at every token. linear: a linear map of the " +
        "concatenated streams, which starts as their average and which the authors' code cannot open.",
    },
    seed: {
      ...engineFlags.seed,
      summary: "Seed of the new tensors",
      details: "The same seed gives the same tensors, however the files are sharded.",
    },
    "introduced-only": {
      type: "switch",
      summary: "Write only the ParScale parameters, as an adapter",
      details: "As --model it opens the checkpoint it was made from, too.",
    },
    standalone: {
      type: "switch",
      onlyWith: ["streams"],
      conflictsWith: ["introduced-only"],
      summary: "Write the backbone of a GGUF file too",
      details: "A whole folder instead of an adapter over the file, as --dtype asks for " +
        "too. It is two to four times as large as the file, and decodes more slowly.",
    },
    dtype: {
      type: "choice",
      choices: ["f32", "bf16", "f16"],
      defaultText: "as stored; bf16 for quantized tensors of a GGUF file",
      conflictsWith: ["introduced-only", "quantize"],
      summary: "Data type of the tensors written",
      details: "f32 keeps the values of quantized tensors to the last bit.",
    },
    strip: {
      type: "switch",
      group: "Conversion",
      conflictsWith: ["merge", "streams", "introduced-only"],
      summary: "Remove the ParScale parameters",
      details: "Gives back a folder that loaders of the plain model read.",
    },
    merge: {
      type: "switch",
      conflictsWith: ["streams", "introduced-only"],
      summary: "Fold an adapter, LoRA or BitFit into one folder",
      details: "--model is an adapter or its run, or a checkpoint with --adapter. " +
        "Prefixes and aggregator are written beside the backbone, for transformers. With one " +
        "stream LoRA is added to the weights and BitFit to biases; without a prefix the result is a " +
        "plain model that transformers opens, after BitFit on Qwen2 as a Llama model, which has all " +
        "the biases. LoRA and BitFit of several streams cannot be merged.",
    },
    adapter: {
      type: "path",
      requires: ["merge"],
      summary: "Adapter to fold into --model",
      details: "A folder or run with ParScale parameters. Needs --merge.",
    },
    quantize: {
      type: "choice",
      choices: ["q8", "q4"],
      conflictsWith: [
        "streams",
        "strip",
        "merge",
        "introduced-only",
        "prefix-text",
      ],
      summary: "Write weights in 8 or 4 bits, to be opened without quantizing",
      details:
        "For inference on cpu and webgpu: starts sooner, with less memory, and gives the very " +
        "results of --quantize at run time. Embedding tables stay as they are; adapters of the " +
        "source fit. Streams are added before, by a conversion of their own. Other programs do not " +
        "read the folder.",
    },
    "block-size": {
      ...quantizeFlags["block-size"],
      requires: ["quantize"],
      details: "A power of two. Larger blocks take less memory and are less exact.",
    },
    "max-shard-size": {
      type: "size",
      min: 1,
      default: 5e9,
      summary: "Maximum size of a weights file",
      details: "A tensor is never split.",
    },
    "modeling-code": {
      type: "switch",
      default: true,
      conflictsWith: ["quantize"],
      summary: "Write the Python file with which transformers opens the folder",
      details:
        "modeling_parscale.py, which config.json names: AutoModelForCausalLM takes the folder " +
        "with trust_remote_code=True.",
    },
    verify: {
      type: "switch",
      summary: "Read the written backbone again and compare its hash",
      details: "Doubles the time.",
    },
  }),
  savesOnInterrupt: true,
});
