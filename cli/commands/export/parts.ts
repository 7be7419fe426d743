/** Writes the folder of `parscale export`: programs, weights, tokenizer, and a page on how to use them. */
import { writeFolder } from "../../../core/checkpoint/folder.ts";
import type { Checkpoint } from "../../../core/checkpoint/open.ts";
import { copyCompanions, writeJson, writeText } from "../../../core/checkpoint/write.ts";
import { buildForward } from "../../../core/model/forward.ts";
import { exportPrograms } from "../../../core/runtime/onnxruntime/export.ts";
import { webGpuTarget } from "../../../core/runtime/onnxruntime/lowering/webgpu_rules.ts";
import { matrixFormat, type Quantization } from "../../../core/session/quantization.ts";
import { VERSION } from "../../../core/base/version.ts";
import guide from "./guide.md" with { type: "text" };

/** Programs to export, their target and sizes. */
export interface ExportSettings {
  readonly model: string;
  readonly adapter: string | undefined;
  readonly out: string;
  readonly tokens: number;
  readonly capacity: number;
  readonly target: "cpu" | "webgpu";
  readonly dtype: "f32" | "f16";
  readonly quantize: Quantization | undefined;
  readonly blockSize: number | undefined;
  readonly overwrite: boolean;
}

/** Writes the folder and returns the bytes of the weights. */
export async function writeExport(
  values: ExportSettings,
  checkpoint: Checkpoint,
  onProgress: (written: number, total: number) => void,
): Promise<number> {
  const { config, tensors, directory } = checkpoint;
  const { tokens, capacity, target, dtype, quantize = "none" } = values;
  const program = (tokens: number) =>
    buildForward(config, { batch: 1, tokens, capacity, selected: 1 }, { head: "logits" });
  const replaces = values.overwrite ? "export" : undefined;
  return await writeFolder(values.out, { replaces }, async (folder) => {
    const programs = new Map([["prefill", program(tokens)], ["decode", program(1)]]);
    const written = await exportPrograms(folder, programs, tensors, {
      matrices: matrixFormat(checkpoint, values),
      target: target === "webgpu" ? webGpuTarget(dtype) : undefined,
      onProgress,
    });
    await writeJson(`${folder}/export.json`, {
      version: VERSION,
      streams: config.streams,
      vocab_size: config.vocabSize,
      eos_token_ids: config.eosTokenIds,
      tokens,
      capacity,
      target,
      weights: quantize === "none" ? dtype : quantize,
      programs: written.programs,
    });
    await writeText(`${folder}/README.md`, guideFor(values));
    await copyCompanions(directory, folder);
    return written.weightBytes;
  });
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
function guideFor({ tokens, capacity, target }: ExportSettings): string {
  const words = { TOKENS: `${tokens}`, CAPACITY: `${capacity}`, ...PAGE[target] };
  return Object.entries(words).reduce((text, [word, by]) => text.replaceAll(word, by), guide);
}
