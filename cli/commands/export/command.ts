/** `parscale export`: a model as ONNX files that run without parscale. */
import { UsageError } from "../../../core/base/errors.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { requireContext } from "../../input/context.ts";
import { checkQuantize, openNamedCheckpoint, quantizeFlags } from "../../input/open_model.ts";
import { engineFlags } from "../../framework/common.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "export",
  summary: "Export a model to ONNX",
  description:
    "Writes the programs that read a prompt and decode a token, for fixed sizes, with one file of " +
    "weights that both share, the tokenizer, and a page on how to use them from JavaScript and " +
    "Python: in a server, in a browser, on a phone. The logits are those of the target they are for. " +
    "The folder appears complete or not at all.",
  examples: [
    { text: "Exact", line: "parscale export --model qwen-p4 --onnx --out qwen-p4-onnx" },
    {
      text: "Small, for a phone",
      line: "parscale export --model run --onnx --quantize q4 --capacity 512 --out phone",
    },
    {
      text: "For the GPU of a browser",
      line: "parscale export --model run --onnx --target webgpu --dtype f16 --out web",
    },
  ],
  flags: {
    model: {
      type: "path",
      letter: "m",
      required: true,
      group: "Export",
      summary: "Checkpoint folder, or OWNER/NAME[@REVISION] on the hub",
      details: "A run of `train` is one too.",
    },
    adapter: engineFlags.adapter,
    onnx: {
      type: "switch",
      group: "Export",
      summary: "In the ONNX format, the only one there is",
      details: "Said outright, so that scripts stay right when there are others.",
    },
    out: {
      type: "path",
      required: true,
      letter: "o",
      group: "Export",
      summary: "Output folder",
      details: "Must not exist, or --overwrite replaces it.",
    },
    tokens: {
      type: "int",
      min: 1,
      max: 65536,
      default: 64,
      group: "Export",
      unit: "tokens",
      summary: "Prompt tokens per prefill call",
      details: "Shorter prompts are padded, longer ones read in pieces.",
    },
    capacity: {
      type: "int",
      min: 1,
      max: 1 << 20,
      group: "Export",
      unit: "tokens",
      defaultText: "1024, or the model's context",
      summary: "Maximum length, prompt included",
      details: "Keys and values for all of it go in and out at every step.",
    },
    target: {
      type: "choice",
      choices: ["cpu", "webgpu"],
      default: "cpu",
      group: "Export",
      formerly: ["device"],
      summary: "Where the files will run",
      details: "Files for webgpu use only what its operators can; they run on the processor too.",
    },
    dtype: {
      type: "choice",
      choices: ["f32", "f16"],
      default: "f32",
      group: "Export",
      requires: ["target=webgpu"],
      summary: "Data type of matrices",
      details: "f16 halves the file and is for webgpu. Keys and values go in and out as f32.",
    },
    ...quantizeFlags,
  },
  atLeastOneOf: [["onnx"]],
  async plan(values, io) {
    await checkQuantize({ ...values, device: values.target });
    const { config } = await openNamedCheckpoint(values, io, "`export`");
    const { tokens, capacity } = fittingSizes(values, config);
    const { streams } = config;
    const lines = [
      `would write prefill.onnx (${tokens} of ${capacity} tokens), decode.onnx and their weights to ${values.out}`,
      `streams: ${streams}`,
    ];
    return { lines, values: { tokens, capacity }, results: { streams } };
  },
  async run(values, io, invocation) {
    await checkQuantize({ ...values, device: values.target });
    const { writeExport } = await import("./parts.ts");
    const { startProgress } = await import("../../output/progress.ts");
    const { openReport } = await import("../../output/report.ts");
    const opened = await openNamedCheckpoint(values, io, "`export`");
    const sizes = fittingSizes(values, opened.config);
    using report = openReport(io, invocation, { schema: "parscale.export/2" });
    using progress = startProgress(io, { label: "Writing", unit: "MB" });
    const bytes = await writeExport(
      { ...values, ...sizes },
      opened,
      (done) => progress.update(done / 1e6),
    );
    await report.finish({
      out: values.out,
      streams: opened.config.streams,
      ...sizes,
      target: values.target,
      weights: values.quantize === "none" ? values.dtype : values.quantize,
      weight_bytes: bytes,
      files: ["prefill.onnx", "decode.onnx", "weights.bin", "export.json", "README.md"],
    });
  },
});

/** Sizes of the programs, which fit each other and the model's context. */
function fittingSizes(
  values: { tokens: number; capacity: number | undefined },
  config: ModelConfig,
): { tokens: number; capacity: number } {
  const limit = config.maxPositionEmbeddings;
  const { tokens, capacity = Math.min(1024, limit) } = values;
  requireContext(
    config,
    capacity,
    `\`--capacity ${capacity}\``,
    `pass --capacity ${limit} or less`,
  );
  if (tokens > capacity) {
    throw new UsageError(`\`--tokens ${tokens}\` exceeds the capacity of ${capacity}`, {
      hints: ["give a larger --capacity, or fewer --tokens"],
    });
  }
  return { tokens, capacity };
}
