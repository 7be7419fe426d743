/** A conversation: its history, the model in use, and answers token by token. */
import { letSignalsThrough } from "../../../core/base/abortable.ts";
import { DataError } from "../../../core/base/errors.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { Scheduler } from "../../../core/generate/scheduler.ts";
import { hasStreamWeights } from "../../../core/model/config.ts";
import type { ServedModel } from "../../../core/serve/service.ts";
import { CompletionStream } from "../../../core/session/stream.ts";
import { type ChatMessage, encodeChat } from "../../../core/tokenizer/chat.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { DRAFT_TOKENS } from "../../input/decoding_flags.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type ChatValues = ValuesOf<typeof command>;

/** Memory per model for the conversation so far. */
const PREFIX_CACHE_BYTES = 2 ** 28;

/** Part of an answer. */
export interface AnswerPart {
  /** Text that can no longer change; may be empty. */
  readonly text: string;
  /** Aggregation weights of the token it ends with, where the model has several streams. */
  readonly weights: Float32Array | undefined;
}

export class ChatSession implements Disposable {
  /** In use. */
  model: ServedModel;
  /** System message, of what was said too. */
  system: string | undefined;
  temperature: number;
  readonly #schedulers: ReadonlyMap<ServedModel, Scheduler>;
  #messages: ChatMessage[] = [];
  #answers = 0;

  constructor(
    private readonly models: readonly ServedModel[],
    private readonly values: ChatValues,
  ) {
    this.temperature = values.temperature;
    this.system = values.system;
    this.model = models[0]!;
    const { speculate = DRAFT_TOKENS } = values;
    const sizes = { batch: 1, prefixCacheBytes: PREFIX_CACHE_BYTES, keepsAnswers: true, speculate };
    this.#schedulers = new Map(
      models.map((model) => [model, new Scheduler(model.session.engine, sizes)]),
    );
  }

  [Symbol.dispose](): void {
    for (const scheduler of this.#schedulers.values()) scheduler[Symbol.dispose]();
  }

  /** Streams that models have, in their order. */
  get choices(): number[] {
    return this.models.map(({ session }) => session.config.streams);
  }

  /** Continues with the model of `streams` streams; false when none has. */
  useStreams(streams: number): boolean {
    const found = this.models.find(({ session }) => session.config.streams === streams);
    if (found) this.model = found;
    return found !== undefined;
  }

  /** Forgets the conversation, and continues with the system message. */
  clear(): void {
    this.#messages = [];
  }

  /** The conversation with its system message. */
  get messages(): ChatMessage[] {
    return this.#before(this.#messages.length);
  }

  /** The system message and what was said before a place. */
  #before(at: number): ChatMessage[] {
    const { system } = this;
    const first = system === undefined ? [] : [{ role: "system", content: system }];
    return [...first, ...this.#messages.slice(0, at)];
  }

  /** The last message and its place in the conversation; undefined when there is none. */
  get last(): { readonly text: string; readonly at: number | undefined } | undefined {
    const at = this.#messages.findLastIndex(({ role }) => role === "user");
    // Text, as `answer` has put it there.
    return at < 0 ? undefined : { text: this.#messages[at]!.content as string, at };
  }

  /**
   * Answers a message; one that is stopped stays in the conversation as far as it came. What was said from
   * the place `at` on is replaced once there is an answer.
   */
  async *answer(
    message: string,
    stop: AbortSignal,
    onPrefill: (done: number, total: number) => void,
    at = this.#messages.length,
  ): AsyncGenerator<AnswerPart> {
    const { config, tokenizer } = this.model.session;
    const asked = { role: "user", content: message };
    const tokens = await encodeChat(tokenizer, [...this.#before(at), asked]);
    const { maxPositionEmbeddings: context } = config;
    if (at > 0 && tokens.length > context) {
      throw new DataError(
        `cannot answer: ${tokens.length} tokens exceed the model's context of ${context}`,
        { hints: ["shorten the text, or forget the conversation by /clear"] },
      );
    }
    const stream = new CompletionStream(tokenizer);
    const scheduler = this.#schedulers.get(this.model)!;
    const { maxTokens, topP, seed } = this.values;
    const hasWeights = config.streams > 1 && hasStreamWeights(config);
    const index = this.#answers++;
    scheduler.add(index, {
      tokens,
      maxTokens,
      sampling: { temperature: this.temperature, topP, topK: 0, minP: 0 },
      random: new RandomStream(seed, index),
      eosTokenIds: config.eosTokenIds,
      shouldStop: stream.shouldStop,
      streamWeights: hasWeights,
    });
    try {
      while (!scheduler.isIdle && !stop.aborted) {
        for await (const event of scheduler.round()) {
          const { text, tokens: [token] } = stream.take(event);
          if (event.kind !== "prefilled") yield { text, weights: token?.weights };
        }
        const read = scheduler.progressOf(index);
        if (read > 0) onPrefill(read, tokens.length);
        await letSignalsThrough();
      }
    } finally {
      scheduler.cancel(index);
    }
    const answer = { role: "assistant", content: stream.text };
    this.#messages = [...this.#messages.slice(0, at), asked, answer];
  }
}
