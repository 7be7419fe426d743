/**
 * Grammars for the vocabulary of one model, on a thread of their own.
 *
 * The thread answers one question: which tokens may follow these? It keeps grammars and texts, but can
 * be started anew at any time, since a question says the whole text. So a schema that takes too long, or
 * on which the library gives up, costs the others a restart and nothing else.
 */
import { createHash } from "node:crypto";
import { DataError } from "../base/errors.ts";
import { NO_PERMISSIONS } from "../base/worker_permissions.ts";
import type { TokenConstraint, TokenMask } from "../generate/logit_rules.ts";
import { type GrammarSource, supportedSchema } from "./source.ts";

const CLOSED = { error: "the model was closed" };

/** Longest time for an answer, once the vocabulary is read. */
const MAX_MS = 5000;

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
  readonly source?: GrammarSource;
  /** Names the text, so that questions about it continue each other. */
  readonly text: number;
  /** All of its tokens so far. */
  readonly tokens: readonly number[];
}

/** A mask, or why there is none; the thread of a broken library is not asked again. */
export type GrammarAnswer =
  | { readonly mask: Int32Array<ArrayBuffer> }
  | { readonly isUnknown: true }
  | { readonly error: string; readonly isBroken?: boolean };

interface Pending extends PromiseWithResolvers<GrammarAnswer> {
  readonly question: GrammarQuestion;
}

/** Compiles grammars. Dispose of it when no text needs them any more. */
export class GrammarEngine implements Disposable {
  readonly #pending: Pending[] = [];
  #worker: Worker | undefined;
  #isOpen = false;
  #isClosed = false;
  #clock: ReturnType<typeof setTimeout> | undefined;
  #nextText = 0;

  /** The thread starts with the first grammar. */
  constructor(private readonly vocabulary: Vocabulary) {}

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#stop();
    for (const { resolve } of this.#pending.splice(0)) resolve(CLOSED);
  }

  /**
   * Limits the tokens of one text.
   * @throws {DataError} for a schema that is not supported, or takes too long to compile
   */
  async constraint(given: GrammarSource): Promise<TokenConstraint> {
    const source = given.kind === "schema"
      ? { ...given, schema: supportedSchema(given.schema) }
      : given;
    const key = createHash("sha256").update(JSON.stringify(source)).digest("hex");
    const text = this.#nextText++;
    const after = async (tokens: readonly number[]): Promise<TokenMask> => {
      const question = { key, text, tokens };
      const known = await this.#ask(tokens.length === 0 ? { ...question, source } : question);
      const answer = "isUnknown" in known ? await this.#ask({ ...question, source }) : known;
      if (!("mask" in answer)) throw new DataError("error" in answer ? answer.error : "no grammar");
      if (answer.mask.every((bits) => bits === 0)) throw new DataError("no token fits the grammar");
      return answer.mask;
    };
    return { first: await after([]), after };
  }

  async #ask(question: GrammarQuestion): Promise<GrammarAnswer> {
    // A thread that nothing ends would keep the program running.
    if (this.#isClosed) return CLOSED;
    const pending = { ...Promise.withResolvers<GrammarAnswer>(), question };
    this.#pending.push(pending);
    if (!this.#worker) this.#start();
    else this.#worker.postMessage(question);
    if (this.#pending.length === 1) this.#startClock();
    return await pending.promise;
  }

  /** Starts the thread with all questions that are open. */
  #start(): void {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), {
      type: "module",
      // It reads the tokenizer and nothing else of the machine.
      deno: { permissions: { ...NO_PERMISSIONS, read: "inherit" } },
    });
    worker.onmessage = ({ data }: MessageEvent<GrammarAnswer | "open">) => {
      if (data === "open") this.#isOpen = true;
      else this.#settle(data);
      this.#startClock();
    };
    worker.onerror = (event) => {
      event.preventDefault(); // else the runtime ends the program
      this.#settle({ error: `the grammar failed: ${event.message}`, isBroken: true });
    };
    this.#worker = worker;
    worker.postMessage(this.vocabulary);
    for (const { question } of this.#pending) worker.postMessage(question);
  }

  /** Answers the first question. */
  #settle(answer: GrammarAnswer): void {
    this.#pending.shift()?.resolve(answer);
    if (!("isBroken" in answer)) return;
    this.#stop();
    if (this.#pending.length > 0) this.#start();
  }

  #startClock(): void {
    clearTimeout(this.#clock);
    if (this.#pending.length === 0 || !this.#isOpen) return;
    const error = `the schema takes more than ${MAX_MS / 1000} s to compile`;
    this.#clock = setTimeout(() => this.#settle({ error, isBroken: true }), MAX_MS);
  }

  #stop(): void {
    clearTimeout(this.#clock);
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#isOpen = false;
  }
}
