/** From the flags of `parscale generate` to models, prompts and options of decoding. */
import { UsageError } from "../../../core/base/errors.ts";
import { parseExactJson } from "../../../core/base/exact_json.ts";
import { readJsonObject, statIfExists } from "../../../core/base/files.ts";
import type { SamplingOptions } from "../../../core/base/sampling.ts";
import type { LogitRules } from "../../../core/generate/logit_rules.ts";
import type { BeamSearchOptions } from "../../../core/session/options.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { formatFlag } from "../../framework/table.ts";
import { DRAFT_TOKENS } from "../../input/decoding_flags.ts";
import { type NamedAdapter, requireDistinct } from "../../input/named_models.ts";
import { type ModelPlan, modelPlan } from "../../input/open_model.ts";
import { type PromptSource, promptSource } from "../../input/prompts.ts";
import { parseShard, requireFileForShard, type Shard } from "../../input/shard.ts";
import type { Invocation } from "../../output/document.ts";
import { checkJournal, type Resumed } from "../../output/journal.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type GenerateValues = ValuesOf<typeof command>;

/** Decoding of every prompt. */
export interface Decoding {
  /** New tokens per sequence at most. */
  readonly maxTokens: number;
  /** Sequences per prompt: samples, or the best beams. */
  readonly numReturn: number;
  /** Strings that end a text and are not part of it. */
  readonly stop: readonly string[];
  /** Tokens that end a text; undefined for those of the checkpoint. */
  readonly eosTokenIds: readonly number[] | undefined;
  /** Schema that every text matches. */
  readonly jsonSchema: object | undefined;
  /** Options of sampling, unless beams are searched. */
  readonly sampling: SamplingOptions;
  readonly beams: BeamSearchOptions | undefined;
  readonly seed: number;
  /** Most tokens drafted in a step. */
  readonly speculate: number;
}

/** A run of `generate`. */
export interface GeneratePlan {
  readonly model: ModelPlan;
  /** Of several, rows choose one by name. */
  readonly adapters: readonly NamedAdapter[];
  readonly prompts: PromptSource;
  readonly shard: Shard | undefined;
  readonly decoding: Decoding;
  /** Sequences computed together. */
  readonly batch: number;
  /** True if rows tell how long they took. */
  readonly timings: boolean;
  /** True if rows of an interrupted run are kept. */
  readonly resume: Resumed | undefined;
}

/** Checks what can be checked without the model. */
export async function planGeneration(
  values: GenerateValues,
  { out }: Pick<Invocation, "out">,
): Promise<GeneratePlan> {
  const shard = parseShard(values.shard);
  requireFileForShard(shard, values.arguments[0]);
  const { batch, timings, overwrite } = values;
  const resume = checkJournal({ out, resume: values.resume, overwrite });
  await requireModel(values);
  const decoding = await decodingOf(values);
  const adapters = await Array.fromAsync(values.adapter, parseAdapter);
  if (adapters.length > 1) requireDistinct(adapters);
  const prompts = await promptSource(values, adapters.map(({ name }) => name));
  const model = modelPlan(values);
  return { model, adapters, prompts, shard, decoding, batch, timings, resume };
}

/** Refuses a prompt that stands where the model should: alone, or before the model. */
async function requireModel(values: GenerateValues): Promise<void> {
  const { model, prompt, arguments: [file] } = values, next = prompt[0] ?? file;
  if (await namesModel(model)) return;
  if (next !== undefined && await namesModel(next)) {
    const flags = `${formatFlag("model", next)} ${formatFlag("prompt", model)}`;
    const hints = [`did you mean ${flags.replace("` `", " ")}?`];
    throw new UsageError("`generate` takes the model before the prompt", { hints });
  }
  if (next !== undefined || !/\s/.test(model)) return;
  const hints = [`did you mean ${formatFlag("prompt", model)}?`];
  throw new UsageError("`generate` needs `--model`", { hints });
}

/** Returns whether a text is a name on the hub, or the path of a folder or a GGUF file. */
async function namesModel(text: string): Promise<boolean> {
  if (/^[\w.-]+\/[\w.:-]+$/.test(text)) return true;
  return (await statIfExists(text))?.isFile === text.endsWith(".gguf");
}

/** `NAME=PATH`, or a path that is its own name. A path may have an equals sign in it. */
async function parseAdapter(text: string): Promise<NamedAdapter> {
  const at = text.indexOf("=");
  if (at <= 0 || await statIfExists(text)) return { name: text, path: text };
  return { name: text.slice(0, at), path: text.slice(at + 1) };
}

async function decodingOf(values: GenerateValues): Promise<Decoding> {
  const { numReturn, numBeams, temperature, topK, topP, minP } = values;
  if (numReturn > 1 && temperature === 0 && numReturn > numBeams) {
    throw new UsageError(
      `\`--num-return ${numReturn}\` needs \`--temperature\` above 0, or \`--num-beams\` of at least ${numReturn}`,
    );
  }
  if (numBeams > 1 && values.speculate) {
    throw new UsageError(`\`--speculate ${values.speculate}\` does not go with \`--num-beams\``, {
      hints: ["pass `--speculate 0`, or leave it out: beam search drafts nothing"],
    });
  }
  const { lengthPenalty, earlyStopping: early } = values;
  const earlyStopping = early === "never" ? early : early === "true";
  const { repetitionPenalty, frequencyPenalty, presencePenalty } = values;
  const logitBias = new Map(values.logitBias.map(parseBias));
  const rules: LogitRules = { repetitionPenalty, frequencyPenalty, presencePenalty, logitBias };
  const chosen = values.eos.length > 0 ? values.eos : undefined;
  return {
    maxTokens: values.maxTokens,
    numReturn,
    stop: values.stop,
    jsonSchema: values.jsonSchema === undefined
      ? undefined
      : await readJsonObject(values.jsonSchema, parseExactJson),
    eosTokenIds: values.ignoreEos ? [] : chosen,
    sampling: { temperature, topK, topP, minP, ...rules },
    beams: numBeams === 1 ? undefined : { numBeams, lengthPenalty, earlyStopping, ...rules },
    seed: values.seed,
    speculate: values.speculate ?? DRAFT_TOKENS,
  };
}

/** `ID=BIAS`. */
function parseBias(text: string): [id: number, bias: number] {
  const [, id, bias] = /^(\d+)=([-+]?[\d.]+)$/.exec(text) ?? [];
  if (id !== undefined && Math.abs(Number(bias)) <= 100) return [Number(id), Number(bias)];
  throw new UsageError(`\`--logit-bias ${text}\` must be a token id and a bias from -100 to 100`, {
    hints: ["--logit-bias 198=-100"],
  });
}
