/** One row of `parscale bench` in the making, and the work it times: a model's forward pass, or its training. */
import { EnvironmentError } from "../../../core/base/errors.ts";
import { centerOf } from "../../../core/base/statistics.ts";
import { VERSION } from "../../../core/base/version.ts";
import { bucketFor, type KvCache } from "../../../core/generate/kv_cache.ts";
import { timeDecode, timePrefill } from "../../../core/generate/timing.ts";
import type { Session } from "../../../core/session/session.ts";
import { stepOptions, stepTimer } from "../../../core/train/step_timing.ts";
import type { TrainerOptions } from "../../../core/train/trainer.ts";
import { planTraining } from "../../../core/train/training_memory.ts";
import { bytesText } from "../../output/units.ts";
import { type BenchValues, slotsOf, type Streams, type Work } from "./plan.ts";

/** A model under a number of streams. */
export interface Opened extends Streams {
  readonly session: Session;
  /** As it was asked for, `cuda:1` for instance; auto is resolved. */
  readonly device: string;
  readonly memoryLimit: number | undefined;
}

/** Memory of a row in bytes: `shared` is counted once for all rows with the same `sharedBy`. */
interface Memory {
  readonly sharedBy: unknown;
  readonly shared: number;
  readonly own: number;
}

/** Timed work. It keeps what it allocates, so that rows can take turns. */
interface Timed {
  /** An exact plan of its largest step. */
  plan(): Memory;
  /** Runs once and returns milliseconds; the first time also compiles. */
  run(): Promise<number[]>;
}

/** Samples are of a step for decode, of a whole prompt for prefill. */
class ForwardWork implements Timed {
  #cache: KvCache | undefined;

  constructor(readonly on: Opened, readonly work: Work, readonly steps: number) {}

  async run(): Promise<number[]> {
    const { engine } = this.on.session;
    const { batch, context, prompt } = this.work;
    const cache = this.#cache ??= engine.createCache(batch, slotsOf(this.work, this.steps));
    return prompt === null
      ? await timeDecode(engine, cache, context, this.steps)
      : [await timePrefill(engine, cache, prompt)];
  }

  plan(): Memory {
    const { engine } = this.on.session;
    const { totalBytes, sections: { parameters } } = engine.plan({
      batch: this.work.batch,
      tokens: Math.min(this.work.prompt ?? 1, engine.device.traits.prefillChunk),
      capacity: bucketFor(engine.device, slotsOf(this.work, this.steps)),
      selected: this.work.batch,
    });
    return { sharedBy: this.on, shared: parameters, own: totalBytes - parameters };
  }
}

/** A sample is one training step, whose weights, gradients and moments are its own. */
class TrainingWork implements Timed {
  readonly #options: TrainerOptions;
  #step: (() => Promise<number>) | undefined;

  constructor(readonly on: Opened, { batch, prompt, trainParams }: Work, seed: number) {
    const { checkpoint, config } = on.session;
    const shape = { config, sizes: { batch, tokens: prompt! } };
    this.#options = stepOptions(checkpoint, shape, trainParams!, seed);
  }

  async run(): Promise<number[]> {
    this.#step ??= await stepTimer(this.on.session.engine.device, this.#options);
    return [await this.#step()];
  }

  plan(): Memory {
    const { session: { engine: { device } }, memoryLimit: limit = Infinity } = this.on;
    const { total } = planTraining(device, this.#options), shared = device.traits.processBytes;
    if (total > limit) {
      throw new EnvironmentError(
        `training needs ${bytesText(total)}, more than the memory limit of ${bytesText(limit)}`,
        { hints: ["lower --batch or --prompt"] },
      );
    }
    return { sharedBy: device, shared, own: total - shared };
  }
}

/** One row in the making. Its samples are milliseconds. */
export class Cell {
  readonly samples: number[] = [];
  readonly timed: Timed;

  constructor(readonly on: Opened, readonly work: Work, { steps, seed }: BenchValues) {
    this.timed = work.what === "train"
      ? new TrainingWork(on, work, seed)
      : new ForwardWork(on, work, steps);
  }

  /** Compute dtype, and type of the matrices: the same where they are exact. */
  get #types(): { readonly dtype: string; readonly weights: string } {
    const { engine, matrices } = this.on.session;
    const dtype = engine.device.cacheType;
    return { dtype, weights: matrices === "f32" || this.work.what === "train" ? dtype : matrices };
  }

  /** As lines about it call it: `decode, P = 4, batch 1, 512 cached, cpu f32`. */
  get label(): string {
    const { what, trainParams, batch, context, prompt } = this.work;
    const { count, device } = this.on;
    const kind = trainParams === null ? what : `${what} ${trainParams}`;
    const length = prompt === null ? `${context} cached` : `${prompt} tokens`;
    return `${kind}, P = ${count}, batch ${batch}, ${length}, ${device} ${this.#types.weights}`;
  }

  /** The result; `first` is the median that ratios refer to, its own for the first of its kind. */
  row(first: number | undefined): Record<string, unknown> & { readonly median_ms: number } {
    const { median, spread } = centerOf(this.samples);
    const { work: { what, trainParams, batch, context, prompt }, on } = this;
    const { device } = on.session.engine;
    return {
      what,
      train_params: trainParams,
      streams: on.count,
      batch,
      context,
      prompt,
      device: on.device,
      ...this.#types,
      introduced: on.introduced,
      samples_ms: this.samples,
      median_ms: median,
      spread_ms: spread,
      tokens_per_s: batch * (prompt ?? 1) / median * 1000,
      ratio: median / (first ?? median),
      // Null where the number of threads is not ours to choose.
      threads: "threads" in device ? device.threads as number : null,
      version: VERSION,
      deno_version: Deno.version.deno,
      platform: `${Deno.build.os} ${Deno.build.arch}`,
    };
  }
}
