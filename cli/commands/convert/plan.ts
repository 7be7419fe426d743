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

/** A checked conversion. */
export interface ConvertPlan {
  readonly work:
    | ({ readonly kind: "quantize" } & QuantizationPlan)
    | ({ readonly kind: "convert" } & ConversionPlan);
  /** As the user named it. */
  readonly model: string;
  readonly out: string;
  readonly seed: number;
  readonly verify: boolean;
  /** Text that new streams start from, ours where undefined; absent where they are random or not new. */
  readonly start: { readonly text: string | undefined } | undefined;
}

/** Finds the model and checks what is asked for. */
export async function planConvert(values: ConvertValues, io: Io): Promise<ConvertPlan> {
  const { model, out = defaultOut(values), seed, verify, prefixInit, prefixText } = values;
  if (prefixText !== undefined && prefixInit === "normal") {
    throw new UsageError("`--prefix-text` cannot be combined with `--prefix-init normal`");
  }
  const work = await workOf(values, out, io);
  return { work, model, out, seed, verify, start: await startOf(work, values, io) };
}

async function startOf(
  work: ConvertPlan["work"],
  { prefixInit, prefixText }: ConvertValues,
  io: Io,
): Promise<ConvertPlan["start"]> {
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

function defaultOut(
  { model, quantize, strip, merge, streams, introducedOnly, dtype }: ConvertValues,
): string {
  const made = quantize ?? (strip ? "plain" : merge ? "merged" : undefined) ??
    (streams === undefined ? dtype : `p${streams}${introducedOnly ? "-adapter" : ""}`);
  return derivedName(model, made);
}

async function workOf(
  values: ConvertValues,
  out: string,
  io: Io,
): Promise<ConvertPlan["work"]> {
  const options = { ...values, out, ...await foldersOf(values, io) };
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
