/** Speed report of `generate -v`: loading, the first token, decoding, and peak memory. */
import { peakMemory } from "../../../core/base/platform/mod.ts";
import type { Io } from "../../output/io.ts";
import { bytesText, grouped } from "../../output/units.ts";
import type { SequenceEvent } from "./sequences.ts";

/** Times a generation from the start of the command. */
export class Speed {
  readonly #loadSeconds: number;
  readonly #began: number;
  #first: number | undefined;
  #promptTokens = 0;
  #newTokens = 0;

  /** To be made when the model is open. */
  constructor(private readonly io: Io, startedMs: number) {
    this.#began = io.system.now();
    this.#loadSeconds = (this.#began - startedMs) / 1000;
  }

  /** Passes events on. */
  async *watch(events: AsyncIterable<SequenceEvent>): AsyncGenerator<SequenceEvent> {
    for await (const event of events) {
      this.#first ??= this.io.system.now();
      if (event.kind === "done") {
        this.#promptTokens += event.prompt.tokens.length;
        for (const { tokens } of event.sequences) this.#newTokens += tokens.length;
      }
      yield event;
    }
  }

  /** Says how it went, under `-v`. */
  report(): void {
    const { system, settings } = this.io;
    if (settings.verbose === 0) return;
    const total = (system.now() - this.#began) / 1000;
    const ttft = ((this.#first ?? system.now()) - this.#began) / 1000;
    const peak = peakMemory();
    const decode = total - ttft;
    this.io.detail([
      `loaded in ${seconds(this.#loadSeconds)}`,
      `first text after ${seconds(ttft)}`,
      `${grouped(this.#promptTokens)} prompt tokens, ${rate(this.#promptTokens, ttft)}`,
      `${grouped(this.#newTokens)} new tokens, ${rate(this.#newTokens, decode || total)}`,
      ...(peak === null ? [] : [`peak memory ${bytesText(peak)}`]),
    ].join("; "));
  }
}

function seconds(value: number): string {
  return `${value.toFixed(2)} s`;
}

function rate(tokens: number, time: number): string {
  return time > 0 ? `${grouped(Math.round(tokens / time))} tok/s` : "-";
}
