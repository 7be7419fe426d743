/** Carries out `parscale convert`. */
import { convert } from "../../../core/convert/convert.ts";
import { opensInTransformers } from "../../../core/checkpoint/config.ts";
import { tellReading } from "../../../core/checkpoint/open.ts";
import { type ConversionPlan, isPlainCopy, withValues } from "../../../core/convert/plan.ts";
import { quantizeCheckpoint } from "../../../core/convert/quantize.ts";
import { isParScale } from "../../../core/model/config.ts";
import type { Context } from "../../framework/context.ts";
import { openModel } from "../../input/open_model.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { Report } from "../../output/report.ts";
import { bytesText } from "../../output/units.ts";
import { type ConvertValues, outOf, startOf, stateOf, type TextStart, workOf } from "./plan.ts";

export { check } from "./plan.ts";

/** Runs the command. */
export async function run(values: ConvertValues, ctx: Context): Promise<void> {
  const { io, invocation } = ctx;
  const { seed, verify, model } = values, out = outOf(values);
  const planned = await workOf(values, io), start = await startOf(planned, values, io);
  const { tensors: { length: tensors }, bytes } = planned;
  ctx.begin({
    lines: [`would write ${tensors} tensors, ${bytes} bytes, to ${out}`],
    results: {
      tensors,
      bytes,
      ...(planned.kind === "convert" && { introduced_params: planned.introducedParams }),
    },
  });
  const work = planned.kind === "convert"
    ? { kind: planned.kind, ...await withTextStart(planned, start, io) }
    : planned;
  if (work.kind === "convert") noteSize(work, out, io);
  using report = new Report(io, invocation, { schema: "parscale.convert/2", seed });
  const label = work.kind === "convert" ? "Writing" : "Quantizing";
  using progress = new Progress(io, { label, unit: "MB", total: work.bytes / 1e6 });
  const options = {
    onProgress: (done: number) => progress.update(done / 1e6),
    signal: io.interruption,
    verify,
  };
  const result = work.kind === "convert"
    ? await convert(work, options)
    : await quantizeCheckpoint(work, options);
  const config = work.kind === "convert" ? work.config : work.source.config;
  // A start from text opens the model, which says the same.
  if (start === undefined) tellReading(work.source, io);
  if (work.kind === "convert") noteLimits(work, { model, out }, io);
  if (verify && work.kind === "convert" && work.folds) {
    io.warn("nothing was verified: the backbone written is not that of the source");
  }
  await report.finish({
    out,
    streams: config.streams,
    prefix_tokens: config.prefix ? config.prefixTokens : 0,
    introduced_params: result.introducedParams,
    ...(work.kind === "quantize" && {
      quantization: work.options.format.kind,
      block_size: work.options.format.block,
    }),
    tensors: result.tensors,
    bytes: result.bytes,
    backbone_sha256: result.backboneSha256,
    files: result.files,
  });
}

/** The conversion with streams that start from text, unless they are to be random. */
async function withTextStart(
  work: ConversionPlan,
  start: TextStart | undefined,
  io: Io,
): Promise<ConversionPlan> {
  if (start === undefined) return work;
  // Loads the engine, which no other conversion needs.
  const { textStart } = await import("../../../core/session/text_start.ts");
  // Codes of a GGUF file would round the activations, and with them every key and value.
  using session = await openModel({ model: work.options.model, quantize: "none" }, io);
  return withValues(work, await textStart(session, work.config, start.text));
}

/** Says how large a folder made of a GGUF file will be: it holds more bits a weight than the file. */
function noteSize({ options, source, config, bytes }: ConversionPlan, out: string, io: Io): void {
  if (options.introducedOnly || !source.files.isGguf) return;
  io.note(`writing ${bytesText(bytes)} in ${config.dtype} to ${out}`);
}

/** Says what the result is not, or which programs cannot open it. */
function noteLimits(
  work: ConversionPlan,
  { model, out }: { readonly model: string; readonly out: string },
  io: Io,
): void {
  const { options, source, config } = work;
  if (isPlainCopy(work)) io.note(`"${model}" is ${stateOf(work)} already; ${out} is a copy of it`);
  if (options.merge && isParScale(config) && !opensInTransformers(config)) {
    io.note("only parscale opens the folder, not transformers");
  } else if (source.config.family !== config.family) {
    io.note(`the merged folder is a ${config.family} model, which has a bias everywhere`);
  }
}
