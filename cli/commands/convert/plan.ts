/** From the flags of `parscale convert` to a checked conversion; reads no weights. */
import { DEFAULT_BLOCK } from "../../../core/quant/codes.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { type ConversionPlan, planConversion } from "../../../core/convert/plan.ts";
import { hasTokenizer } from "../../../core/checkpoint/model_files.ts";
import { planQuantization, type QuantizationPlan } from "../../../core/convert/quantize.ts";
import { isParScale } from "../../../core/model/config.ts";
import { checkBlockSize } from "../../../core/session/quantization.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { derivedName, findModel } from "../../input/open_model.ts";
import type { Io } from "../../output/io.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type ConvertValues = ValuesOf<typeof command>;

/** A checked conversion; no weights are read yet. */
export type Work =
  | ({ readonly kind: "quantize" } & QuantizationPlan)
  | ({ readonly kind: "convert" } & ConversionPlan);

/** Text that new streams start from, ours where undefined. */
export interface TextStart {
  readonly text: string | undefined;
}

/** Refuses a text for streams that are to be random. */
export function check({ prefixInit, prefixText }: ConvertValues): void {
  if (prefixText === undefined || prefixInit !== "normal") return;
  throw new UsageError("`--prefix-text` cannot be combined with `--prefix-init normal`");
}

/** The start of new streams; undefined where they are random, or none are new. */
export async function startOf(
  work: Work,
  { prefixInit, prefixText }: ConvertValues,
  io: Io,
): Promise<TextStart | undefined> {
  if (work.kind === "quantize") return undefined;
  const { config, options: { model, strip, merge }, source } = work;
  const adds = !strip && !merge && config.prefix && !isParScale(source.config);
  if (!adds && prefixText !== undefined) {
    throw new UsageError("`--prefix-text` needs prefix tokens");
  }
  if (!adds || prefixInit === "normal") return undefined;
  if (!await hasTokenizer(model)) {
    if (prefixInit === "text" || prefixText !== undefined) {
      throw new UsageError(`"${model}" has no tokenizer, which \`--prefix-init text\` needs`);
    }
    io.note("without a tokenizer prefixes are random: the model has to be trained before use");
    return undefined;
  }
  return { text: prefixText === undefined ? undefined : await io.readText(prefixText) };
}

/** The folder, named after what is made of the model unless told. */
export function outOf(
  { model, out, quantize, strip, merge, streams, introducedOnly, dtype }: ConvertValues,
): string {
  if (out !== undefined) return out;
  const made = quantize ?? (strip ? "plain" : merge ? "merged" : undefined) ??
    (streams === undefined ? dtype : `p${streams}${introducedOnly ? "-adapter" : ""}`);
  return derivedName(model, made);
}

/** Finds the model and checks what is asked for. */
export async function workOf(values: ConvertValues, io: Io): Promise<Work> {
  const options = { ...values, out: outOf(values), ...await foldersOf(values, io) };
  if (values.quantize === undefined) {
    return { kind: "convert", ...await planConversion(options) };
  }
  const { quantize: kind, blockSize: block = DEFAULT_BLOCK } = values;
  checkBlockSize(block);
  return { kind: "quantize", ...await planQuantization({ ...options, format: { kind, block } }) };
}

/** The folders that names and runs stand for. */
async function foldersOf(values: ConvertValues, io: Io) {
  const paths = await findModel(values, io);
  if (paths.adapter === undefined || values.merge || values.adapter !== undefined) return paths;
  throw new UsageError(`"${values.model}" is an adapter, not a whole model`, {
    hints: ["--merge makes a whole model of it", `or convert its backbone, "${paths.model}"`],
  });
}

/** State of a model of which a conversion makes a plain copy. */
export function stateOf({ options }: ConversionPlan): string {
  return options.merge ? "self-contained" : "a plain model";
}
