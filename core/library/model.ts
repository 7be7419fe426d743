/**
 * A model in a program of one's own: what `mod.ts` offers when it is imported.
 *
 * Prompts in, completions out, over the same scheduler that the command line and the server use.
 * Training is done by `parscale train`; its runs open here.
 */
import { openCheckpoint, weightsOf } from "../checkpoint/open.ts";
import { resolveModel } from "../hub/model.ts";
import { resolveRuns } from "../checkpoint/run.ts";
import { UsageError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import { Engine } from "../generate/engine.ts";
import { type FinishReason, generate } from "../generate/generate.ts";
import type { GenerationEvent, GenerationRequest } from "../generate/request.ts";
import { type Score, scoreBatch } from "../generate/score.ts";
import { TextStream } from "../generate/text_stream.ts";
import type { ModelConfig } from "../model/config.ts";
import { introducedTensors } from "../model/parameters.ts";
import {
  type DeviceChoice,
  type ElementChoice,
  type MatrixKind,
  openDevice,
  quantizes,
} from "../runtime/mod.ts";
import { type ChatMessage, renderChat } from "../tokenizer/chat.ts";
import { type EncodeOptions, openTokenizer, type Tokenizer } from "../tokenizer/tokenizer.ts";
import { type BatchOptions, checkGenerateOptions, type GenerateOptions } from "./options.ts";

export type { BatchOptions, GenerateOptions };

/** How to open a model; every default is the command line's. */
export interface ModelOptions {
  /** ParScale parameters to lay over a plain backbone: a folder or a safetensors file. */
  readonly adapter?: string;
  /** Where to compute; auto is cpu. */
  readonly device?: DeviceChoice;
  /** What to compute in; auto is bf16 on cuda and f32 elsewhere. */
  readonly dtype?: ElementChoice;
  /** Threads to compute with; all cores unless told. */
  readonly threads?: number;
  /** Whether to use a GPU that has not passed `parscale doctor --device cuda`. */
  readonly unverified?: boolean;
  /** How matrices are kept on cpu and webgpu: exact unless told. */
  readonly weights?: MatrixKind;
  /** Lets `withAdapter` lay other streams over this backbone, at some cost in memory. */
  readonly sharesBackbone?: boolean;
}

/** A text, token ids, or messages for the chat template. */
export type Prompt = string | readonly number[] | readonly ChatMessage[];

/** A finished continuation. */
export interface Completion {
  /** Without stop strings and special tokens. */
  readonly text: string;
  /** New tokens, the end token included. */
  readonly tokens: readonly number[];
  /** `eos` for an end token, `stop` for a stop string, `length` for the limit. */
  readonly finishReason: FinishReason;
}

/** A model ready to run. Dispose of it, or say `using`, when it is done. */
export class Model implements Disposable {
  /** Shape of the model and how many streams it has. */
  readonly config: ModelConfig;
  /** Between text and token ids. */
  readonly tokenizer: Tokenizer;
  readonly #engine: Engine;
  readonly #paths: { readonly model: string; readonly sharesBackbone: boolean };
  /** Only the model that opened the device closes it. */
  readonly #ownsDevice: boolean;

  private constructor(
    engine: Engine,
    tokenizer: Tokenizer,
    paths: { readonly model: string; readonly sharesBackbone: boolean },
    ownsDevice: boolean,
  ) {
    [this.#engine, this.tokenizer, this.config] = [engine, tokenizer, engine.config];
    [this.#paths, this.#ownsDevice] = [paths, ownsDevice];
  }

  /**
   * Opens a folder that holds a Qwen2, Qwen2.5, Qwen3, Llama or ParScale checkpoint, or a `train` run;
   * a name such as `Qwen/Qwen2.5-0.5B` is downloaded from the hub unless there is a folder of that name.
   * @throws {DataError} when the folder is not such a checkpoint
   * @throws {EnvironmentError} when the device cannot be used or the hub cannot be reached
   */
  static async open(model: string, options: ModelOptions = {}): Promise<Model> {
    const paths = await resolveRuns(await resolveModel(model), options.adapter);
    const checkpoint = await openCheckpoint(paths.model, { ...paths, quantized: true });
    const stored = checkpoint.quantization?.format;
    const tokenizer = await openTokenizer(checkpoint.directory);
    const { device = "auto", dtype, threads, unverified = false, sharesBackbone = false } = options;
    const { weights = stored?.kind ?? "f32" } = options;
    if (stored && (weights !== stored.kind || !quantizes(device))) {
      const wants = weights === stored.kind ? `the ${device} device` : `weights "${weights}"`;
      throw new UsageError(`${wants} needs full-precision weights: "${model}" is ${stored.kind}`);
    }
    const opened = await openDevice(device, {
      unverified,
      ...(dtype === undefined ? {} : { dtype }),
      ...(threads === undefined ? {} : { threads }),
      matrices: weights,
      ...(stored ? { block: stored.block } : {}),
    });
    try {
      const { config } = checkpoint;
      const tensors = weightsOf(checkpoint);
      const binds = sharesBackbone || checkpoint.adapter;
      const adapter = binds ? introducedTensors(config, tensors) : new Map<string, never>();
      const backbone = new Map([...tensors].filter(([name]) => !adapter.has(name)));
      const engine = new Engine(opened, config, backbone, { adapter });
      return new Model(engine, tokenizer, { model: paths.model, sharesBackbone }, true);
    } catch (error) {
      opened.close();
      throw error;
    }
  }

  /**
   * The same backbone under the streams of another adapter; its weights are not read again. Dispose of
   * it before this model. The model must have been opened with `sharesBackbone`.
   * @throws {DataError} when the adapter does not fit the backbone
   */
  async withAdapter(adapter: string): Promise<Model> {
    const { model, sharesBackbone } = this.#paths;
    if (!sharesBackbone) {
      throw new UsageError("`withAdapter` needs a model opened with `sharesBackbone: true`");
    }
    const paths = await resolveRuns(model, adapter);
    const { config, tensors } = await openCheckpoint(paths.model, { ...paths, quantized: true });
    const engine = this.#engine.withAdapter(config, introducedTensors(config, tensors));
    return new Model(engine, this.tokenizer, this.#paths, false);
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
    checkGenerateOptions(options);
    options.signal?.throwIfAborted();
    const request = new Request(await this.#encode(prompt), options, 0, this);
    for await (const event of generate(this.#engine, [request.body], { batch: 1 })) {
      options.signal?.throwIfAborted();
      request.take(event);
      const piece = request.text.take();
      if (piece !== "") yield piece;
    }
    return request.completion();
  }

  /** Continues a prompt and returns the whole completion; errors as of `generate`. */
  async complete(prompt: Prompt, options: GenerateOptions = {}): Promise<Completion> {
    return (await this.completeAll([prompt], { ...options, batch: 1 }))[0]!;
  }

  /**
   * Continues several prompts together; completions are in the order of the prompts, each as if it
   * were alone. Prompt i draws from random stream i of the seed. Errors as of `generate`.
   */
  async completeAll(
    prompts: readonly Prompt[],
    options: BatchOptions = {},
  ): Promise<Completion[]> {
    checkGenerateOptions(options);
    const requests: Request[] = [];
    for (const [i, prompt] of prompts.entries()) {
      requests.push(new Request(await this.#encode(prompt), options, i, this));
    }
    const { batch = 8, signal } = options;
    signal?.throwIfAborted();
    const bodies = requests.map(({ body }) => body);
    for await (const event of generate(this.#engine, bodies, { batch })) {
      signal?.throwIfAborted();
      requests[event.index]!.take(event);
    }
    return requests.map((request) => request.completion());
  }

  /**
   * Log-probabilities of a continuation after a context, both text or token ids.
   * @throws {DataError} when one of them has no tokens
   */
  async score(
    context: string | readonly number[],
    continuation: string | readonly number[],
  ): Promise<Score> {
    const ids = (text: string | readonly number[], options: EncodeOptions = {}) =>
      typeof text === "string" ? this.tokenizer.encode(text, options) : text;
    const before = ids(context);
    const tokens = [...before, ...ids(continuation, { frame: false })];
    const [score] = await scoreBatch(this.#engine, [{ tokens, from: before.length }]);
    return score!;
  }

  /** Frees the memory of the device, unless another model opened it. */
  [Symbol.dispose](): void {
    if (this.#ownsDevice) this.#engine.device.close();
  }

  async #encode(prompt: Prompt): Promise<readonly number[]> {
    if (typeof prompt === "string") return this.tokenizer.encode(prompt);
    if (isMessages(prompt)) {
      const text = await renderChat(this.tokenizer, prompt);
      return this.tokenizer.encode(text, { frame: false });
    }
    return prompt;
  }
}

function isMessages(
  prompt: readonly number[] | readonly ChatMessage[],
): prompt is readonly ChatMessage[] {
  return typeof prompt[0] === "object";
}

/** One prompt under way. */
class Request {
  readonly body: GenerationRequest;
  readonly text: TextStream;
  readonly #tokens: number[] = [];
  #reason: FinishReason | undefined;

  constructor(
    tokens: readonly number[],
    options: GenerateOptions,
    stream: number,
    { tokenizer, config }: Model,
  ) {
    const { maxTokens = 128, stop = [], seed = 0, topK = 0, topP = 1, minP = 0 } = options;
    const { temperature = 0, repetitionPenalty } = options;
    this.text = new TextStream(tokenizer.streamDecoder({ skipSpecial: true }), stop);
    this.body = {
      tokens,
      maxTokens,
      sampling: {
        temperature,
        topK,
        topP,
        minP,
        ...(repetitionPenalty !== undefined && { repetitionPenalty }),
      },
      random: new RandomStream(seed, stream),
      eosTokenIds: config.eosTokenIds,
      shouldStop: (token) => this.text.push(token),
    };
  }

  take(event: GenerationEvent): void {
    if (event.kind === "failed") throw event.error;
    if (event.kind === "token") this.#tokens.push(event.token);
    if (event.kind === "done") {
      this.#reason = event.reason;
      this.text.finish();
    }
  }

  completion(): Completion {
    return { text: this.text.text, tokens: this.#tokens, finishReason: this.#reason! };
  }
}
