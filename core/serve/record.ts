/** Log record of one request. */
import type { Choice } from "./choice.ts";
import { usageOf } from "./documents.ts";
import type { ServedModel } from "./service.ts";

/** A request and how it was answered. */
export interface RequestRecord {
  readonly method: string;
  readonly path: string;
  /** Status of the response; 499 if the client left before its end, 500 if a stream failed. */
  readonly status: number;
  readonly model: string | undefined;
  readonly streams: number | undefined;
  readonly promptTokens: number;
  readonly newTokens: number;
  readonly firstTokenMs: number | undefined;
  readonly totalMs: number;
  /** Message of a refusal. */
  readonly error: string | undefined;
  /** Says which part of the request was not done. */
  readonly note: string | undefined;
}

/** Collects the record of a request, and hands it over once. */
export class Recorder {
  /** Set by a response that continues after its head, and then ends the record itself. */
  isStreaming = false;
  note: string | undefined;
  readonly #began = performance.now();
  #model: ServedModel | undefined;
  #choices: readonly Choice[] = [];
  #firstTokenMs: number | undefined;
  #isOver = false;

  constructor(
    private readonly method: string,
    private readonly path: string,
    private readonly take: (record: RequestRecord) => void,
  ) {}

  /** Names the choices that are computed. */
  start(model: ServedModel, choices: readonly Choice[]): void {
    this.#model = model;
    this.#choices = choices;
  }

  /** Times the first token of all choices. */
  tokenCame(): void {
    this.#firstTokenMs ??= performance.now() - this.#began;
  }

  /** Completes the record; later calls do nothing. */
  end(status: number, error?: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const usage = usageOf(this.#choices);
    this.take({
      method: this.method,
      path: this.path,
      status,
      model: this.#model?.name,
      streams: this.#model?.session.config.streams,
      promptTokens: usage.prompt_tokens,
      newTokens: usage.completion_tokens,
      firstTokenMs: this.#firstTokenMs,
      totalMs: performance.now() - this.#began,
      error,
      note: this.note,
    });
  }
}
