/**
 * What `generate` does: reads prompts, runs them, and writes text as it comes, or rows in input order.
 */
import { UsageError } from "../core/errors.ts";
import type { FinishReason, GenerationRequest } from "../core/generate/generate.ts";
import type { Tokenizer } from "../core/tokenizer/tokenizer.ts";
import { type OpenedModel, openModel, type OpenOptions } from "./open_model.ts";
import type { Invocation } from "./output/document.ts";
import type { Io } from "./output/io.ts";
import { startProgress } from "./output/progress.ts";
import { openReport, type Report } from "./output/report.ts";
import { type Prompt, readPrompts } from "./prompts.ts";
import { failureOf } from "./rows.ts";

/** Flags of `generate` that matter here. */
export interface GenerateValues extends Omit<OpenOptions, "matrices" | "block"> {
  readonly arguments: readonly string[];
  readonly prompt: readonly string[];
  readonly input: "auto" | "text" | "jsonl";
  readonly chat: boolean;
  readonly batch: number;
  readonly maxTokens: number;
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly stop: readonly string[];
  readonly eos: readonly number[];
  readonly ignoreEos: boolean;
  readonly numBeams: number;
  readonly numReturn: number;
  readonly lengthPenalty: number;
  readonly weights: "f32" | "q8" | "q4";
  readonly blockSize: number | undefined;
  readonly seed: number;
  readonly memoryLimit: number | undefined;
}

/** One finished continuation. */
interface Sequence {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly finish_reason: FinishReason;
  readonly score?: number;
}

/** Runs the command; the number is its exit code. */
export async function runGenerate(
  values: GenerateValues,
  io: Io,
  invocation: Invocation,
): Promise<number> {
  checkValues(values);
  using model = await openModel({ ...values, matrices: values.weights, block: values.blockSize });
  const { batch, maxTokens, memoryLimit } = values;
  model.requireMemory({ batch, tokens: 1, capacity: maxTokens, selected: batch }, memoryLimit);
  const tokenizer = await model.tokenizer();
  const prompts: Prompt[] = [];
  for await (const prompt of readPrompts(values, io, tokenizer)) prompts.push(prompt);
  if (prompts.length === 0) io.warn("there are no prompts in the input");

  const run = new Run(model, tokenizer, values);
  const plainText = prompts.length === 1 && values.numReturn === 1 &&
    invocation.format === "table" &&
    invocation.out === undefined;
  if (plainText) return await streamText(run, prompts[0]!, io);
  using report = openReport(io, invocation, {
    schema: "parscale.generate/1",
    device: model.device,
    columns: [{ key: "id" }, { key: "finish_reason" }, { key: "text" }, { key: "error" }],
  });
  const failed = await writeRows(run, prompts, io, report);
  await report.finish();
  return failed > 0 ? 1 : 0;
}

function checkValues(values: GenerateValues): void {
  const sampling = values.temperature > 0;
  if (values.numBeams > 1 && sampling) {
    throw new UsageError("Cannot search beams and sample: found --num-beams with --temperature", {
      hints: ["drop one of the two flags"],
    });
  }
  if (values.numReturn > 1 && !sampling && values.numReturn > values.numBeams) {
    throw new UsageError(
      `Cannot return ${values.numReturn} results: found ${values.numBeams} beams and no sampling`,
      { hints: ["add --temperature 0.8, or --num-beams of at least --num-return"] },
    );
  }
}

/** Writes one prompt's continuation to stdout while it is produced. */
async function streamText(run: Run, prompt: Prompt, io: Io): Promise<number> {
  let failure: unknown;
  let last = "";
  for await (const event of run.sequences([prompt])) {
    if (event.kind === "text") io.write(last = event.text);
    if (event.kind === "failed") failure = event.error;
    if (event.kind === "done" && run.usesBeams) io.write(last = event.sequence.text);
  }
  if (failure) throw failure;
  if (!last.endsWith("\n")) io.write("\n");
  return 0;
}

/** Writes a row per prompt, in input order; returns how many failed. */
async function writeRows(
  run: Run,
  prompts: readonly Prompt[],
  io: Io,
  report: Report,
): Promise<number> {
  using progress = startProgress(io, { label: "Generating", unit: "rows", total: prompts.length });
  const finished = new Map<number, Sequence[] | { error: string }>();
  const collected = prompts.map((): Sequence[] => []);
  let failed = 0;
  let written = 0;
  for await (const event of run.sequences(prompts)) {
    const at = event.prompt;
    if (event.kind === "failed") finished.set(at, { error: failureOf(event.error) });
    if (event.kind === "done") {
      collected[at]!.push(event.sequence);
      if (collected[at]!.length === run.perPrompt) finished.set(at, collected[at]!);
    }
    for (let next; (next = finished.get(written)); written++) {
      finished.delete(written);
      if ("error" in next) failed++;
      report.row(rowOf(prompts[written]!, next));
      progress.update(written + 1);
    }
  }
  return failed;
}

function rowOf(prompt: Prompt, result: Sequence[] | { error: string }): Record<string, unknown> {
  if ("error" in result) return { id: prompt.id, error: result.error };
  const stats = {
    prompt_tokens: prompt.tokens.length,
    new_tokens: result.reduce((sum, { tokens }) => sum + tokens.length, 0),
  };
  if (result.length > 1) return { id: prompt.id, sequences: result, stats };
  return { id: prompt.id, ...result[0]!, stats };
}

type SequenceEvent =
  | { readonly kind: "text"; readonly prompt: number; readonly text: string }
  | { readonly kind: "done"; readonly prompt: number; readonly sequence: Sequence }
  | { readonly kind: "failed"; readonly prompt: number; readonly error: unknown };

/** Decoding with the chosen method, in terms of prompts and text. */
class Run {
  readonly #model: OpenedModel;
  readonly #tokenizer: Tokenizer;
  readonly #values: GenerateValues;
  readonly #eos: readonly number[];

  constructor(model: OpenedModel, tokenizer: Tokenizer, values: GenerateValues) {
    this.#model = model;
    this.#tokenizer = tokenizer;
    this.#values = values;
    const own = values.eos.length > 0 ? values.eos : model.checkpoint.config.eosTokenIds;
    this.#eos = values.ignoreEos ? [] : own;
  }

  get usesBeams(): boolean {
    return this.#values.numBeams > 1;
  }

  /** Sequences per prompt. */
  get perPrompt(): number {
    return this.#values.numReturn;
  }

  /** Runs all prompts. */
  sequences(prompts: readonly Prompt[]): AsyncGenerator<SequenceEvent> {
    return this.usesBeams ? this.#search(prompts) : this.#sample(prompts);
  }

  async *#sample(prompts: readonly Prompt[]): AsyncGenerator<SequenceEvent> {
    const { generate } = await import("../core/generate/generate.ts");
    const { RandomStream } = await import("../core/random.ts");
    const { TextStream } = await import("../core/generate/text_stream.ts");
    const values = this.#values;
    const each = this.perPrompt;
    const texts = new Map<number, { stream: InstanceType<typeof TextStream>; tokens: number[] }>();
    const requests = function* (this: Run): Generator<GenerationRequest> {
      for (let index = 0; index < prompts.length * each; index++) {
        const decoder = this.#tokenizer.streamDecoder({ skipSpecial: true });
        const stream = new TextStream(decoder, values.stop);
        texts.set(index, { stream, tokens: [] });
        yield {
          tokens: prompts[Math.floor(index / each)]!.tokens,
          maxTokens: values.maxTokens,
          sampling: values,
          random: new RandomStream(values.seed, index),
          eosTokenIds: this.#eos,
          shouldStop: (token) => stream.push(token),
        };
      }
    }.call(this);
    const failed = new Set<number>();
    for await (const event of generate(this.#model.engine, requests, values)) {
      const prompt = Math.floor(event.index / each);
      const { stream, tokens } = texts.get(event.index)!;
      if (event.kind === "token") {
        tokens.push(event.token);
        const text = stream.take();
        if (text !== "") yield { kind: "text", prompt, text };
        continue;
      }
      texts.delete(event.index);
      if (event.kind === "failed") {
        // All samples of a prompt fail alike; one is enough to tell.
        if (!failed.has(prompt)) yield { kind: "failed", prompt, error: event.error };
        failed.add(prompt);
        continue;
      }
      stream.finish();
      const text = stream.take();
      if (text !== "") yield { kind: "text", prompt, text };
      const sequence = { text: stream.text, tokens, finish_reason: event.reason };
      yield { kind: "done", prompt, sequence };
    }
  }

  async *#search(prompts: readonly Prompt[]): AsyncGenerator<SequenceEvent> {
    const { beamSearch } = await import("../core/generate/beam_search.ts");
    const { ParscaleError } = await import("../core/errors.ts");
    const { numBeams, maxTokens, lengthPenalty } = this.#values;
    const options = { beams: numBeams, maxTokens, lengthPenalty, eosTokenIds: this.#eos };
    for (const [prompt, { tokens }] of prompts.entries()) {
      try {
        const results = await beamSearch(this.#model.engine, tokens, options);
        for (const result of results.slice(0, this.perPrompt)) {
          yield { kind: "done", prompt, sequence: this.#beamSequence(result) };
        }
      } catch (error) {
        if (!(error instanceof ParscaleError) || error.kind !== "data") throw error;
        yield { kind: "failed", prompt, error };
      }
    }
  }

  #beamSequence(
    result: { tokens: readonly number[]; score: number; reason: FinishReason },
  ): Sequence {
    const { tokens, score, reason } = result;
    const spoken = reason === "eos" ? tokens.slice(0, -1) : tokens;
    let text = this.#tokenizer.decode(spoken, { skipSpecial: true });
    const cuts = this.#values.stop.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
    if (cuts.length > 0) text = text.slice(0, Math.min(...cuts));
    return { text, tokens, finish_reason: cuts.length > 0 ? "stop" : reason, score };
  }
}
