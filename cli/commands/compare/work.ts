/** Work of a comparison in tokens, of which samples have different numbers. */
import type { Work } from "../../output/time_left.ts";

/** Samples, and the tokens of their answers. */
export interface Written {
  readonly samples: number;
  readonly tokens: number;
}

/** Nothing. */
export const NONE: Written = { samples: 0, tokens: 0 };

/** Reads what another process has written of a file of samples; nothing before it exists. */
export function readWritten(path: string | undefined): Written {
  try {
    const text = Deno.readTextFileSync(path!);
    const tokens = [...text.matchAll(/"tokens":(\d+)/g)].map(([, count]) => Number(count));
    return { samples: text.split("\n").length - 1, tokens: tokens.reduce((a, b) => a + b, 0) };
  } catch {
    return NONE; // it appears with the first sample
  }
}

/** Samples of one evaluation after another; those of earlier runs do not count as work. */
export class ComparisonWork {
  samples = 0;
  #tokens = 0;
  /** Tokens of a sample. */
  #mean = 0;

  /** `total` are the samples of all evaluations. */
  constructor(private readonly total: number) {}

  /** Work once an evaluation has written so much, `before` of it in an earlier run. */
  at({ samples, tokens }: Written, before: Written): Work | undefined {
    if (samples > 0) this.#mean = tokens / samples;
    const done = this.#tokens + tokens - before.tokens;
    const left = this.#mean * (this.total - this.samples - samples);
    return this.#mean > 0 ? { done, total: done + left } : undefined;
  }

  /** Takes the end of an evaluation of `samples` samples, or of a timing, which writes none. */
  end(samples: number, written: Written, before: Written): void {
    this.samples += samples;
    this.#tokens += written.samples > 0 ? written.tokens - before.tokens : samples * this.#mean;
  }
}
