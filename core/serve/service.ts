/**
 * The models of a server, the queue in front of them, and the loop that computes.
 *
 * All models share one backbone and one device, so their batches take turns: a round is one decode step
 * of every model, then at most one prefill chunk of one of them.
 */
import { setImmediate } from "node:timers";
import type { GenerationRequest, SchedulerEvent } from "../generate/request.ts";
import { Scheduler, type SchedulerOptions } from "../generate/scheduler.ts";
import type { Session } from "../session/session.ts";
import { show } from "../base/files.ts";
import { ApiError, badField, tryLater } from "./errors.ts";
import { ChoiceMetrics, Metrics } from "./metrics.ts";

/** A model by the name that requests use. */
export interface ServedModel {
  readonly name: string;
  /** Its tokenizer is open. */
  readonly session: Pick<Session, "config" | "engine" | "tokenizer" | "constraint">;
  /** Most tokens of prompt and answer together. */
  readonly maxLength: number;
  /** Name of the backbone that this is an adapter for. */
  readonly parent: string | null;
  /** Class that the tokenizer's files name. */
  readonly tokenizerClass: string | null;
}

export interface ServiceOptions {
  /** Choices decoded together, per model. */
  readonly maxBatch: number;
  /** Choices that may wait. */
  readonly maxQueue: number;
  readonly prefixCacheBytes: number;
}

/** Hears of every event of a choice; must not throw. */
export type Listener = (event: SchedulerEvent) => void;

interface Running {
  readonly model: Hosted;
  readonly listener: Listener;
  readonly job: Job;
  readonly metrics: ChoiceMetrics;
}

interface Hosted {
  readonly model: ServedModel;
  scheduler: Scheduler;
}

/** Longest time that other events wait for a loop whose steps never wait. */
const TURN_MS = 10;

/** Seconds after which a refused client tries again. */
const RETRY_S = 1, DRAINING_RETRY_S = 10;

export class Service implements Disposable {
  readonly metrics = new Metrics();
  readonly created = Math.floor(Date.now() / 1000);
  readonly #options: ServiceOptions;
  readonly #models = new Map<string, Hosted>();
  readonly #running = new Map<number, Running>();
  #state: "loading" | "ready" | "draining" = "loading";
  #outstanding = 0;
  #nextIndex = 0;
  #nextPrefill = 0;
  #isStopped = false;
  #wake: () => void = () => {};

  constructor(options: ServiceOptions) {
    this.#options = options;
  }

  get state(): "loading" | "ready" | "draining" {
    return this.#state;
  }

  /** Choices that are accepted and not finished. */
  get outstanding(): number {
    return this.#outstanding;
  }

  get models(): ServedModel[] {
    return [...this.#models.values()].map(({ model }) => model);
  }

  /** Serves these models from now on. */
  open(models: readonly ServedModel[]): void {
    for (const model of models) {
      this.#models.set(model.name, { model, scheduler: this.#schedulerOf(model) });
    }
    this.#state = "ready";
  }

  /** Refuses new requests; those that were accepted continue. */
  drain(): void {
    this.#state = "draining";
  }

  /** Ends the loop, and all requests with an error. */
  stop(): void {
    this.#isStopped = true;
    const error = tryLater(503, "the server is shutting down", DRAINING_RETRY_S);
    for (const index of [...this.#running.keys()]) this.#fail(index, error);
    this.#wake();
  }

  [Symbol.dispose](): void {
    for (const { scheduler } of this.#models.values()) scheduler[Symbol.dispose]();
  }

  /** Throws unless requests are taken now. */
  requireReady(): void {
    if (this.#state === "ready") return;
    const isLoading = this.#state === "loading";
    const message = isLoading ? "the model is still loading" : "the server is shutting down";
    throw tryLater(503, message, isLoading ? RETRY_S : DRAINING_RETRY_S);
  }

  /**
   * The model of a name. Where `streams` is given, it is among those of the same backbone the one with so
   * many streams.
   */
  find(name: string | undefined, streams?: number): ServedModel {
    const named = name === undefined ? this.models[0]! : this.#models.get(name)?.model;
    if (!named) {
      const known = this.models.map(({ name }) => `"${name}"`).join(", ");
      throw new ApiError(404, `no such model: ${show(name)}; known: ${known}`, {
        param: "model",
        code: "model_not_found",
      });
    }
    if (streams === undefined || named.session.config.streams === streams) return named;
    const fitting = this.models.filter(({ session }) => session.config.streams === streams);
    if (fitting.length === 1) return fitting[0]!;
    const found = fitting.length === 0 ? "no model has" : "several models have";
    throw badField("parscale.streams", `${found} ${streams} streams: name one by \`model\``);
  }

  /** Makes room for so many choices. @throws {ApiError} 429 when the queue is full */
  accept(choices: number): Job {
    this.requireReady();
    const room = this.#options.maxBatch + this.#options.maxQueue;
    if (choices > room) {
      throw badField("n", `${choices} choices exceed the ${room} that this server takes at once`);
    }
    if (this.#outstanding + choices > room) {
      throw tryLater(429, `the queue is full: ${this.#outstanding} choices`, RETRY_S);
    }
    this.#outstanding += choices;
    return new Job(this, choices);
  }

  /** Starts one choice of a job. */
  start(job: Job, model: ServedModel, request: GenerationRequest, listener: Listener): number {
    const hosted = this.#models.get(model.name)!;
    const index = this.#nextIndex++;
    const metrics = new ChoiceMetrics(this.metrics, model.name);
    this.#running.set(index, { model: hosted, listener, job, metrics });
    hosted.scheduler.add(index, request);
    this.#wake();
    return index;
  }

  /** Ends a choice without an event; its row is free before the next step. */
  cancel(index: number): void {
    const running = this.#running.get(index);
    if (!running) return;
    this.#running.delete(index);
    running.model.scheduler.cancel(index);
  }

  /** Gives back the room of choices that ended. */
  release(choices: number): void {
    this.#outstanding -= choices;
  }

  /** Prompt tokens of a choice that are in the cache. */
  progressOf(index: number): number {
    return this.#running.get(index)?.model.scheduler.progressOf(index) ?? 0;
  }

  /** Computes until `stop`. */
  async run(): Promise<void> {
    let turn = performance.now();
    while (!this.#isStopped) {
      const all = [...this.#models.values()];
      if (all.every(({ scheduler }) => scheduler.isIdle)) {
        await new Promise<void>((resolve) => this.#wake = resolve);
        continue;
      }
      for (const hosted of all) await this.#advance(hosted, hosted.scheduler.decode());
      const next = this.#prefillingModel(all);
      if (next) await this.#advance(next, next.scheduler.prefill());
      if (performance.now() - turn < TURN_MS) continue;
      await new Promise((resolve) => setImmediate(resolve));
      turn = performance.now();
    }
  }

  /** Sets the gauges and returns the document of `/metrics`. */
  metricsText(): string {
    for (const { model: { name: model }, scheduler } of this.#models.values()) {
      const { running, waiting } = scheduler;
      this.metrics.set("num_requests_running", { model }, running);
      this.metrics.set("num_requests_waiting", { model }, waiting);
      this.metrics.set("kv_cache_usage_perc", { model }, running / this.#options.maxBatch);
    }
    return this.metrics.text();
  }

  #schedulerOf({ session: { engine } }: ServedModel): Scheduler {
    const { maxBatch: batch, prefixCacheBytes } = this.#options;
    const options: SchedulerOptions = {
      batch,
      prefixCacheBytes,
      keepsAnswers: prefixCacheBytes > 0,
      adaptsChunks: true,
    };
    return new Scheduler(engine, options);
  }

  #prefillingModel(all: readonly Hosted[]): Hosted | undefined {
    for (let i = 0; i < all.length; i++) {
      const hosted = all[(this.#nextPrefill + i) % all.length]!;
      if (!hosted.scheduler.isPrefilling) continue;
      this.#nextPrefill += i + 1;
      return hosted;
    }
  }

  async #advance(hosted: Hosted, events: AsyncGenerator<SchedulerEvent>): Promise<void> {
    try {
      for await (const event of events) this.#hear(event);
    } catch (error) {
      // The engine failed: nothing is known about the state of any row.
      for (const [index, { model }] of [...this.#running]) {
        if (model === hosted) this.#fail(index, error);
      }
      hosted.scheduler[Symbol.dispose]();
      hosted.scheduler = this.#schedulerOf(hosted.model);
    }
  }

  #fail(index: number, error: unknown): void {
    this.#hear({ kind: "failed", index, error });
  }

  #hear(event: SchedulerEvent): void {
    const running = this.#running.get(event.index);
    if (!running) return;
    running.metrics.hear(event);
    if (event.kind === "done" || event.kind === "failed") {
      this.#running.delete(event.index);
      running.job.ended();
    }
    running.listener(event);
  }
}

/** The choices of one HTTP request. Dispose of it when the response is over, however it ended. */
export class Job implements Disposable {
  readonly #service: Service;
  readonly #indices: number[] = [];
  /** Choices whose room is still taken. */
  #left: number;

  constructor(service: Service, choices: number) {
    this.#service = service;
    this.#left = choices;
  }

  /** Starts the next choice. */
  start(model: ServedModel, request: GenerationRequest, listener: Listener): void {
    this.#indices.push(this.#service.start(this, model, request, listener));
  }

  /** Prompt tokens of the first choice that are in the cache. */
  get progress(): number {
    return this.#service.progressOf(this.#indices[0] ?? -1);
  }

  /** One choice has ended. */
  ended(): void {
    this.#left--;
    this.#service.release(1);
  }

  [Symbol.dispose](): void {
    for (const index of this.#indices.splice(0)) this.#service.cancel(index);
    this.#service.release(this.#left);
    this.#left = 0;
  }
}
