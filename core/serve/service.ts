/**
 * The models of a server, the queue in front of them, and the loop that computes.
 *
 * All models share one backbone and one device, so their batches take turns: a round is one decode step
 * of every model, then at most one prefill chunk of one of them. A step longer than the target of a token
 * is made up for by rounds without one.
 */
import { setImmediate } from "node:timers";
import type { GenerationRequest, SchedulerEvent } from "../generate/request.ts";
import { Scheduler } from "../generate/scheduler.ts";
import { hasStreamWeights } from "../model/config.ts";
import type { Session } from "../session/session.ts";
import { show } from "../base/files.ts";
import { ApiError, badField, tryLater } from "./errors.ts";
import { ChoiceMetrics, Metrics } from "./metrics.ts";
import type { ServeRequest } from "./request.ts";
import { type Load, StreamsByLoad, type Targets } from "./streams_by_load.ts";

/** A model by the name that requests use. */
export interface ServedModel {
  readonly name: string;
  /** Its tokenizer is open. */
  readonly session: Pick<Session, "config" | "engine" | "tokenizer" | "constraint" | "matrices">;
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
  /** Times that `auto` keeps. */
  readonly targets: Targets;
  /** Streams of requests that name neither a number nor an adapter; by default the backbone's. */
  readonly streams?: number | "auto" | undefined;
  /** Most tokens drafted in a step; see `SchedulerOptions`. */
  readonly speculate?: number | undefined;
}

/** Called with every event of a choice; must not throw. */
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
  /** Deficit of the last decode step, in ms. */
  debtMs: number;
}

/** Returns the number of streams of a model. */
export function streamsOf({ session }: ServedModel): number {
  return session.config.streams;
}

/** Longest time that other events wait for a loop whose steps never wait. */
const TURN_MS = 10;

/** Seconds after which a refused client tries again. */
const RETRY_S = 1, DRAINING_RETRY_S = 10;

export class Service implements Disposable {
  readonly metrics = new Metrics();
  readonly created = Math.floor(Date.now() / 1000);
  readonly byLoad: StreamsByLoad;
  readonly #models = new Map<string, Hosted>();
  readonly #running = new Map<number, Running>();
  #state: "loading" | "ready" | "draining" = "loading";
  #outstanding = 0;
  #nextIndex = 0;
  #nextPrefill = 0;
  #isStopped = false;
  #wake: () => void = () => {};

  constructor(private readonly options: ServiceOptions) {
    this.byLoad = new StreamsByLoad(options);
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
      this.#models.set(model.name, { model, scheduler: this.#schedulerOf(model), debtMs: 0 });
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

  /** The model of a name, by default the backbone. */
  find(name?: string): ServedModel {
    const named = name === undefined ? this.models[0]! : this.#models.get(name)?.model;
    if (named) return named;
    const known = this.models.map(({ name }) => `"${name}"`).join(", ");
    throw new ApiError(404, `no such model: ${show(name)}; known: ${known}`, {
      param: "model",
      code: "model_not_found",
    });
  }

  /** Streams of a request that names a model and no number: an adapter's name is a number, too. */
  defaultStreams(model: ServedModel): number | "auto" {
    return model.parent === null && this.options.streams || streamsOf(model);
  }

  /**
   * The models that may answer a request, of the same backbone: one, or for `auto` one per number of
   * streams, the named one, or else the only one with that number.
   */
  candidates(
    { model, streams, weights }: Pick<ServeRequest, "model" | "streams" | "weights">,
  ): ServedModel[] {
    const named = this.find(model);
    const wanted = streams ?? this.defaultStreams(named);
    if (wanted === streamsOf(named)) return [named];
    const byStreams = Map.groupBy(this.models, streamsOf);
    byStreams.set(streamsOf(named), [named]);
    if (wanted === "auto") {
      return [...byStreams.values()].filter(({ length }) => length === 1).map(([one]) => one!)
        .filter(({ session }) => !weights || hasStreamWeights(session.config));
    }
    const fitting = byStreams.get(wanted) ?? [];
    if (fitting.length === 1) return fitting;
    const found = fitting.length === 0 ? "no model has" : "several models have";
    const remedy = fitting.length === 0
      ? `there is P = ${[...byStreams.keys()].sort((a, b) => a - b).join(", ")}`
      : "name one by `model`";
    throw badField("parscale.streams", `${found} P = ${wanted}: ${remedy}`);
  }

  /** The one of some candidates that is to answer a request under the present load. */
  choose(candidates: readonly ServedModel[], wanted: Load): ServedModel {
    const load = this.#load();
    this.byLoad.arrive(load);
    const streams = this.byLoad.choose(candidates.map(streamsOf), wanted, load);
    return candidates.find((model) => streamsOf(model) === streams)!;
  }

  /** @throws {ApiError} 429 when the queue has no room for `choices` choices */
  requireRoom(choices: number): void {
    const { maxBatch, maxQueue } = this.options;
    if (this.#outstanding + choices <= maxBatch + maxQueue) return;
    throw tryLater(429, `the queue is full: ${this.#outstanding} choices`, RETRY_S);
  }

  /** Reserves places for `choices` choices. @throws {ApiError} 429 when the queue is full */
  accept(choices: number): Job {
    this.requireReady();
    const room = this.options.maxBatch + this.options.maxQueue;
    if (choices > room) {
      throw badField("n", `${choices} choices exceed the ${room} that this server takes at once`);
    }
    this.requireRoom(choices);
    this.#outstanding += choices;
    return new Job(this, choices);
  }

  /** Starts one choice of a job. */
  start(job: Job, model: ServedModel, request: GenerationRequest, listener: Listener): number {
    const hosted = this.#models.get(model.name)!;
    const index = this.#nextIndex++;
    const metrics = new ChoiceMetrics(this.metrics, model.name);
    this.metrics.count("streams_total", { streams: String(streamsOf(model)) });
    this.#running.set(index, { model: hosted, listener, job, metrics });
    hosted.scheduler.add(index, { ...request, owner: job });
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
      await this.#decode(all);
      const next = this.#prefillingModel(all);
      if (next) await this.#prefill(next);
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
      this.metrics.set("kv_cache_usage_perc", { model }, running / this.options.maxBatch);
    }
    const available = [...new Set(this.models.map(streamsOf))];
    if (available.length > 1) {
      const one = { sequences: 1, promptTokens: 0 };
      this.metrics.set("auto_streams", {}, this.byLoad.choose(available, one, this.#load()));
    }
    return this.metrics.text();
  }

  /** Work by number of streams. */
  #load(): Map<number, Load> {
    const load = new Map<number, Load>();
    for (const { model, scheduler } of this.#models.values()) {
      const { sequences, promptTokens } = load.get(streamsOf(model)) ??
        { sequences: 0, promptTokens: 0 };
      load.set(streamsOf(model), {
        sequences: sequences + scheduler.running + scheduler.waiting,
        promptTokens: promptTokens + scheduler.promptTokens,
      });
    }
    return load;
  }

  /** One decode step of every model without debt: deficit round robin with the target as quantum. */
  async #decode(all: readonly Hosted[]): Promise<void> {
    const debts = all.filter(({ scheduler }) => scheduler.decoding > 0).map(({ debtMs }) => debtMs);
    const madeUp = Math.max(this.options.targets.tpotMs, Math.min(...debts));
    for (const hosted of all) {
      const batch = hosted.scheduler.decoding;
      hosted.debtMs = batch > 0 ? Math.max(0, hosted.debtMs - madeUp) : 0;
      if (hosted.debtMs > 0) continue;
      const began = performance.now();
      const tokens = await this.#advance(hosted, hosted.scheduler.decode());
      if (batch === 0) continue;
      // The measured time: predictions also follow the speed of other models.
      hosted.debtMs = performance.now() - began;
      // A step that kept drafted tokens counts as one: the table has its time for a token of each.
      const perToken = hosted.debtMs * batch / Math.max(batch, tokens);
      this.byLoad.observe(streamsOf(hosted.model), batch, perToken);
    }
  }

  async #prefill(hosted: Hosted): Promise<void> {
    const { scheduler } = hosted;
    const before = scheduler.prefilledTokens, began = performance.now();
    await this.#advance(hosted, scheduler.prefill());
    const tokens = scheduler.prefilledTokens - before;
    if (tokens === 0) return;
    this.byLoad.observePrefill(streamsOf(hosted.model), tokens, performance.now() - began);
  }

  #schedulerOf({ session: { engine } }: ServedModel): Scheduler {
    const { maxBatch: batch, prefixCacheBytes, speculate } = this.options;
    return new Scheduler(engine, {
      batch,
      speculate,
      prefixCacheBytes,
      keepsAnswers: prefixCacheBytes > 0,
      adaptsChunks: true,
    });
  }

  #prefillingModel(all: readonly Hosted[]): Hosted | undefined {
    for (let i = 0; i < all.length; i++) {
      const hosted = all[(this.#nextPrefill + i) % all.length]!;
      if (!hosted.scheduler.isPrefilling) continue;
      this.#nextPrefill += i + 1;
      return hosted;
    }
  }

  /** Passes events on; returns the number of tokens among them. */
  async #advance(hosted: Hosted, events: AsyncGenerator<SchedulerEvent>): Promise<number> {
    let tokens = 0;
    try {
      for await (const event of events) {
        if (event.kind === "token") tokens++;
        this.#take(event);
      }
    } catch (error) {
      // The engine failed: nothing is known about the state of any row.
      for (const [index, { model }] of [...this.#running]) {
        if (model === hosted) this.#fail(index, error);
      }
      hosted.scheduler[Symbol.dispose]();
      hosted.scheduler = this.#schedulerOf(hosted.model);
    }
    return tokens;
  }

  #fail(index: number, error: unknown): void {
    this.#take({ kind: "failed", index, error });
  }

  #take(event: SchedulerEvent): void {
    const running = this.#running.get(event.index);
    if (!running) return;
    running.metrics.take(event);
    if (event.kind === "done" || event.kind === "failed") {
      this.#running.delete(event.index);
      running.job.ended();
    }
    running.listener(event);
  }
}

/** The choices of one HTTP request. Dispose of it when the response is over, however it ended. */
export class Job implements Disposable {
  readonly #indices: number[] = [];

  /** `left` counts the choices whose room is still taken. */
  constructor(private readonly service: Service, private left: number) {}

  /** Starts the next choice. */
  start(model: ServedModel, request: GenerationRequest, listener: Listener): void {
    this.#indices.push(this.service.start(this, model, request, listener));
  }

  /** Prompt tokens of the first choice that are in the cache. */
  get progress(): number {
    return this.service.progressOf(this.#indices[0] ?? -1);
  }

  /** One choice has ended. */
  ended(): void {
    this.left--;
    this.service.release(1);
  }

  [Symbol.dispose](): void {
    for (const index of this.#indices.splice(0)) this.service.cancel(index);
    this.service.release(this.left);
    this.left = 0;
  }
}
