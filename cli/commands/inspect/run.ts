/** Carries out `parscale inspect`: facts about a checkpoint, or its tokenizer at work. */
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { show } from "../../../core/base/files.ts";
import { checkAdapterBackbone } from "../../../core/checkpoint/backbone.ts";
import { checkFinite } from "../../../core/checkpoint/read.ts";
import { checkQuantized } from "../../../core/convert/quantize.ts";
import { isOnHub } from "../../../core/hub/model.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import type { Tokenizer } from "../../../core/tokenizer/types.ts";
import type { ValuesOf } from "../../framework/command.ts";
import type { Context } from "../../framework/context.ts";
import { formatFlag } from "../../framework/table.ts";
import { refuseFlags, refuseFormat } from "../../input/forms.ts";
import { requireContext } from "../../input/limits.ts";
import { findModel } from "../../input/open_model.ts";
import { readJsonLines, rowError } from "../../input/rows.ts";
import { visibleLines } from "../../output/clean.ts";
import type { Invocation } from "../../output/document.ts";
import { Report } from "../../output/report.ts";
import { openSink } from "../../output/sink.ts";
import type { command } from "./flags.ts";
import { factsOf, readable } from "./show.ts";

type InspectValues = ValuesOf<typeof command>;

/** Checks flags of the tokenizer's form. */
export function check(values: InspectValues, invocation: Invocation): void {
  const { tokenize, detokenize } = values;
  if (!usesTokenizer(values)) return;
  const name = formatFlag(tokenize === undefined ? "detokenize" : "tokenize");
  refuseFlags(invocation, name, ["check", "context", "batch"]);
  if (invocation.format !== "jsonl") refuseFormat(invocation, `the output of ${name}`);
  if (detokenize !== undefined && detokenize !== "-") parseIds(detokenize);
}

/** Runs the command. */
export async function run(values: InspectValues, ctx: Context): Promise<void> {
  if (usesTokenizer(values)) return await runTokenizer(values, ctx);
  const { io, invocation } = ctx;
  using model = await ctx.openModel(values);
  const context = contextOf(model.config, values);
  ctx.begin();
  const { checkpoint } = model;
  if (values.check) {
    await checkAdapterBackbone(checkpoint);
    await checkFinite(checkpoint);
    if (checkpoint.quantization) await checkQuantized(checkpoint.directory);
  }
  using report = new Report(io, invocation, { schema: "parscale.inspect/2", device: model.device });
  const facts = factsOf(model, values.batch, context, await model.openTokenizerIfAny());
  await report.finish(invocation.format === "table" ? readable(facts) : facts);
}

function usesTokenizer({ tokenize, detokenize }: InspectValues): boolean {
  return tokenize !== undefined || detokenize !== undefined;
}

/** Tokens of a row that memory is planned for. */
function contextOf(config: ModelConfig, values: InspectValues): number {
  const { context = Math.min(2048, config.maxPositionEmbeddings) } = values;
  const fitting = `pass --context ${config.maxPositionEmbeddings} or less`;
  requireContext(config, context, `\`--context ${context}\``, fitting);
  return context;
}

/** Prints ids of texts, or texts of ids. */
async function runTokenizer(values: InspectValues, ctx: Context): Promise<void> {
  const { tokenize, detokenize, model } = values, { io, invocation } = ctx;
  if (ctx.isDryRun && await isOnHub(model)) ctx.end();
  const tokenizer = await openTokenizer((await findModel({ model, adapter: undefined }, io)).model);
  ctx.begin();
  using out = openSink(io, invocation.out, invocation.overwrite);
  const encode = (text: string) => JSON.stringify(Array.from(tokenizer.encode(text)));
  if (tokenize === "-") {
    for await (const { value, line } of readJsonLines(io.readLines(), "stdin")) {
      if (typeof value !== "string") throw valueError(line, value, "a JSON string");
      out.write(encode(value) + "\n");
    }
  } else if (tokenize !== undefined) {
    out.write(encode(tokenize) + "\n");
  } else if (detokenize === "-") {
    for await (const { value, line } of readJsonLines(io.readLines(), "stdin")) {
      if (!isIds(value)) throw valueError(line, value, "a JSON array of token ids");
      out.write(JSON.stringify(decodeLine(tokenizer, value, line)) + "\n");
    }
  } else {
    const text = tokenizer.decode(parseIds(detokenize!));
    out.write((out.isTerminal ? visibleLines(text) : text) + "\n");
  }
  out.commit();
}

function decodeLine(tokenizer: Tokenizer, ids: readonly number[], line: number): string {
  try {
    return tokenizer.decode(ids);
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw new DataError(`line ${line} of stdin`, { cause, hints: cause.hints });
  }
}

function parseIds(given: string): number[] {
  const list = given.trim().replace(/^\[|\]$/g, "").trim();
  const ids = list === "" ? [] : list.split(",").map((id) => id.trim());
  if (ids.every((id) => /^\d+$/.test(id))) return ids.map(Number);
  throw new UsageError(
    `invalid value "${given}" for \`--detokenize\`: must be token ids separated by commas`,
  );
}

function valueError(line: number, value: unknown, expected: string): DataError {
  return rowError("stdin", line, show(value), expected);
}

function isIds(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0);
}
