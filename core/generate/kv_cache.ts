/**
 * Keys and values of the tokens seen so far, for B sequences and all their streams.
 *
 * Tensors are [rows, K, S, D] with row = p·B + b; layer 0 has one row per sequence, since all streams
 * see the same keys and values there. Slot s of a row is the token at position s. Capacity grows in
 * buckets, because attention reads every slot of the bucket, used or not.
 *
 * A delta net has states [rows, …] instead, those after the last token of each sequence: they cannot be
 * cut back to a shorter prefix.
 */
import type { Device, DeviceTensor } from "../runtime/device.ts";
import { isDeltaNet, type ModelConfig } from "../model/config.ts";
import { stateShapes } from "../model/delta_net.ts";
import { sharesFirstLayer } from "../model/transforms.ts";
import { elementCount, tensorBytes } from "../graph/types.ts";

/** Capacity is a multiple of this many slots. */
const BUCKET = 128;

/**
 * Smallest bucket that holds this many slots. Where programs are graphs of their own for every size,
 * there are few of them: powers of two.
 */
export function bucketFor(device: Device, slots: number): number {
  if (device.traits.staticShapes) return 2 ** Math.ceil(Math.log2(Math.max(2 * BUCKET, slots)));
  return Math.max(1, Math.ceil(slots / BUCKET)) * BUCKET;
}

/** One token of each sequence, [B] as results of a step, and the same as [B, 1] for the next step. */
export interface SampledTokens {
  readonly tokens: DeviceTensor;
  readonly next: DeviceTensor;
}

/** KV cache of a batch of sequences. Dispose of it after use: device memory is not garbage-collected. */
export class KvCache implements Disposable {
  /** S */
  readonly capacity: number;
  /** State tensors by the names the forward program uses. */
  readonly tensors: ReadonlyMap<string, DeviceTensor>;
  #sampled: SampledTokens | undefined;

  /** An empty cache with room for `slots` tokens per sequence, rounded up to a bucket. */
  constructor(
    private readonly device: Device,
    private readonly config: ModelConfig,
    /** B */
    readonly batch: number,
    slots: number,
  ) {
    this.capacity = bucketFor(device, slots);
    const tensors = new Map<string, DeviceTensor>();
    const dtype = device.cacheType;
    for (let layer = 0; layer < config.numHiddenLayers; layer++) {
      const rows = this.#rows(layer);
      if (isDeltaNet(config, layer)) {
        for (const [kind, shape] of Object.entries(stateShapes(config.delta!))) {
          const type = { dtype: "f32", shape: [rows, ...shape] } as const;
          tensors.set(`${kind}.${layer}`, device.allocate(type));
        }
        continue;
      }
      const shape = [rows, config.numKeyValueHeads, this.capacity, config.headDim];
      for (const kind of ["keys", "values"]) {
        tensors.set(`${kind}.${layer}`, device.allocate({ dtype, shape }));
      }
    }
    this.tensors = tensors;
  }

  /** True if a sequence can only be continued from its last token, as where layers have states. */
  get hasStates(): boolean {
    return this.config.delta !== undefined;
  }

  /** The states among the tensors. */
  get states(): [name: string, tensor: DeviceTensor][] {
    return [...this.tensors].filter(([name]) => !hasSlots(name));
  }

  /** Memory of keys, values and states. */
  get bytes(): number {
    return [...this.tensors.values()].reduce((sum, tensor) => sum + tensorBytes(tensor), 0);
  }

  /** The tokens that the device drew for the sequences; made when they are first asked for. */
  get sampled(): SampledTokens {
    if (this.#sampled) return this.#sampled;
    const { batch } = this;
    const tokens = this.device.allocate({ dtype: "i32", shape: [batch] });
    const next = this.device.view(tokens, 0, { dtype: "i32", shape: [batch, 1] });
    return this.#sampled = { tokens, next };
  }

  /** A cache of another size whose sequence b continues sequence `from[b]` of this one. */
  rearranged(from: readonly number[], slots: number, used: number): KvCache {
    const target = new KvCache(this.device, this.config, from.length, slots);
    target.copyFrom(this, from.map((source, b) => [source, b]), used);
    return target;
  }

  /** Copies the first `used` slots of sequences of another cache, and their states: pairs of source, target. */
  copyFrom(source: KvCache, pairs: readonly (readonly [number, number])[], used: number): void {
    const { headDim: D, streams: P } = this.config;
    for (const [name, target] of this.tensors) {
      const given = source.tensors.get(name)!;
      const perStream = target.shape[0]! === P * this.batch ? P : 1;
      const [fromRow, toRow] = [given, target].map(rowElements) as [number, number];
      const rectangle = hasSlots(name)
        ? { sourceStride: source.capacity * D, targetStride: this.capacity * D, width: used * D }
        : { sourceStride: fromRow, targetStride: toRow, width: toRow };
      for (let p = 0; p < perStream; p++) {
        for (const [from, to] of pairs) {
          this.device.copy(given, target, {
            ...rectangle,
            sourceOffset: (p * source.batch + from) * fromRow,
            targetOffset: (p * this.batch + to) * toRow,
            height: toRow / rectangle.targetStride,
          });
        }
      }
    }
  }

  /** Returns the memory at once, where the device lets it. */
  [Symbol.dispose](): void {
    const { tokens } = this.#sampled ?? {};
    const own = [...this.tensors.values(), ...(tokens ? [tokens] : [])];
    for (const tensor of own) this.device.free?.(tensor);
  }

  #rows(layer: number): number {
    const shared = layer === 0 && sharesFirstLayer(this.config);
    return shared ? this.batch : this.batch * this.config.streams;
  }
}

function hasSlots(name: string): boolean {
  return /^(keys|values)\./.test(name);
}

function rowElements({ shape: [, ...rest] }: DeviceTensor): number {
  return elementCount(rest);
}
