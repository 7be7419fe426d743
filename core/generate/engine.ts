/**
 * Runs a model on a device: token ids in, logits or log-probabilities out.
 *
 * Holds one compiled program per combination of sizes and head, with the small tensors it exchanges.
 * Devices make the second program of a model cheap (weights are shared), so sizes follow the work
 * instead of being padded to a few fixed shapes.
 */
import type { MemoryPlan } from "../graph/memory_plan.ts";
import { EnvironmentError } from "../base/errors.ts";
import { keepLast } from "../base/recent.ts";
import type { Program } from "../graph/program.ts";
import type { ModelConfig } from "../model/config.ts";
import {
  buildForward,
  buildStart,
  type ForwardOptions,
  type ForwardSizes,
} from "../model/forward.ts";
import type { Device, DeviceTensor, Executable, HostArray, Weights } from "../runtime/device.ts";
import { weightValues } from "../runtime/weights.ts";
import { KvCache } from "./kv_cache.ts";

/** Programs kept ready, each with its outputs; the least recently used is dropped. */
const MAX_PROGRAMS = { static: 64, dynamic: 16 };

/** One step of a batch. */
export interface ForwardInput {
  /** T token ids for each of the B sequences. */
  readonly ids: readonly ArrayLike<number>[];
  /** Tokens each sequence already has in the cache. */
  readonly start: readonly number[];
  /** Tokens to compute results for, as b·T + t. */
  readonly select: readonly number[];
  /** For the `score` head: the token whose log-probability is asked, per selected token. */
  readonly targets?: readonly number[];
  /** For the `sample` head: `samplingNumbers` of every selected token, one after the other. */
  readonly sampling?: readonly number[];
  /** [B, S]: the sequence in whose row of the cache each slot lies, where that is not always its own. */
  readonly table?: ArrayLike<number>;
  /** Tokens of each sequence that change the states of delta nets; all T unless told. */
  readonly counts?: readonly number[];
}

/** One step of a batch whose tokens the device samples. */
export interface SampleInput {
  /** Next tokens of each sequence; absent: the tokens last sampled on this cache. */
  readonly ids?: readonly number[];
  /** Tokens each sequence already has in the cache. */
  readonly start: readonly number[];
  /** `samplingNumbers` of every sequence, one after the other. */
  readonly sampling: readonly number[];
}

interface Prepared {
  readonly executable: Executable;
  readonly inputs: ReadonlyMap<string, DeviceTensor>;
  readonly outputs: ReadonlyMap<string, DeviceTensor>;
}

/** A model ready to run. */
export class Engine {
  /** Introduced tensors of an adapter, bound at every step. */
  readonly #adapter: ReadonlyMap<string, DeviceTensor>;
  readonly #memoryLimit: number | undefined;
  #onLoad: (() => void) | undefined;
  readonly #prepared = new Map<string, Promise<Prepared>>();
  /** Inputs of programs that sample for a whole batch. */
  readonly #sampling = new WeakMap<Prepared, ReadonlyMap<string, DeviceTensor>>();
  /** The last step started; steps of equal sizes share tensors, so one waits for another. */
  #running: Promise<unknown> = Promise.resolve();

  /**
   * `weights` must hold every parameter of the model, but for those in `adapter`. With a memory limit
   * in bytes, a step whose plan needs more is refused before anything is computed. `onLoad` is called before
   * the first compilation, which loads the weights.
   */
  constructor(
    readonly device: Device,
    readonly config: ModelConfig,
    /** Fixed on the device; one map of them is loaded once, whatever adapters are laid over it. */
    private readonly weights: Weights,
    { memoryLimit, adapter = new Map(), onLoad }: {
      memoryLimit?: number | undefined;
      adapter?: Weights | undefined;
      onLoad?: (() => void) | undefined;
    } = {},
  ) {
    this.#onLoad = onLoad;
    this.#memoryLimit = memoryLimit;
    this.#adapter = new Map([...adapter].map(([name, weight]) => {
      const tensor = device.allocate({ dtype: "f32", shape: weight.shape });
      device.write(tensor, weightValues(weight));
      return [name, tensor];
    }));
  }

  /**
   * The same backbone under other streams: dynamic parallel scaling. Only the adapter is read; the
   * weights on the device are shared. `config` is that of backbone and adapter together.
   */
  withAdapter(config: ModelConfig, adapter: Weights): Engine {
    return new Engine(this.device, config, this.weights, {
      memoryLimit: this.#memoryLimit,
      adapter,
    });
  }

  /**
   * Begins to load the weights for steps with this head while the caller continues: on most devices one
   * program of any sizes loads them for all. What fails here fails again at the first step.
   */
  preload(options: ForwardOptions = { head: "logits" }): void {
    if (this.device.traits.staticShapes) return;
    const sizes = { batch: 2, tokens: 3, capacity: 32, selected: 5 };
    this.#prepare(sizes, options).catch(() => {});
  }

  /** An empty KV cache for `batch` sequences of up to `slots` tokens. */
  createCache(batch: number, slots: number): KvCache {
    return new KvCache(this.device, this.config, batch, slots);
  }

  /**
   * Appends tokens to the sequences of a cache and returns the program's outputs by name: see
   * `buildForward`. The arrays are the caller's own; a call waits for the one before.
   * @throws {EnvironmentError} when the step needs more memory than the limit
   */
  forward(
    cache: KvCache,
    input: ForwardInput,
    options: ForwardOptions = { head: "logits" },
  ): Promise<ReadonlyMap<string, HostArray>> {
    const step = this.#running.then(() => this.#step(cache, input, options));
    this.#running = step.catch(() => {});
    return step;
  }

  /**
   * Appends one token to every sequence of a cache and lets the device sample the next ones. Requires a
   * device with the trait `samplesTokens`. Resolves when the step is issued, to a function that waits for its
   * tokens: the next step can be issued meanwhile.
   * @throws {EnvironmentError} when the step needs more memory than the limit
   */
  sample(cache: KvCache, input: SampleInput): Promise<() => HostArray> {
    const step = this.#running.then(() => this.#sample(cache, input));
    this.#running = step.catch(() => {});
    return step;
  }

  async #sample(cache: KvCache, { ids, start, sampling }: SampleInput): Promise<() => HostArray> {
    const { device } = this;
    const { batch, capacity } = cache;
    checkRoom(cache, start.length, Math.max(...start) + 1);
    const sizes = { batch, tokens: 1, capacity, selected: batch };
    const prepared = await this.#prepare(sizes, { head: "sample" });
    const { executable, outputs } = prepared;
    const inputs = this.#sampleInputs(prepared);
    const { tokens, next } = cache.sampled;
    if (ids) device.write(tokens, ids);
    device.write(inputs.get("start")!, start);
    device.write(inputs.get("sampling")!, sampling);
    await this.#begin(cache, start);
    const own = [["ids", next], ["tokens", tokens]] as const;
    await executable.run(new Map([...inputs, ...cache.tensors, ...outputs, ...own]));
    if (device.readLater) return device.readLater(tokens);
    const sampled = device.read(tokens).slice();
    return () => sampled;
  }

  /** Returns the inputs that change; every write is a copy, so constants are written once. */
  #sampleInputs(prepared: Prepared): ReadonlyMap<string, DeviceTensor> {
    const known = this.#sampling.get(prepared);
    if (known) return known;
    const { inputs } = prepared;
    const [start, positions, select] = ["start", "positions", "select"].map((name) =>
      inputs.get(name)!
    ) as [DeviceTensor, DeviceTensor, DeviceTensor];
    this.device.write(select, Int32Array.from({ length: select.shape[0]! }, (_, b) => b));
    const counts = inputs.get("counts");
    if (counts) this.device.write(counts, new Int32Array(counts.shape[0]!).fill(1));
    // The position of a token is the slot where it goes.
    const made = new Map(inputs).set("positions", this.device.view(start, 0, positions));
    this.#sampling.set(prepared, made);
    return made;
  }

  async #step(
    cache: KvCache,
    input: ForwardInput,
    options: ForwardOptions,
  ): Promise<ReadonlyMap<string, HostArray>> {
    const tokens = input.ids[0]!.length;
    checkRoom(cache, input.ids.length, Math.max(...input.start) + tokens);
    const sizes: ForwardSizes = {
      batch: cache.batch,
      tokens,
      capacity: cache.capacity,
      selected: input.select.length,
    };
    const prepared = await this.#prepare(
      sizes,
      input.table ? { ...options, table: true } : options,
    );
    const { device } = this;
    const write = (name: string, data: ArrayLike<number>) =>
      device.write(prepared.inputs.get(name)!, data);
    const ids = new Int32Array(cache.batch * tokens);
    input.ids.forEach((row, b) => ids.set(row, b * tokens));
    write("ids", ids);
    write("start", input.start);
    write(
      "positions",
      Int32Array.from(ids, (_, i) => input.start[Math.floor(i / tokens)]! + i % tokens),
    );
    write("select", input.select);
    if (input.targets) write("targets", input.targets);
    if (input.sampling) write("sampling", input.sampling);
    if (input.table) write("table", input.table);
    if (this.config.delta) {
      write("counts", input.counts ?? input.ids.map(() => tokens));
      if (input.table) write("sources", lastRows(input.table, input.start, cache.capacity));
    }
    await this.#begin(cache, input.start, input.counts);
    const bindings = new Map([...prepared.inputs, ...cache.tensors, ...prepared.outputs]);
    await prepared.executable.run(bindings);
    // Another call may run the same program before the caller has looked.
    const read = (tensor: DeviceTensor) =>
      device.traits.readbackIsCopy ? device.read(tensor) : device.read(tensor).slice();
    return new Map([...prepared.outputs].map(([name, tensor]) => [name, read(tensor)]));
  }

  /** Writes the states that new sequences start from, where layers have any. */
  async #begin(
    { batch, states }: KvCache,
    start: readonly number[],
    counts?: readonly number[],
  ): Promise<void> {
    if (!this.config.delta) return;
    const isNew = start.map((used, b) => Number(used === 0 && counts?.[b] !== 0));
    if (!isNew.includes(1)) return;
    const prepared = this.#prepared.getOrInsertComputed(
      `start ${batch}`,
      () => this.#compile(buildStart(this.config, batch)),
    );
    const { executable, inputs } = await prepared;
    this.device.write(inputs.get("isNew")!, isNew);
    await executable.run(new Map([...inputs, ...states]));
  }

  /** Exact bytes that a step of these sizes needs, KV cache and weights included. */
  plan(sizes: ForwardSizes, options: ForwardOptions = { head: "logits" }): MemoryPlan {
    return this.device.plan(this.#build(sizes, options), this.weights);
  }

  #build(sizes: ForwardSizes, options: ForwardOptions): Program {
    const { cacheType } = this.device;
    return buildForward(this.config, sizes, { ...options, cacheType });
  }

  #prepare(sizes: ForwardSizes, options: ForwardOptions): Promise<Prepared> {
    const key = JSON.stringify([sizes, options]);
    const ready = this.#prepared.get(key) ??
      this.#compile(this.#build(sizes, options)).catch((error) => {
        this.#prepared.delete(key); // the next step tries again
        throw error;
      });
    const { staticShapes } = this.device.traits;
    keepLast(this.#prepared, key, ready, MAX_PROGRAMS[staticShapes ? "static" : "dynamic"]);
    return ready;
  }

  async #compile(program: Program): Promise<Prepared> {
    if (this.#memoryLimit !== undefined) this.#requireMemory(program, this.#memoryLimit);
    const executable = await this.#load(program);
    const allocate = (values: Program["inputs"]) =>
      new Map([...values].map(([name, type]) => [name, this.device.allocate(type)]));
    const { inputs, parameters, outputs } = program;
    const free = [...this.#adapter].filter(([name]) => parameters.has(name));
    const bound = new Map([...allocate(inputs), ...free]);
    return { executable, inputs: bound, outputs: allocate(outputs) };
  }

  async #load(program: Program): Promise<Executable> {
    this.#onLoad?.();
    this.#onLoad = undefined;
    return await this.device.compile(program, this.weights);
  }

  #requireMemory(program: Program, limit: number): void {
    const { totalBytes, sections } = this.device.plan(program, this.weights);
    if (totalBytes <= limit) return;
    throw new EnvironmentError(
      `the model exceeds the memory limit of ${limit} bytes: it needs ${totalBytes} ` +
        `(${sections.parameters} for weights, ${sections.state} for keys and values)`,
      { hints: ["use fewer rows at once, shorter texts, or weights of fewer bits"] },
    );
  }
}

/** Row in which the last token of each sequence lies. */
function lastRows(table: ArrayLike<number>, start: readonly number[], capacity: number): number[] {
  return start.map((used, b) => used === 0 ? b : table[b * capacity + used - 1]!);
}

function checkRoom({ batch, capacity }: KvCache, sequences: number, end: number): void {
  if (sequences === batch && end <= capacity) return;
  throw new RangeError(
    `cache overflow: ${sequences} sequences up to slot ${end}, expected ${batch} up to ${capacity}`,
  );
}
