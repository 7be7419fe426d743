/**
 * A model ready to run: its engine and tokenizer, and other adapters over the same backbone.
 *
 * Prompts in, completions out, over the scheduler that `generate`, `eval` and `serve` use.
 */
import { type Checkpoint, openCheckpoint } from "../checkpoint/open.ts";
import { hasTokenizer } from "../checkpoint/model_files.ts";
import { resolveRuns } from "../checkpoint/run.ts";
import { DataError, UsageError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import { Engine } from "../generate/engine.ts";
import type { TokenConstraint } from "../generate/logit_rules.ts";
import { type Score, scoreBatch, type ScoreRequest } from "../generate/score.ts";
import type { GrammarEngine, GrammarSource } from "../grammar/engine.ts";
import { isParScale, type ModelConfig, plainConfig } from "../model/config.ts";
import { introducedValues } from "../model/init.ts";
import { introducedTensors, parameterSpecs } from "../model/parameters.ts";
import type { Weight, Weights } from "../runtime/device.ts";
import type { DeviceName } from "../runtime/mod.ts";
import { type ChatMessage, encodeChat } from "../tokenizer/chat.ts";
import { encodePair, startTokenOf } from "../tokenizer/pair.ts";
import type { EncodeOptions, Tokenizer } from "../tokenizer/types.ts";
import { PrefixCache } from "../generate/prefix_cache.ts";
import { type BeamCompletion, completeByBeams } from "./beam.ts";
import {
  type BatchOptions,
  BEAM_RULES,
  type BeamSearchOptions,
  checkOptions,
  GENERATE_RULES,
  type GenerateOptions,
  samplingOf,
} from "./options.ts";
import {
  complete,
  type Completion,
  type CompletionEvent,
  type CompletionRequest,
} from "./stream.ts";

/** A text, token ids, or messages for the chat template, which may be of a type without other fields. */
export type Prompt =
  | string
  | readonly number[]
  | readonly (ChatMessage | Pick<ChatMessage, "role" | "content">)[];

const ANY_OBJECT = { type: "object" };

/** Options with which a session was opened. */
interface SessionOptions {
  /** All of the model, those of an adapter too. */
  readonly weights: Weights;
  readonly matrices: string;
  readonly sharesBackbone?: boolean | undefined;
  readonly memoryLimit?: number | undefined;
  readonly chatTemplate?: string | undefined;
  readonly templateVariables?: Readonly<Record<string, unknown>> | undefined;
}

/** A model ready to run. Dispose of it, or say `using`, when it is done. */
export class Session implements Disposable {
  /**
   * Checkpoint it was opened from.
   * @internal
   */
  readonly checkpoint: Checkpoint;
  /**
   * Engine on the device.
   * @internal
   */
  readonly engine: Engine;
  readonly #options: SessionOptions;
  /** The session that opened device and tokenizer, where this one lays an adapter over it. */
  readonly #backbone: Session | undefined;
  /** Prefix cache of beam search. */
  readonly #prefixes = new PrefixCache();
  #tokenizer: Tokenizer | undefined;
  #opening: Promise<Tokenizer> | undefined;
  #grammars: GrammarEngine | undefined;
  #isClosed = false;

  /**
   * Made by `openModel`.
   * @internal
   */
  constructor(checkpoint: Checkpoint, engine: Engine, options: SessionOptions, backbone?: Session) {
    this.checkpoint = checkpoint;
    this.engine = engine;
    this.#options = options;
    this.#backbone = backbone;
  }

  /** Shape of the model and how many streams it has. */
  get config(): ModelConfig {
    return this.engine.config;
  }

  /** Name of the device in use. */
  get device(): DeviceName {
    return this.engine.device.name;
  }

  /** Format of matrices: f32, q8, q4, or that of a GGUF file whose codes are kept, such as Q4_K_M. */
  get matrices(): string {
    return this.#options.matrices;
  }

  /** Between text and token ids. */
  get tokenizer(): Tokenizer {
    const tokenizer = this.#backbone?.tokenizer ?? this.#tokenizer;
    if (!tokenizer) throw new TypeError("the tokenizer is not open yet: await `openTokenizer`");
    return tokenizer;
  }

  /**
   * Reads the tokenizer at the first call.
   * @internal
   */
  async openTokenizer(): Promise<Tokenizer> {
    if (this.#backbone) return await this.#backbone.openTokenizer();
    const { openTokenizer } = await import("../tokenizer/tokenizer.ts");
    this.#opening ??= openTokenizer(this.checkpoint.files, this.#options);
    return this.#tokenizer = await this.#opening;
  }

  /**
   * The tokenizer, or undefined where the folder has none, which is enough for token ids.
   * @internal
   */
  async openTokenizerIfAny(): Promise<Tokenizer | undefined> {
    if (await hasTokenizer(this.checkpoint.files)) return await this.openTokenizer();
  }

  /**
   * The same backbone under the streams of another adapter; its weights are not read again. Dispose of
   * it before this model. The model must have been opened with `sharesBackbone`.
   * @throws {DataError} when the adapter does not fit the backbone
   */
  async withAdapter(adapter: string): Promise<Session> {
    if (!this.#options.sharesBackbone) {
      throw new UsageError("`withAdapter` needs a model opened with `sharesBackbone: true`");
    }
    const paths = await resolveRuns(this.checkpoint.directory, adapter);
    const checkpoint = await openCheckpoint(paths.model, { ...paths, quantized: true });
    const { config, tensors } = checkpoint;
    const introduced = introducedTensors(config, tensors);
    const engine = this.engine.withAdapter(config, introduced);
    const weights = new Map<string, Weight>([...this.#options.weights, ...introduced]);
    return new Session(checkpoint, engine, { ...this.#options, weights }, this);
  }

  /**
   * The same backbone with P streams, for benchmarks: where the model has another number, prefixes and
   * aggregator are random. They are part of the weights, as in a converted checkpoint, even those of an adapter,
   * because tensors that are bound at every step cannot be packed. Dispose of it before this model.
   * @internal
   */
  withStreams(streams: number, seed: number): Session {
    const { memoryLimit, weights: stored } = this.#options;
    const { config, weights } = modelWith(this.checkpoint.config, stored, streams, seed);
    const engine = new Engine(this.engine.device, config, weights, { memoryLimit });
    return new Session(this.checkpoint, engine, this.#options, this);
  }

  /**
   * Continues a prompt; pieces of text come as they are certain, the whole completion at the end.
   * @throws {DataError} when the prompt is empty or longer than the model's context
   * @throws {UsageError} for an option out of range
   */
  async *generate(
    prompt: Prompt,
    options: GenerateOptions = {},
  ): AsyncGenerator<string, Completion> {
    let completion!: Completion;
    for await (const event of this.#complete([prompt], { ...options, batch: 1 })) {
      const { text, stream, finishReason } = event;
      if (text !== "") yield text;
      if (finishReason) completion = { text: stream.text!, tokens: stream.tokens, finishReason };
    }
    return completion;
  }

  /** Continues a prompt and returns the whole completion; errors as of `generate`. */
  async complete(prompt: Prompt, options: GenerateOptions = {}): Promise<Completion> {
    return (await this.completeAll([prompt], { ...options, batch: 1 }))[0]!;
  }

  /**
   * Continues several prompts together; completions are in the order of the prompts, each as if it
   * were alone. Prompt i draws from random stream i of the seed. Errors as of `generate`.
   */
  async completeAll(prompts: readonly Prompt[], options: BatchOptions = {}): Promise<Completion[]> {
    requireList("prompts", prompts, "a list");
    const completions: Completion[] = [];
    for await (const { of, stream, finishReason } of this.#complete(prompts, options)) {
      if (!finishReason) continue;
      completions[of] = { text: stream.text!, tokens: stream.tokens, finishReason };
    }
    return completions;
  }

  /**
   * Searches for the likeliest continuations by the rules of transformers; best first, as many as beams.
   * Errors as of `generate`.
   */
  async beamSearch(prompt: Prompt, options: BeamSearchOptions = {}): Promise<BeamCompletion[]> {
    checkOptions(options, BEAM_RULES);
    requireIds(this.config, options.logitBias);
    const { numBeams: beams = 4, maxTokens = 128, lengthPenalty = 1 } = options;
    const { jsonSchema, ...others } = options;
    const { eosTokenIds } = this.config;
    const tokens = await this.encode(prompt);
    const constraint = await this.#constraintOf(jsonSchema);
    const search = { tokens, beams, maxTokens, lengthPenalty };
    const request = { eosTokenIds, ...others, ...search, ...(constraint && { constraint }) };
    const tokenizer = await this.openTokenizerIfAny();
    return await completeByBeams(this.engine, tokenizer, request, this.#prefixes);
  }

  /**
   * Log-probabilities of a continuation after a context. Two texts are encoded together, as `parscale score`
   * and lm-evaluation-harness do; an empty context is the start of a text.
   * @throws {DataError} when there are no tokens to score, or none before them
   */
  async score(
    context: string | readonly number[],
    continuation: string | readonly number[],
  ): Promise<Score> {
    const [score] = await scoreBatch(this.engine, [await this.#pairOf(context, continuation)]);
    return score!;
  }

  async #pairOf(
    context: string | readonly number[],
    continuation: string | readonly number[],
  ): Promise<ScoreRequest> {
    if (typeof context === "string" && typeof continuation === "string") {
      const tokenizer = await this.openTokenizer();
      const start = startTokenOf(tokenizer, this.config.eosTokenIds);
      return encodePair(tokenizer, context, continuation, start);
    }
    const ids = (name: string, text: string | readonly number[], options: EncodeOptions = {}) => {
      if (typeof text === "string") return this.tokenizer.encode(text, options);
      requireList(name, text, "a text or token ids");
      return text;
    };
    const before = ids("context", context);
    const tokens = [...before, ...ids("continuation", continuation, { frame: false })];
    if (before.length === 0 || tokens.length === before.length) {
      const empty = before.length === 0 ? "context" : "continuation";
      throw new DataError(`cannot score: the ${empty} has no tokens`);
    }
    return { tokens, from: before.length };
  }

  /**
   * Token ids of a prompt.
   * @throws {DataError} for messages where there is no chat template
   */
  async encode(prompt: Prompt): Promise<readonly number[]> {
    if (typeof prompt === "string") return (await this.openTokenizer()).encode(prompt);
    requireList("prompt", prompt, "a text, token ids or messages");
    if (typeof prompt[0] !== "object") return prompt as readonly number[];
    return await encodeChat(await this.openTokenizer(), prompt as readonly ChatMessage[]);
  }

  /**
   * Limits the tokens of one text to those that a grammar or schema allows; the vocabulary is read with
   * the first. `signal` aborts with the request.
   * @throws {DataError} for a schema that is not supported
   * @internal
   */
  async constraint(source: GrammarSource, signal?: AbortSignal): Promise<TokenConstraint> {
    if (this.#backbone) return await this.#backbone.constraint(source, signal);
    if (!this.#grammars) {
      const { GrammarEngine } = await import("../grammar/engine.ts");
      const { vocabSize, eosTokenIds: stopTokenIds } = this.config;
      const { directory } = await this.openTokenizer();
      this.#grammars ??= new GrammarEngine({ directory, vocabSize, stopTokenIds });
      if (this.#isClosed) this.#grammars[Symbol.dispose]();
    }
    return await this.#grammars.constraint(source, signal);
  }

  async #constraintOf(
    schema: object | boolean | undefined,
    signal?: AbortSignal,
  ): Promise<TokenConstraint | undefined> {
    if (schema === undefined || schema === false) return undefined;
    return await this.constraint({ schema: schema === true ? ANY_OBJECT : schema }, signal);
  }

  /** Frees the memory of the device, unless another model opened it. */
  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#grammars?.[Symbol.dispose]();
    this.#prefixes[Symbol.dispose]();
    if (!this.#backbone) this.engine.device.close();
  }

  /** Events of completions by the place of the prompt, which is also its random stream. */
  async *#complete(
    prompts: readonly Prompt[],
    options: BatchOptions,
  ): AsyncGenerator<CompletionEvent<number>> {
    checkOptions(options, GENERATE_RULES);
    requireIds(this.config, options.logitBias);
    const { maxTokens = 128, stop, seed = 0, batch = 8, signal } = options;
    const requests: CompletionRequest<number>[] = [];
    for (const [of, prompt] of prompts.entries()) {
      const constraint = await this.#constraintOf(options.jsonSchema, signal);
      requests.push({
        ...(constraint && { constraint }),
        of,
        tokens: await this.encode(prompt),
        maxTokens,
        sampling: samplingOf(options),
        random: new RandomStream(seed, of),
        eosTokenIds: this.config.eosTokenIds,
        ...(stop ? { stop } : {}),
      });
    }
    signal?.throwIfAborted();
    const { memoryLimit } = this.#options;
    const run = { batch, memoryLimit, onPrefill: () => signal?.throwIfAborted() };
    for await (const event of complete(this.engine, this.tokenizer, requests, run)) {
      signal?.throwIfAborted();
      if (event.error !== undefined) throw event.error;
      yield event;
    }
  }
}

/** @throws {UsageError} for a value that a program without types has got wrong */
function requireList(name: string, value: unknown, words: string): void {
  if (Array.isArray(value) || ArrayBuffer.isView(value)) return;
  throw new UsageError(`${name} must be ${words}, not ${String(value)}`);
}

/** @throws {UsageError} for a bias on a token that the model lacks */
function requireIds({ vocabSize }: ModelConfig, logitBias?: ReadonlyMap<number, number>): void {
  const wrong = [...logitBias?.keys() ?? []].find((id) => id >= vocabSize);
  if (wrong === undefined) return;
  throw new UsageError(`logitBias names token ${wrong}, and the vocabulary has ${vocabSize} ids`);
}

/** Config and weights of a model with `streams` streams: its own where it has that many. */
function modelWith(
  own: ModelConfig,
  stored: Weights,
  streams: number,
  seed: number,
): { readonly config: ModelConfig; readonly weights: Weights } {
  if (streams === own.streams) return { config: own, weights: stored };
  const config: ModelConfig = streams === 1
    ? plainConfig(own)
    : { ...own, streams, prefix: isParScale(own) ? own.prefix : true };
  const weights = parameterSpecs(config).map((spec) =>
    [
      spec.name,
      spec.introduced
        ? { dtype: "f32" as const, shape: spec.shape, data: introducedValues(spec, seed) }
        : stored.get(spec.name)!,
    ] as const
  );
  return { config, weights: new Map(weights) };
}
