/** `parscale export`: a model as ONNX files that run without parscale. */
import { modelArgument, modelFlags, quantizeFlags } from "../../input/model_flags.ts";
import { engineFlags } from "../../framework/common.ts";
import { defineCommand } from "../../framework/command.ts";
import { flagGroup } from "../../framework/table.ts";

export const command = defineCommand({
  description:
    "Writes the programs that read a prompt and decode a token, for fixed sizes, with one file of " +
    "weights that both share, the tokenizer, and a page on how to use them from JavaScript and " +
    "Python: in a server, in a browser, on a phone. The logits are those of the target they are for. " +
    "The folder appears complete or not at all.",
  examples: {
    "Exact": "parscale export --model qwen-p4 --onnx --out qwen-p4-onnx",
    "Small, for a phone":
      "parscale export --model run --onnx --quantize q4 --capacity 512 --out phone",
    "For the GPU of a browser":
      "parscale export --model run --onnx --target webgpu --dtype f16 --out web",
  },
  arguments: [modelArgument],
  flags: {
    ...flagGroup("Export", {
      model: {
        ...modelFlags.model,
        summary: "Checkpoint folder, or OWNER/NAME[@REVISION] on the hub",
        details: "A run of `train` is one too.",
      },
      onnx: {
        type: "switch",
        summary: "In the ONNX format, the only one there is",
        details: "May be said outright, so that scripts stay right when there are others.",
      },
      out: {
        type: "output",
        letter: "o",
        defaultText: "the model's name with -onnx",
        summary: "Output folder",
        details: "Must not exist, or --overwrite replaces it.",
      },
      tokens: {
        type: "int",
        min: 1,
        max: 65536,
        unit: "tokens",
        defaultText: "64, or the capacity",
        summary: "Prompt tokens per prefill call",
        details: "Shorter prompts are padded, longer ones read in pieces.",
      },
      capacity: {
        type: "int",
        min: 1,
        max: 1 << 20,
        unit: "tokens",
        defaultText: "1024, or the model's context",
        summary: "Maximum length, prompt included",
        details: "Keys and values for all of it go in and out at every step.",
      },
      target: {
        type: "choice",
        choices: ["cpu", "webgpu"],
        default: "cpu",
        summary: "Where the files will run",
        details: "Files for webgpu use only what its operators can; they run on the processor too.",
      },
      dtype: {
        type: "choice",
        choices: ["f32", "f16"],
        default: "f32",
        requires: ["target=webgpu"],
        summary: "Data type of matrices",
        details: "f16 halves the file and is for webgpu. Keys and values go in and out as f32.",
      },
    }),
    adapter: engineFlags.adapter,
    ...quantizeFlags,
    quantize: {
      ...quantizeFlags.quantize,
      defaultText: "none",
      details:
        "A smaller file of weights, at some loss of quality: matrices by block of columns; for " +
        "cpu the embedding table in 8 bits.",
    },
  },
});
