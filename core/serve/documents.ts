/** Responses of completions and chats, whole and in chunks. */
import { type Choice, type Delta, joinDeltas } from "./choice.ts";
import { chatLogprobs, CompletionLogprobs, streamWeights } from "./logprob_documents.ts";
import type { ToolCallDelta } from "./tool_calls.ts";
import type { ServeRequest } from "./request.ts";

/** Builds the documents of one response. */
export class Documents {
  readonly #id: string;
  readonly #created = Math.floor(Date.now() / 1000);
  readonly #logprobs = new Map<Choice, CompletionLogprobs>();
  readonly #greeted = new Set<Choice>();

  constructor(
    private readonly request: ServeRequest,
    private readonly model: string,
    private readonly streams: number,
  ) {
    const prefix = request.kind === "chat" ? "chatcmpl" : "cmpl";
    this.#id = `${prefix}-${crypto.randomUUID().replaceAll("-", "")}`;
  }

  /** The whole response. */
  whole(choices: readonly Choice[], deltas: ReadonlyMap<Choice, readonly Delta[]>) {
    const documents = choices.map((choice) => {
      const delta = joinDeltas(deltas.get(choice)!);
      return this.#isChat
        ? this.#choice(choice, delta, { message: messageOf(delta) })
        : this.#choice(choice, delta, { text: delta.text });
    });
    const object = this.#isChat ? "chat.completion" : "text_completion";
    return {
      ...this.#head(object),
      choices: documents,
      usage: usageOf(choices),
      parscale: this.#parscale,
    };
  }

  /** A chunk of a streamed response; undefined when there is nothing to say. */
  chunk(choice: Choice, delta: Delta | undefined) {
    const isFirst = this.#isChat && !this.#greeted.has(choice);
    if (!isFirst && (!delta || isEmpty(delta, this.#showsTokens))) return undefined;
    this.#greeted.add(choice);
    const gained = delta ?? { text: "", calls: [], tokens: [], finishReason: null };
    const role = isFirst ? { role: "assistant" } : {};
    const content = isFirst || gained.text !== "" ? { content: gained.text } : {};
    const calls = gained.calls.length > 0 && { tool_calls: joinCalls(gained.calls).map(callDelta) };
    const fields = this.#isChat
      ? { delta: { ...role, ...content, ...calls } }
      : { text: gained.text };
    const chunk = this.#chunkOf([this.#choice(choice, gained, fields)], null);
    return gained.finishReason === null ? chunk : { ...chunk, parscale: this.#parscale };
  }

  /** The last chunk of a stream that is to have its usage. */
  usageChunk(choices: readonly Choice[]) {
    return { ...this.#chunkOf([], usageOf(choices)), parscale: this.#parscale };
  }

  /** Facts about the answer as a whole. */
  get #parscale() {
    return { streams: this.streams };
  }

  get #isChat(): boolean {
    return this.request.kind === "chat";
  }

  /** True if token ids are sent before their text is final. */
  get #showsTokens(): boolean {
    return this.request.topLogprobs !== undefined || this.request.weights;
  }

  #head(object: string) {
    return {
      id: this.#id,
      object,
      created: this.#created,
      model: this.model,
      system_fingerprint: null,
    };
  }

  #chunkOf(choices: readonly unknown[], usage: ReturnType<typeof usageOf> | null) {
    const head = this.#head(this.#isChat ? "chat.completion.chunk" : "text_completion");
    return this.request.includeUsage ? { ...head, choices, usage } : { ...head, choices };
  }

  #choice(choice: Choice, { tokens, finishReason }: Delta, fields: object) {
    const { tokenizer } = choice.model.session;
    return {
      index: choice.index,
      ...fields,
      logprobs: this.#logprobsOf(choice, tokens),
      finish_reason: finishReason,
      ...(this.request.weights ? { parscale: streamWeights(tokenizer, this.streams, tokens) } : {}),
    };
  }

  #logprobsOf(choice: Choice, tokens: Delta["tokens"]) {
    if (this.request.topLogprobs === undefined) return null;
    const { tokenizer } = choice.model.session;
    if (this.#isChat) return tokens.length > 0 ? chatLogprobs(tokenizer, tokens) : null;
    return this.#logprobs.getOrInsertComputed(choice, () => new CompletionLogprobs(tokenizer))
      .document(tokens);
  }
}

function isEmpty({ text, calls, tokens, finishReason }: Delta, showsTokens: boolean): boolean {
  return text === "" && calls.length === 0 && finishReason === null &&
    !(showsTokens && tokens.length > 0);
}

/** The message of a whole answer, with its calls in one piece each. */
function messageOf({ text, calls }: Delta) {
  const message = { role: "assistant", content: text, refusal: null };
  if (calls.length === 0) return message;
  const tool_calls = joinCalls(calls).map((call) => {
    const { index: _, ...document } = callDelta(call);
    return document;
  });
  return { ...message, content: text === "" ? null : text, tool_calls };
}

/** Joins pieces of one call: clients take one entry of an index in a delta. */
function joinCalls(calls: readonly ToolCallDelta[]): ToolCallDelta[] {
  return [...Map.groupBy(calls, ({ index }) => index).values()].map((parts) => ({
    ...parts[0]!,
    arguments: parts.map((part) => part.arguments).join(""),
  }));
}

function callDelta({ index, id, name, arguments: text }: ToolCallDelta) {
  const begun = name === undefined ? {} : { id, type: "function" };
  return { index, ...begun, function: { name, arguments: text } };
}

/** Tokens of all choices; a prompt counts once, however many choices it has. */
export function usageOf(choices: readonly Choice[]) {
  // Of several choices the first one has read the prompt.
  const prompts = new Map(choices.toReversed().map((one) => [one.prompt, one.cachedTokens]));
  const sum = (values: Iterable<number>) => [...values].reduce((a, b) => a + b, 0);
  const prompt = sum([...prompts.keys()].map(({ tokens }) => tokens.length));
  const completion = sum(choices.map(({ newTokens }) => newTokens));
  const kept = sum(choices.map(({ drafts }) => drafts.kept));
  const drafted = sum(choices.map(({ drafts }) => drafts.drafted));
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: sum(prompts.values()) },
    ...(drafted > 0 && {
      completion_tokens_details: {
        accepted_prediction_tokens: kept,
        rejected_prediction_tokens: drafted - kept,
      },
    }),
  };
}
