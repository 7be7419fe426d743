/** Runs `parscale export`: opens the checkpoint, checks the sizes, writes the folder. */
import { UsageError } from "../../../core/base/errors.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import type { PlanText, ValuesOf } from "../../framework/command.ts";
import { requireContext } from "../../input/context.ts";
import { checkQuantize } from "../../../core/session/quantization.ts";
import { findCheckpoint } from "../../input/open_model.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { Report } from "../../output/report.ts";
import type { command } from "./flags.ts";
import { type ExportSettings, writeExport } from "./parts.ts";

/** Plan of an export: the flags, with sizes fitted to the model. */
interface ExportPlan extends ExportSettings {
  readonly streams: number;
}

/** Opens the checkpoint and checks the sizes. */
export async function plan(values: ValuesOf<typeof command>, io: Io): Promise<ExportPlan> {
  checkQuantize({ ...values, device: values.target });
  const { config } = await findCheckpoint(values, io, "`export`");
  return { ...values, ...fittingSizes(values, config), streams: config.streams };
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
  const { out, streams, tokens, capacity, target, quantize, dtype } = plan;
  const checkpoint = await findCheckpoint(plan, io, "`export`");
  using report = new Report(io, invocation, { schema: "parscale.export/2" });
  using progress = new Progress(io, { label: "Writing", unit: "MB" });
  const bytes = await writeExport(plan, checkpoint, (done) => progress.update(done / 1e6));
  await report.finish({
    out,
    streams,
    tokens,
    capacity,
    target,
    weights: (quantize ?? "none") === "none" ? dtype : quantize,
    weight_bytes: bytes,
    files: ["prefill.onnx", "decode.onnx", "weights.bin", "export.json", "README.md"],
  });
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
