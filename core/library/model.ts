/**
 * A model in a program of one's own: what `mod.ts` offers when it is imported.
 *
 * Text in, text out, over the same engine that the command line uses. Everything below is there for who
 * wants more: programs, devices and checkpoints are modules of `core`.
 */
import { openCheckpoint } from "../checkpoint/open.ts";
import { resolveModel } from "../hub/model.ts";
import { resolveRuns } from "../checkpoint/run.ts";
import { Engine } from "../generate/engine.ts";
import { generate } from "../generate/generate.ts";
import { GREEDY, type SamplingOptions } from "../base/sampling.ts";
import { type Score, scoreBatch } from "../generate/score.ts";
import { TextStream } from "../generate/text_stream.ts";
import type { ModelConfig } from "../model/config.ts";
import { RandomStream } from "../base/random.ts";
import {
  type DeviceChoice,
  type ElementChoice,
  type MatrixKind,
  openDevice,
} from "../runtime/mod.ts";
import { type EncodeOptions, openTokenizer, type Tokenizer } from "../tokenizer/tokenizer.ts";

/** How to open a model; every default is the command line's. */
export interface ModelOptions {
  /** Introduced tensors to lay over a plain backbone: a folder or a safetensors file. */
  readonly adapter?: string;
  /** Where to compute; auto is cpu. */
  readonly device?: DeviceChoice;
  /** What to compute in; auto is bf16 on cuda and f32 elsewhere. */
  readonly dtype?: ElementChoice;
  /** Threads to compute with; all cores unless told. */
  readonly threads?: number;
  /** How matrices are kept on cpu and webgpu: exact unless told. */
  readonly weights?: MatrixKind;
}

/** How to continue a text; greedy unless told. */
export interface GenerateOptions extends Partial<SamplingOptions> {
  /** At most this many new tokens; 128 unless told. */
  readonly maxTokens?: number;
  /** Strings that end the text and are not part of it. */
  readonly stop?: readonly string[];
  /** Seed of the draws; the same seed gives the same text. */
  readonly seed?: number;
}

/** A model ready to run. Dispose of it, or say `using`, when it is done. */
export class Model implements Disposable {
  /** Shape of the model and how many streams it has. */
  readonly config: ModelConfig;
  /** Between text and token ids. */
  readonly tokenizer: Tokenizer;
  readonly #engine: Engine;

  private constructor(engine: Engine, tokenizer: Tokenizer) {
    [this.#engine, this.tokenizer, this.config] = [engine, tokenizer, engine.config];
  }

  /**
   * Opens a folder that holds a Qwen2, Qwen2.5, Qwen3 or ParScale checkpoint, or a `train` run; a
   * name such as `Qwen/Qwen2.5-0.5B` is downloaded from the hub unless there is a folder of that name.
   * @throws {DataError} when the folder is not such a checkpoint
   * @throws {EnvironmentError} when the device cannot be used or the hub cannot be reached
   */
  static async open(model: string, options: ModelOptions = {}): Promise<Model> {
    const paths = await resolveRuns(await resolveModel(model), options.adapter);
    const checkpoint = await openCheckpoint(paths.model, paths);
    const tokenizer = await openTokenizer(checkpoint.directory);
    const { device = "auto", dtype, threads, weights = "f32" } = options;
    const opened = await openDevice(device, {
      ...(dtype === undefined ? {} : { dtype }),
      ...(threads === undefined ? {} : { threads }),
      matrices: weights,
    });
    return new Model(new Engine(opened, checkpoint.config, checkpoint.tensors), tokenizer);
  }

  /**
   * Continues a prompt; pieces of text come as they are certain.
   * @throws {DataError} when the prompt is empty or longer than the model's context
   */
  async *generate(
    prompt: string | readonly number[],
    options: GenerateOptions = {},
  ): AsyncGenerator<string> {
    const { maxTokens = 128, stop = [], seed = 0, ...sampling } = options;
    const text = new TextStream(this.tokenizer.streamDecoder({ skipSpecial: true }), stop);
    const request = {
      tokens: typeof prompt === "string" ? this.tokenizer.encode(prompt) : prompt,
      maxTokens,
      sampling: { ...GREEDY, ...sampling },
      random: new RandomStream(seed),
      eosTokenIds: this.config.eosTokenIds,
      shouldStop: (token: number) => text.push(token),
    };
    for await (const event of generate(this.#engine, [request], { batch: 1 })) {
      if (event.kind === "failed") throw event.error;
      if (event.kind === "done") text.finish();
      const piece = text.take();
      if (piece !== "") yield piece;
    }
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

  /** Frees the memory of the device. */
  [Symbol.dispose](): void {
    this.#engine.device.close();
  }
}
