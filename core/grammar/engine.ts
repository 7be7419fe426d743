/**
 * Grammars for the vocabulary of one model, on a thread of their own.
 *
 * The thread answers one question: which tokens may follow these? Each question is bounded work, so that
 * none holds up the others for long. The thread keeps grammars and texts, but can forget them at any time,
 * since a question says the whole text.
 */
import { createHash } from "node:crypto";
import { DataError } from "../base/errors.ts";
import { exactJsonText } from "../base/exact_json.ts";
import { NO_PERMISSIONS } from "../base/worker_permissions.ts";
import type { TokenConstraint, TokenMask } from "../generate/logit_rules.ts";
import { TooMuchWork } from "./automaton.ts";
import type { Grammar } from "./expression.ts";

const CLOSED = { error: "the model was closed" };

/** A grammar, or the schema of one. */
export type GrammarSource = Grammar | { readonly schema: unknown };

/** A source as it is sent to the thread: a schema as the text that keeps its digits and order. */
export type SentSource = Grammar | { readonly schema: string };

/** Tokens that texts are made of. */
export interface Vocabulary {
  /** Folder or file of the tokenizer. */
  readonly directory: string;
  /** Rows of the model's head. */
  readonly vocabSize: number;
  /** Tokens that end a text, allowed where the grammar is complete. */
  readonly stopTokenIds: readonly number[];
}

/** Asks which tokens may follow. */
export interface GrammarQuestion {
  /** Names the grammar; short, as it travels with every token. */
  readonly key: string;
  /** Absent where the thread should know it. */
  readonly source?: SentSource;
  /** Names the text, so that questions about it continue each other. */
  readonly text: number;
  /** All of its tokens so far. */
  readonly tokens: readonly number[];
}

/** Drops a grammar that took too much work, and so takes memory. */
export interface DroppedGrammar {
  readonly dropped: string;
}

/** A mask with the work that it took, or why there is none. */
export type GrammarAnswer =
  | { readonly mask: Int32Array<ArrayBuffer>; readonly work: number }
  | { readonly isUnknown: true }
  | { readonly error: string };

interface Pending extends PromiseWithResolvers<GrammarAnswer> {
  readonly question: GrammarQuestion;
  readonly of: Prepared;
  readonly signal: AbortSignal | undefined;
}

/** A source that is ready to be sent. */
interface Prepared {
  readonly key: string;
  readonly source: SentSource;
  /** Characters of its text, and the work of its masks so far: of two requests, the lesser comes first. */
  cost: number;
  /** Most that it may cost. */
  limit: number;
}

/** Most work for a request, a part of it for each mask: ordinary schemas take less than half of these. */
const REQUEST_WORK = 3_000_000, WORK_PER_MASK = 500;

/** Follows texts through grammars. Dispose of it when no text needs them any more. */
export class GrammarEngine implements Disposable {
  readonly #waiting: Pending[] = [];
  readonly #prepared = new WeakMap<GrammarSource, Prepared>();
  #asked: Pending | undefined;
  #worker: Worker | undefined;
  #isClosed = false;
  #turn = 0;
  #nextText = 0;

  /** The thread starts with the first grammar. */
  constructor(private readonly vocabulary: Vocabulary) {}

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#stop();
    for (const { resolve } of this.#waiting.splice(0)) resolve(CLOSED);
    this.#asked?.resolve(CLOSED);
  }

  /**
   * Limits the tokens of one text; a `signal` that aborts before the first mask drops it.
   * @throws {DataError} for a schema that is not supported
   */
  async constraint(given: GrammarSource, signal?: AbortSignal): Promise<TokenConstraint> {
    const prepared = this.#prepare(given), { key, source } = prepared;
    const text = this.#nextText++;
    const ask = async (tokens: readonly number[], signal?: AbortSignal): Promise<TokenMask> => {
      const question = { key, text, tokens };
      const known = await this.#ask(question, prepared, signal);
      const answer = "isUnknown" in known
        ? await this.#ask({ ...question, source }, prepared, signal)
        : known;
      if (!("mask" in answer)) throw new DataError("error" in answer ? answer.error : "no grammar");
      if (answer.mask.every((bits) => bits === 0)) throw new DataError("no token fits the grammar");
      prepared.cost += answer.work;
      if (prepared.cost > (prepared.limit += WORK_PER_MASK)) {
        this.#worker?.postMessage({ dropped: key });
        throw new TooMuchWork();
      }
      return answer.mask;
    };
    return { first: await ask([], signal), after: (tokens) => ask(tokens) };
  }

  #prepare(given: GrammarSource): Prepared {
    const known = this.#prepared.get(given);
    if (known) return known;
    const source = "schema" in given ? { schema: exactJsonText(given.schema) } : given;
    const text = "schema" in source ? source.schema : JSON.stringify(source.rules);
    const key = createHash("sha256").update(`${"schema" in source} ${text}`).digest("hex");
    const prepared = { key, source, cost: text.length, limit: REQUEST_WORK };
    this.#prepared.set(given, prepared);
    return prepared;
  }

  async #ask(
    question: GrammarQuestion,
    of: Prepared,
    signal?: AbortSignal,
  ): Promise<GrammarAnswer> {
    // A thread that nothing ends would keep the program running.
    if (this.#isClosed) return CLOSED;
    const pending = { ...Promise.withResolvers<GrammarAnswer>(), question, of, signal };
    this.#waiting.push(pending);
    this.#next();
    return await pending.promise;
  }

  /** Asks the next question: of the request that cost least so far, but the oldest one in each fourth turn. */
  #next(): void {
    while (!this.#asked && this.#waiting.length > 0) {
      const least = Math.min(...this.#waiting.map(({ of }) => of.cost));
      const isOldest = ++this.#turn % 4 === 0;
      const at = isOldest ? 0 : this.#waiting.findIndex(({ of }) => of.cost === least);
      const [pending] = this.#waiting.splice(at, 1);
      if (pending!.signal?.aborted) {
        pending!.reject(pending!.signal.reason);
        continue;
      }
      this.#asked = pending;
      this.#worker ??= this.#start();
      this.#worker.postMessage(pending!.question);
    }
  }

  #start(): Worker {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), {
      type: "module",
      // It reads the tokenizer and nothing else of the machine.
      deno: { permissions: { ...NO_PERMISSIONS, read: "inherit" } },
    });
    worker.onmessage = ({ data }: MessageEvent<GrammarAnswer>) => this.#settle(data);
    worker.onerror = (event) => {
      event.preventDefault(); // else the runtime ends the program
      this.#stop();
      this.#settle({ error: `the grammar failed: ${event.message}` });
    };
    worker.postMessage(this.vocabulary);
    return worker;
  }

  #settle(answer: GrammarAnswer): void {
    this.#asked?.resolve(answer);
    this.#asked = undefined;
    this.#next();
  }

  #stop(): void {
    this.#worker?.terminate();
    this.#worker = undefined;
  }
}
