/**
 * Grammars for the vocabulary of one model, on a thread of their own.
 *
 * The thread answers one question: which tokens may follow these? Each question is bounded work, so that
 * none holds up the others for long. The thread keeps grammars and texts, but can forget them at any time,
 * since a question says the whole text.
 */
import { createHash } from "node:crypto";
import { DataError, ParscaleError } from "../base/errors.ts";
import { exactJsonText } from "../base/exact_json.ts";
import { Thread } from "../base/thread.ts";
import { TurnQueue } from "../base/turn_queue.ts";
import type { TokenConstraint, TokenMask } from "../generate/logit_rules.ts";
import { TooMuchWork } from "./automaton.ts";
import type { Grammar } from "./expression.ts";

/** A grammar, or the schema of one. */
export type GrammarSource = Grammar | { readonly schema: unknown };

/** A source as the worker receives it: a schema as text, which keeps digits and order of keys. */
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
  /** Its source and the vocabulary, absent where the thread should know them. */
  readonly opening?: { readonly source: SentSource; readonly vocabulary: Vocabulary };
  /** Names the text, so that questions about it continue each other. */
  readonly text: number;
  /** All of its tokens so far. */
  readonly tokens: readonly number[];
}

/** Drops a grammar that took too much work, and so takes memory. */
export interface DroppedGrammar {
  readonly dropped: string;
}

/** A mask with the work that it took; undefined for a grammar that the thread does not know. */
export type GrammarAnswer =
  | { readonly mask: Int32Array<ArrayBuffer>; readonly work: number }
  | undefined;

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
  readonly #turns = new TurnQueue();
  readonly #prepared = new WeakMap<GrammarSource, Prepared>();
  #thread: Thread<GrammarQuestion | DroppedGrammar, GrammarAnswer> | undefined;
  #isClosed = false;
  #nextText = 0;

  /** The thread starts with the first grammar. */
  constructor(private readonly vocabulary: Vocabulary) {}

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#thread?.end(closedError());
  }

  /**
   * Limits the tokens of one text; a `signal` that aborts before the first mask drops it.
   * @throws {DataError} for a schema that is not supported
   */
  async constraint(given: GrammarSource, signal?: AbortSignal): Promise<TokenConstraint> {
    const prepared = this.#prepare(given), { key, source } = prepared;
    const text = this.#nextText++, opening = { source, vocabulary: this.vocabulary };
    const ask = async (tokens: readonly number[], signal?: AbortSignal): Promise<TokenMask> => {
      const question = { key, text, tokens };
      // A turn for each, so that many new grammars do not stand before one that is known.
      const turn = (question: GrammarQuestion) =>
        this.#turns.take(() => prepared.cost, () => this.#ask(question), signal);
      const answer = (await turn(question) ?? await turn({ ...question, opening }))!;
      if (answer.mask.every((bits) => bits === 0)) throw new DataError("no token fits the grammar");
      prepared.cost += answer.work;
      if (prepared.cost > (prepared.limit += WORK_PER_MASK)) {
        await this.#ask({ dropped: key });
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

  async #ask(question: GrammarQuestion | DroppedGrammar): Promise<GrammarAnswer> {
    // A thread that nothing ends would keep the program running.
    if (this.#isClosed) throw closedError();
    if (!this.#thread || this.#thread.hasEnded) {
      this.#thread = new Thread(new URL("./worker.ts", import.meta.url), "the grammar failed");
    }
    try {
      return await this.#thread.ask(question);
    } catch (error) {
      throw error instanceof ParscaleError ? error : new DataError((error as Error).message);
    }
  }
}

function closedError(): DataError {
  return new DataError("the model was closed");
}
