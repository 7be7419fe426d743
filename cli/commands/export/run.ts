/** What `parscale export` does: opens the checkpoint, checks the sizes, writes the folder. */
import { UsageError } from "../../../core/base/errors.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import type { Plan } from "../../framework/command.ts";
import { requireContext } from "../../input/context.ts";
import { checkQuantize } from "../../../core/session/quantization.ts";
import { findCheckpoint } from "../../input/open_model.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { startProgress } from "../../output/progress.ts";
import { openReport } from "../../output/report.ts";
import { type ExportValues, writeExport } from "./parts.ts";

/** Flags, before sizes are fitted to the model. */
type Values = Omit<ExportValues, "capacity"> & { readonly capacity: number | undefined };

/** For `--dry-run`. */
export async function planExport(values: Values, io: Io): Promise<Plan> {
  checkQuantize({ ...values, device: values.target });
  const { config } = await findCheckpoint(values, io, "`export`");
  const { tokens, capacity } = fittingSizes(values, config);
  const { streams } = config;
  const lines = [
    `would write prefill.onnx (${tokens} of ${capacity} tokens), decode.onnx and their weights to ${values.out}`,
    `streams: ${streams}`,
  ];
  return { lines, values: { tokens, capacity }, results: { streams } };
}

/** Runs the command. */
export async function runExport(values: Values, io: Io, invocation: Invocation): Promise<void> {
  checkQuantize({ ...values, device: values.target });
  const opened = await findCheckpoint(values, io, "`export`");
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
    weights: (values.quantize ?? "none") === "none" ? values.dtype : values.quantize,
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
