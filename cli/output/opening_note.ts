/**
 * The note that a model is being opened, once that has taken a second.
 *
 * Loading keeps the thread for long stretches, in which no timer fires: so the caller also checks the time
 * with each weight.
 */
import type { Io } from "./io.ts";

/** Opening that takes less is not told of. */
const PATIENCE_MS = 1000;

/** Begins when it is made; dispose of it when the model is open. */
export class OpeningNote implements Disposable {
  readonly #startedMs: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  #isOver = false;

  /** `model` is what the user called it; without, nothing is said. */
  constructor(private readonly io: Io, private readonly model: string | undefined) {
    this.#startedMs = io.system.now();
    this.#timer = setTimeout(() => this.#show(), PATIENCE_MS);
    Deno.unrefTimer(this.#timer as unknown as number);
  }

  /** Shows the note if it is time. */
  check(): void {
    if (this.io.system.now() - this.#startedMs >= PATIENCE_MS) this.#show();
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #show(): void {
    if (this.model === undefined || this.#isOver) return;
    this[Symbol.dispose]();
    this.io.noteOnce(`opening ${this.model} …`);
  }
}
