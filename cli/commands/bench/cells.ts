/**
 * What a benchmark times: one cell per row, which can be run again and again.
 *
 * A cell keeps its own cache, so that cells can take turns. Its samples are milliseconds: of a step
 * for decode, of a whole prompt for prefill.
 */
import type { Engine } from "../../../core/generate/engine.ts";
import { bucketFor, type KvCache } from "../../../core/generate/kv_cache.ts";
import { timeDecode, timePrefill } from "../../../core/generate/timing.ts";
import { centerOf } from "../../../core/base/statistics.ts";
import { VERSION } from "../../../core/base/version.ts";
import { type BenchEngine, unique } from "./engines.ts";
import type { BenchValues } from "./flags.ts";

/** What is timed: of the two lengths, the other is null or nothing. */
export interface Work {
  readonly what: "decode" | "prefill";
  readonly batch: number;
  /** Tokens in the cache before. */
  readonly context: number;
  /** Tokens of the prompt; null for decode. */
  readonly prompt: number | null;
}

/** Every combination of work that the flags ask for, in the order of rows. */
export function workOf({ what, batch, context, prompt }: BenchValues): Work[] {
  return unique(what).flatMap((what) =>
    unique(batch).flatMap((batch): Work[] =>
      what === "decode"
        ? unique(context).map((context) => ({ what, batch, context, prompt: null }))
        : unique(prompt).map((prompt) => ({ what, batch, context: 0, prompt }))
    )
  );
}

/** Slots that a sequence needs. */
export function slotsOf({ context, prompt }: Work, steps: number): number {
  return context + (prompt ?? steps);
}

/** One row in the making. */
export class Cell {
  readonly samples: number[] = [];
  readonly #steps: number;
  #cache: KvCache | undefined;

  constructor(readonly on: BenchEngine, readonly work: Work, { steps }: BenchValues) {
    this.#steps = steps;
  }

  /** Runs once; the first time also compiles. */
  async run(): Promise<number[]> {
    const { engine } = this.on;
    const { batch, context, prompt } = this.work;
    this.#cache ??= engine.createCache(batch, slotsOf(this.work, this.#steps));
    return prompt === null
      ? await timeDecode(engine, this.#cache, context, this.#steps)
      : [await timePrefill(engine, this.#cache, prompt)];
  }

  /** Bytes of weights, and of everything else it needs: an exact plan of its largest step. */
  plan(): { readonly weights: number; readonly rest: number } {
    const { engine } = this.on;
    const { totalBytes, sections } = engine.plan(planSizes(engine, this.work, this.#steps));
    return { weights: sections.parameters, rest: totalBytes - sections.parameters };
  }

  /** As lines about it call it: `decode, P = 4, batch 1, 512 cached, cpu f32`. */
  get label(): string {
    const { what, batch, context, prompt } = this.work;
    const { streams, device, weights } = this.on;
    const length = prompt === null ? `${context} cached` : `${prompt} tokens`;
    return `${what}, P = ${streams}, batch ${batch}, ${length}, ${device} ${weights}`;
  }

  /** The result; `first` is the median that ratios refer to, its own for the first of its kind. */
  row(first: number | undefined): Record<string, unknown> & { readonly median_ms: number } {
    const { median, spread } = centerOf(this.samples);
    const { work: { what, batch, context, prompt }, on } = this;
    return {
      what,
      streams: on.streams,
      batch,
      context,
      prompt,
      device: on.device,
      dtype: on.dtype,
      weights: on.weights,
      introduced: on.introduced,
      samples_ms: this.samples,
      median_ms: median,
      spread_ms: spread,
      tokens_per_s: batch * (prompt ?? 1) / median * 1000,
      ratio: median / (first ?? median),
      threads: threadsOf(on),
      version: VERSION,
      deno_version: Deno.version.deno,
      platform: `${Deno.build.os} ${Deno.build.arch}`,
    };
  }
}

function planSizes(engine: Engine, work: Work, steps: number) {
  return {
    batch: work.batch,
    tokens: Math.min(work.prompt ?? 1, engine.device.traits.prefillChunk),
    capacity: bucketFor(engine.device, slotsOf(work, steps)),
    selected: work.batch,
  };
}

/** Threads of the device; null where it does not compute with threads of ours. */
function threadsOf({ engine: { device } }: BenchEngine): number | null {
  return "threads" in device ? device.threads as number : null;
}
