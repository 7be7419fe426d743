/** Carries out `parscale convert --quantize`. */
import {
  planQuantization,
  type QuantizationPlan,
  quantizeCheckpoint,
} from "../../../core/checkpoint/quantize_checkpoint.ts";
import { DEFAULT_BLOCK } from "../../../core/base/quantize.ts";
import type { Plan } from "../../framework/command.ts";
import { checkBlockSize } from "../../../core/session/quantization.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { startProgress } from "../../output/progress.ts";
import { openReport } from "../../output/report.ts";
import { optionsOf, type SourceValues } from "./run.ts";

interface QuantizeValues extends SourceValues {
  readonly out: string;
  readonly quantize: "q8" | "q4" | undefined;
  readonly blockSize: number | undefined;
  readonly maxShardSize: number;
  readonly overwrite: boolean;
  readonly verify: boolean;
  readonly seed: number;
}

/** What `--dry-run` prints. */
export async function planQuantize(values: QuantizeValues, io: Io): Promise<Plan> {
  const { tensors, bytes } = await planOf(values, io);
  return {
    lines: [`would write ${tensors.length} tensors, ${bytes} bytes, to ${values.out}`],
    results: { tensors: tensors.length, bytes },
  };
}

/** Runs the command. */
export async function runQuantize(
  values: QuantizeValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const plan = await planOf(values, io);
  const { config } = plan.source;
  using report = openReport(io, invocation, { schema: "parscale.convert/2", seed: values.seed });
  using progress = startProgress(io, { label: "Quantizing", unit: "MB", total: plan.bytes / 1e6 });
  const result = await quantizeCheckpoint(plan, {
    onProgress: (done) => progress.update(done / 1e6),
    signal: io.interruption,
    verify: values.verify,
  });
  await report.finish({
    out: values.out,
    streams: config.streams,
    prefix_tokens: config.prefix ? config.prefixTokens : 0,
    introduced_params: result.introducedParams,
    quantization: plan.options.format.kind,
    block_size: plan.options.format.block,
    tensors: result.tensors,
    bytes: result.bytes,
    backbone_sha256: result.backboneSha256,
    files: result.files,
  });
}

async function planOf(values: QuantizeValues, io: Io): Promise<QuantizationPlan> {
  const { quantize, blockSize = DEFAULT_BLOCK, out, maxShardSize, overwrite } = values;
  checkBlockSize(blockSize);
  const { model } = await optionsOf(values, io);
  return await planQuantization({
    model,
    out,
    format: { kind: quantize!, block: blockSize },
    maxShardSize,
    overwrite,
  });
}
