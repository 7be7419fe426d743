/** Carries out `parscale convert`. */
import type { Plan } from "../../framework/command.ts";
import { convert } from "../../../core/checkpoint/convert.ts";
import { opensWith } from "../../../core/checkpoint/merge.ts";
import {
  type ConversionOptions,
  type ConversionPlan,
  isPlainCopy,
  planConversion,
  withValues,
} from "../../../core/checkpoint/plan_conversion.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { hasStreamWeights } from "../../../core/model/config.ts";
import { findModel, openModel } from "../../input/open_model.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { startProgress } from "../../output/progress.ts";
import { openReport } from "../../output/report.ts";

type Values =
  & Pick<
    ConversionOptions,
    | "out"
    | "streams"
    | "prefixTokens"
    | "smoothing"
    | "aggregation"
    | "dtype"
    | "seed"
    | "introducedOnly"
    | "strip"
    | "merge"
    | "adapter"
    | "hfCode"
  >
  & { readonly model: string; readonly maxShardSize: number; readonly overwrite: boolean };

/** The flags that say what is converted. */
export interface SourceValues {
  readonly model: string;
  readonly adapter?: string | undefined;
  readonly merge?: boolean;
}

interface TextValues {
  readonly prefixInit: "normal" | "text";
  readonly prefixText: string | undefined;
}

/** What `--dry-run` prints. */
export async function planConvert(values: Values, io: Io): Promise<Plan> {
  const plan = await planConversion(await optionsOf(values, io));
  const lines = [
    ...(isPlainCopy(plan) ? [`the model is ${stateOf(values)} already; nothing is changed`] : []),
    `would write ${plan.tensors.length} tensors, ${plan.bytes} bytes, to ${values.out}`,
    `introduced parameters: ${plan.introducedParams}`,
  ];
  const { tensors, bytes, introducedParams } = plan;
  return {
    lines,
    results: { tensors: tensors.length, bytes, introduced_params: introducedParams },
  };
}

/** Runs the command. */
export async function runConvert(
  values: Values & TextValues & { readonly verify: boolean },
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const plan = await planOf(values, io);
  using report = openReport(io, invocation, { schema: "parscale.convert/2", seed: values.seed });
  using progress = startProgress(io, { label: "Writing", unit: "MB", total: plan.bytes / 1e6 });
  const result = await convert(plan, {
    onProgress: (done) => progress.update(done / 1e6),
    signal: io.interruption,
    verify: values.verify,
  });
  if (isPlainCopy(plan)) {
    io.note(`"${values.model}" is ${stateOf(values)} already; ${values.out} is a copy of it`);
  }
  if (values.merge && opensWith(plan.config) === undefined) {
    io.note("only parscale opens the merged folder, neither transformers nor the authors' code");
  } else if (plan.source.config.family !== plan.config.family) {
    io.note(`the merged folder is a ${plan.config.family} model, which has a bias everywhere`);
  }
  if (!values.merge && !hasStreamWeights(plan.config)) {
    io.note("the authors' code and Hugging Face transformers cannot open a linear aggregation");
  }
  await report.finish({
    out: values.out,
    streams: plan.config.streams,
    prefix_tokens: plan.config.prefix ? plan.config.prefixTokens : 0,
    introduced_params: result.introducedParams,
    tensors: result.tensors,
    bytes: result.bytes,
    backbone_sha256: result.backboneSha256,
    files: result.files,
  });
}

/** The plan, with prefixes from text where they are asked for. */
async function planOf(values: Values & TextValues, io: Io): Promise<ConversionPlan> {
  const plan = await planConversion(await optionsOf(values, io));
  if (values.prefixText === undefined) return plan;
  if (!plan.config.prefix) throw new UsageError("`--prefix-text` needs prefix tokens");

  const { cutSegments, prefixesFromText } = await import("../../../core/generate/prefix_init.ts");
  using model = await openModel({ model: plan.options.model }, io);
  const tokens = (await model.openTokenizer()).encode(await io.readText(values.prefixText));
  const { streams, prefixTokens } = plan.config;
  if (tokens.length < prefixTokens) {
    throw new DataError(
      `"${values.prefixText}" has ${tokens.length} tokens, fewer than \`--prefix-tokens ${prefixTokens}\``,
    );
  }
  const segments = cutSegments(tokens, streams, prefixTokens);
  return withValues(plan, await prefixesFromText(model.engine, segments));
}

function stateOf({ merge }: Values): string {
  return merge ? "self-contained" : "a plain model";
}

/** The options with the folders that names and runs stand for. */
export async function optionsOf<V extends SourceValues>(
  values: V,
  io: Io,
): Promise<V & { readonly model: string; readonly adapter: string | undefined }> {
  const { model, adapter } = await findModel(values, io);
  if (adapter === undefined || values.merge || values.adapter !== undefined) {
    return { ...values, model, adapter };
  }
  throw new UsageError(
    `"${values.model}" is an adapter run, not a whole model`,
    { hints: ["--merge makes a whole model of it", `or convert its backbone, "${model}"`] },
  );
}
