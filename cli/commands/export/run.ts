/**
 * Runs `parscale export`: opens the checkpoint, checks the sizes, and writes the folder with programs, weights,
 * tokenizer, and a page on how to use them.
 */
import { UsageError } from "../../../core/base/errors.ts";
import { VERSION } from "../../../core/base/version.ts";
import { writeFile, writeJson } from "../../../core/storage/write_file.ts";
import { requireFreeTarget, writeFolder } from "../../../core/storage/write_folder.ts";
import type { Checkpoint, CodedTensor } from "../../../core/checkpoint/open.ts";
import { copyCompanions } from "../../../core/checkpoint/write.ts";
import { EMBEDDING } from "../../../core/model/parameters.ts";
import type { MatrixFormat } from "../../../core/quant/codes.ts";
import { buildForward } from "../../../core/model/forward.ts";
import { exportPrograms } from "../../../core/runtime/onnxruntime/export.ts";
import { checkQuantize, matrixFormat } from "../../../core/session/quantization.ts";
import type { PlanText, ValuesOf } from "../../framework/command.ts";
import { requireContext } from "../../input/limits.ts";
import { derivedName, findCheckpoint } from "../../input/open_model.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { Report } from "../../output/report.ts";
import type { command } from "./flags.ts";
import guide from "./guide.md" with { type: "text" };

type ExportValues = ValuesOf<typeof command>;

/** Plan of an export: the flags, with sizes fitted to the model. */
interface ExportPlan extends ExportValues {
  readonly out: string;
  readonly tokens: number;
  readonly capacity: number;
  readonly streams: number;
  /** Type of the matrices. */
  readonly weights: string;
}

/** Opens the checkpoint and checks the sizes. */
export async function plan(values: ExportValues, io: Io): Promise<ExportPlan> {
  checkQuantize({ ...values, device: values.target });
  const { config } = await findCheckpoint(values, io, "`export`");
  const limit = config.maxPositionEmbeddings;
  const { capacity = Math.min(1024, limit), quantize = "none", dtype } = values;
  const { tokens = Math.min(64, capacity) } = values;
  const fitting = `pass --capacity ${limit} or less`;
  requireContext(config, capacity, `\`--capacity ${capacity}\``, fitting);
  if (tokens > capacity) {
    throw new UsageError(`\`--tokens ${tokens}\` exceeds the capacity of ${capacity}`, {
      hints: ["give a larger --capacity, or fewer --tokens"],
    });
  }
  const weights = quantize === "none" ? dtype : quantize;
  const { out = derivedName(values.model, "onnx") } = values;
  await requireFreeTarget(out, values.overwrite ? "export" : undefined);
  return { ...values, out, tokens, capacity, streams: config.streams, weights };
}

/** Text of `--dry-run`. */
export function describe({ tokens, capacity, out, streams }: ExportPlan): PlanText {
  const lines = [
    `would write prefill.onnx (${tokens} of ${capacity} tokens), decode.onnx and their weights to ${out}`,
    `streams: ${streams}`,
  ];
  return { lines, values: { tokens, capacity }, results: { streams } };
}

/** Runs the command. */
export async function run(plan: ExportPlan, io: Io, invocation: Invocation): Promise<void> {
  const { out, streams, tokens, capacity, target, weights } = plan;
  const checkpoint = await findCheckpoint(plan, io, "`export`");
  using report = new Report(io, invocation, { schema: "parscale.export/2" });
  using progress = new Progress(io, { label: "Writing", unit: "MB" });
  const { weightBytes, companions } = await writeExport(
    plan,
    checkpoint,
    (done) => progress.update(done / 1e6),
  );
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

/** Files of an export besides those of the tokenizer. */
const FILES = ["prefill.onnx", "decode.onnx", "weights.bin", "export.json", "README.md"];

/** Writes the folder; returns the bytes of the weights, and the files copied from the model. */
async function writeExport(
  plan: ExportPlan,
  checkpoint: Checkpoint,
  onProgress: (written: number) => void,
): Promise<{ weightBytes: number; companions: string[] }> {
  const { config, tensors, files } = checkpoint;
  const { tokens, capacity, target } = plan;
  const program = (tokens: number) =>
    buildForward(config, { batch: 1, tokens, capacity, selected: 1 }, {
      head: "logits",
      standsAlone: true,
    });
  const matrices = matrixFormat(checkpoint, plan);
  const weights = target === "cpu" ? withTable(tensors, matrices) : tensors;
  const replaces = plan.overwrite ? "export" : undefined;
  return await writeFolder(plan.out, { replaces }, async (folder) => {
    const programs = new Map([["prefill", program(tokens)], ["decode", program(1)]]);
    const written = await exportPrograms(folder, programs, weights, {
      matrices,
      webGpu: target === "webgpu" ? plan.dtype : undefined,
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
      weights: plan.weights,
      programs: written.programs,
    });
    writeFile(`${folder}/README.md`, guideFor(plan));
    const companions = await copyCompanions(files, folder);
    return { weightBytes: written.weightBytes, companions };
  });
}

/** Keeps the embedding table in 8 bits beside quantized matrices; four lose too much of its rows. */
function withTable(tensors: Checkpoint["tensors"], matrices: MatrixFormat) {
  if (matrices.kind === "f32") return tensors;
  const table = { ...matrices, kind: "q8" } as const;
  const weights = new Map<string, CodedTensor>(tensors);
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
function guideFor({ tokens, capacity, target }: ExportPlan): string {
  const words = { TOKENS: `${tokens}`, CAPACITY: `${capacity}`, ...PAGE[target] };
  return Object.entries(words).reduce((text, [word, by]) => text.replaceAll(word, by), guide);
}
