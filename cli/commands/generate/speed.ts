/** Times of `generate`: of all for `-v`, with peak memory, and of each prompt for `--timings`. */
import { peakMemory } from "../../../core/base/platform/mod.ts";
import type { Io } from "../../output/io.ts";
import { bytesText, grouped } from "../../output/units.ts";
import type { Prompt } from "../../input/prompts.ts";
import type { GeneratePlan } from "./plan.ts";
import type { SequenceEvent, Timing } from "./sequences.ts";

/** Times of a prompt that is not finished. */
interface Times {
  readonly taken: number;
  first?: number;
}

/** Times a generation from the start of the command. */
export class Speed {
  readonly #loadSeconds: number;
  readonly #began: number;
  #first: number | undefined;
  #promptTokens = 0;
  #newTokens = 0;
  readonly #open = new Map<Prompt, Times>();

  /** To be made when the model is open. */
  constructor(
    private readonly io: Io,
    startedMs: number,
    private readonly plan: Pick<GeneratePlan, "decoding" | "timings">,
  ) {
    this.#began = io.system.now();
    this.#loadSeconds = (this.#began - startedMs) / 1000;
  }

  /** Begins the time of a prompt. */
  begin(prompt: Prompt): void {
    this.#open.set(prompt, { taken: this.io.system.now() });
  }

  /** Takes an event; the one that ends a prompt gets its times where they are asked for. */
  observe(event: SequenceEvent): SequenceEvent {
    const { prompt, kind } = event, now = this.io.system.now();
    this.#first ??= now;
    const times = this.#open.get(prompt)!;
    times.first ??= now;
    if (kind !== "text") this.#open.delete(prompt);
    const timing = kind === "done" && this.#end(event, times, now);
    return timing && this.plan.timings ? { ...event, timing } : event;
  }

  #end(
    { prompt, sequences, kept }: Extract<SequenceEvent, { kind: "done" }>,
    { taken, first = taken }: Times,
    now: number,
  ): Timing {
    const newTokens = sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
    this.#promptTokens += prompt.tokens.length;
    this.#newTokens += newTokens;
    return {
      ttft_ms: first - taken,
      tokens_per_s: newTokens / ((now - taken) / 1000),
      tokens_per_step: kept === undefined ? undefined : newTokens / Math.max(1, newTokens - kept),
    };
  }

  /** Logs tokens per second with `-v`. */
  report(): void {
    const { system, settings } = this.io;
    if (settings.verbose === 0) return;
    const total = (system.now() - this.#began) / 1000;
    const ttft = ((this.#first ?? system.now()) - this.#began) / 1000;
    const peak = peakMemory();
    const decode = total - ttft;
    // The text of a search over beams comes at its end alone.
    const isSearch = this.plan.decoding.beams !== undefined;
    this.io.detail([
      `loaded in ${seconds(this.#loadSeconds)}`,
      `first text after ${seconds(ttft)}`,
      `${grouped(this.#promptTokens)} prompt tokens` +
      (isSearch ? "" : `, ${rate(this.#promptTokens, ttft)}`),
      `${grouped(this.#newTokens)} new tokens, ${
        rate(this.#newTokens, isSearch ? total : decode || total)
      }`,
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
