/**
 * Carries out `parscale export`: writes a folder with programs, weights, tokenizer, and a page on how to use
 * them.
 */
import { UsageError } from "../../../core/base/errors.ts";
import { VERSION } from "../../../core/base/version.ts";
import { writeFile, writeJson } from "../../../core/storage/write_file.ts";
import { requireFreeTarget, writeFolder } from "../../../core/storage/write_folder.ts";
import type { Checkpoint } from "../../../core/checkpoint/open.ts";
import { copyCompanions } from "../../../core/checkpoint/write.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { EMBEDDING } from "../../../core/model/parameters.ts";
import type { MatrixFormat } from "../../../core/quant/codes.ts";
import type { FileTensor } from "../../../core/quant/stored.ts";
import { buildForward } from "../../../core/model/forward.ts";
import { exportPrograms } from "../../../core/runtime/onnxruntime/export.ts";
import { checkQuantize, matrixFormat } from "../../../core/session/quantization.ts";
import type { ValuesOf } from "../../framework/command.ts";
import type { Context } from "../../framework/context.ts";
import { requireContext } from "../../input/limits.ts";
import { derivedName, findCheckpoint } from "../../input/open_model.ts";
import { Progress } from "../../output/progress.ts";
import { Report } from "../../output/report.ts";
import type { command } from "./flags.ts";
import guide from "./guide.md" with { type: "text" };

type ExportValues = ValuesOf<typeof command>;

/** Flags of an export, with the defaults that depend on the model. */
interface Options extends ExportValues {
  readonly out: string;
  readonly tokens: number;
  readonly capacity: number;
  /** Type of the matrices. */
  readonly weights: string;
}

/** Checks the format of weights. */
export function check(values: ExportValues): void {
  checkQuantize({ ...values, device: values.target });
}

/** Runs the command. */
export async function run(values: ExportValues, ctx: Context): Promise<void> {
  const { io } = ctx;
  const checkpoint = await findCheckpoint(values, io, "`export`");
  const options = optionsFor(values, checkpoint.config);
  const { out, tokens, capacity, target, weights } = options, { streams } = checkpoint.config;
  await requireFreeTarget(out, options.overwrite ? "export" : undefined);
  const line =
    `would write prefill.onnx (${tokens} of ${capacity} tokens), decode.onnx and their ` +
    `weights to ${out}`;
  ctx.begin({ lines: [line], values: { tokens, capacity }, results: { streams } });
  using report = new Report(io, ctx.invocation, { schema: "parscale.export/2" });
  using progress = new Progress(io, { label: "Writing", unit: "MB" });
  const onProgress = (done: number) => progress.update(done / 1e6);
  const { weightBytes, companions } = await writeExport(options, checkpoint, onProgress);
  await report.finish({
    out,
    streams,
    tokens,
    capacity,
    target,
    weights,
    weight_bytes: weightBytes,
    files: [...FILES, ...companions],
  });
}

/** Fits the sizes to a model. @throws {UsageError} for sizes that it cannot have */
function optionsFor(values: ExportValues, config: ModelConfig): Options {
  const limit = config.maxPositionEmbeddings;
  const { capacity = Math.min(1024, limit), quantize = "none" } = values;
  const { tokens = Math.min(64, capacity) } = values;
  const fitting = `pass --capacity ${limit} or less`;
  requireContext(config, capacity, `\`--capacity ${capacity}\``, fitting);
  if (tokens > capacity) {
    throw new UsageError(`\`--tokens ${tokens}\` exceeds the capacity of ${capacity}`, {
      hints: ["give a larger --capacity, or fewer --tokens"],
    });
  }
  const { out = derivedName(values.model, "onnx") } = values;
  const weights = quantize === "none" ? values.dtype : quantize;
  return { ...values, out, tokens, capacity, weights };
}

/** Files of an export besides those of the tokenizer. */
const FILES = ["prefill.onnx", "decode.onnx", "weights.bin", "export.json", "README.md"];

/** Writes the folder; returns the bytes of the weights, and the files copied from the model. */
async function writeExport(
  options: Options,
  checkpoint: Checkpoint,
  onProgress: (written: number) => void,
): Promise<{ weightBytes: number; companions: string[] }> {
  const { config, tensors, files } = checkpoint;
  const { out, tokens, capacity, target, dtype, overwrite } = options;
  const program = (tokens: number) =>
    buildForward(config, { batch: 1, tokens, capacity, selected: 1 }, {
      head: "logits",
      standsAlone: true,
    });
  const matrices = matrixFormat(checkpoint, options);
  const weights = target === "cpu" ? withTable(tensors, matrices) : tensors;
  return await writeFolder(out, { replaces: overwrite ? "export" : undefined }, async (folder) => {
    const programs = new Map([["prefill", program(tokens)], ["decode", program(1)]]);
    const written = await exportPrograms(folder, programs, weights, {
      matrices,
      webGpu: target === "webgpu" ? dtype : undefined,
      onProgress,
    });
    writeJson(`${folder}/export.json`, {
      version: VERSION,
      streams: config.streams,
      vocab_size: config.vocabSize,
      eos_token_ids: config.eosTokenIds,
      tokens,
      capacity,
      target,
      weights: options.weights,
      programs: written.programs,
    });
    writeFile(`${folder}/README.md`, guideFor(options));
    const companions = await copyCompanions(files, folder);
    return { weightBytes: written.weightBytes, companions };
  });
}

/** Keeps the embedding table in 8 bits beside quantized matrices; four lose too much of its rows. */
function withTable(tensors: Checkpoint["tensors"], matrices: MatrixFormat) {
  if (matrices.kind === "f32") return tensors;
  const table = { ...matrices, kind: "q8" } as const;
  const weights = new Map<string, FileTensor>(tensors);
  return weights.set(EMBEDDING, { ...tensors.get(EMBEDDING)!, table });
}

/** Text of the page about a target. */
const PAGE = {
  cpu: { DEVICE: "the CPU", OPTIONS: "{ logSeverityLevel: 3 }" },
  webgpu: {
    DEVICE:
      "its WebGPU\nprovider (`onnxruntime-web/webgpu` in a browser), and without one on the CPU",
    OPTIONS: `{
  logSeverityLevel: 3,
  executionProviders: ["webgpu"],
  // Keys and values stay on the GPU.
  preferredOutputLocation: Object.fromEntries(
    about.programs.decode.inputs.filter(({ next }) => next).map(({ next }) => [next, "gpu-buffer"]),
  ),
}`,
  },
} as const;

/** The page, with its numbers and what concerns the target. */
function guideFor({ tokens, capacity, target }: Options): string {
  const words = { TOKENS: `${tokens}`, CAPACITY: `${capacity}`, ...PAGE[target] };
  return Object.entries(words).reduce((text, [word, by]) => text.replaceAll(word, by), guide);
}
