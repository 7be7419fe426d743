/** `parscale export`: a model as ONNX files that run without parscale. */
import { UsageError } from "../../../core/base/errors.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { requireContext } from "../../input/context.ts";
import {
  checkQuantize,
  openNamedCheckpoint,
  type Quantization,
  quantizeFlags,
} from "../../input/open_model.ts";
import { engineFlags } from "../../framework/common.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "export",
  summary: "Write a model as ONNX files that run without parscale",
  description:
    "Writes the programs that read a prompt and decode a token, for fixed sizes, with one file of " +
    "weights that both share, the tokenizer, and a page on how to use them from JavaScript and " +
    "Python: in a server, in a browser, on a phone. The logits are those of the device they are for. " +
    "The folder appears complete or not at all.",
  examples: [
    { text: "Exact", line: "parscale export --model qwen-p4 --onnx --out qwen-p4-onnx" },
    {
      text: "Small, for a phone",
      line: "parscale export --model run --onnx --quantize q4 --capacity 512 --out phone",
    },
    {
      text: "For the GPU of a browser",
      line: "parscale export --model run --onnx --device webgpu --dtype f16 --out web",
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
      summary: "Folder to make",
      details: "Must not exist, or --overwrite replaces it.",
    },
    tokens: {
      type: "int",
      min: 1,
      max: 65536,
      default: 64,
      group: "Export",
      unit: "tokens",
      summary: "Tokens of a prompt that are read at once",
      details: "Shorter prompts are padded, longer ones read in pieces.",
    },
    capacity: {
      type: "int",
      min: 1,
      max: 1 << 20,
      group: "Export",
      unit: "tokens",
      defaultText: "1024, or the model's context",
      summary: "Longest text, prompt included",
      details: "Keys and values for all of it go in and out at every step.",
    },
    device: {
      type: "choice",
      choices: ["cpu", "webgpu"],
      default: "cpu",
      group: "Export",
      summary: "Where the files are to run",
      details: "Files for webgpu use only what its operators can; they run on the processor too.",
    },
    dtype: {
      type: "choice",
      choices: ["f32", "f16"],
      default: "f32",
      group: "Export",
      summary: "Element type of matrices",
      details: "f16 halves the file and is for webgpu. Keys and values go in and out as f32.",
    },
    ...quantizeFlags,
  },
  async plan(values, io) {
    await checkFormat(values);
    const { config } = await openNamedCheckpoint(values, io);
    const { tokens, capacity } = fittingSizes(values, config);
    return [
      `would write prefill.onnx (${tokens} of ${capacity} tokens), decode.onnx and their weights to ${values.out}`,
      `streams: ${config.streams}`,
    ];
  },
  async run(values, io, invocation) {
    await checkFormat(values);
    const { writeExport } = await import("./parts.ts");
    const { startProgress } = await import("../../output/progress.ts");
    const { openReport } = await import("../../output/report.ts");
    const opened = await openNamedCheckpoint(values, io);
    const sizes = fittingSizes(values, opened.config);
    using report = openReport(io, invocation, { schema: "parscale.export/1" });
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
      device: values.device,
      weights: values.quantize === "none" ? values.dtype : values.quantize,
      weight_bytes: bytes,
      files: "prefill.onnx, decode.onnx, weights.bin, export.json, README.md",
    });
  },
});

async function checkFormat(
  values: {
    onnx: boolean;
    device: "cpu" | "webgpu";
    dtype: "f32" | "f16";
    quantize: Quantization;
    blockSize: number | undefined;
  },
): Promise<void> {
  const { onnx, device, dtype } = values;
  await checkQuantize(values);
  if (!onnx) {
    throw new UsageError("Cannot export: found no format, expected --onnx", {
      hints: ["add --onnx"],
    });
  }
  if (dtype === "f16" && device === "cpu") {
    throw new UsageError("Cannot export: found --dtype f16 for cpu, expected --device webgpu", {
      hints: ["the processor computes in f32; for a smaller file use --quantize q8 or q4"],
    });
  }
}

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
