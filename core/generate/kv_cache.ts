/**
 * Keys and values of the tokens seen so far, for B sequences and all their streams.
 *
 * Tensors are [rows, K, S, D] with row = p·B + b; layer 0 has one row per sequence, since all streams
 * see the same keys and values there. Slot s of a row is the token at position s. Capacity grows in
 * buckets, because attention reads every slot of the bucket, used or not.
 */
import type { Device, DeviceTensor } from "../runtime/device.ts";
import type { ModelConfig } from "../model/config.ts";
import { sharesFirstLayer } from "../model/transforms.ts";
import { tensorBytes } from "../graph/types.ts";

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
      const shape = [this.#rows(layer), config.numKeyValueHeads, this.capacity, config.headDim];
      for (const kind of ["keys", "values"]) {
        tensors.set(`${kind}.${layer}`, device.allocate({ dtype, shape }));
      }
    }
    this.tensors = tensors;
  }

  /** Memory of the keys and values. */
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

  /** Copies the first `used` slots of sequences of another cache: pairs of source, target. */
  copyFrom(source: KvCache, pairs: readonly (readonly [number, number])[], used: number): void {
    const { numKeyValueHeads: K, headDim: D, streams: P } = this.config;
    for (const [name, tensor] of this.tensors) {
      const perStream = tensor.shape[0]! === P * this.batch ? P : 1;
      for (let p = 0; p < perStream; p++) {
        for (const [from, to] of pairs) {
          this.device.copy(source.tensors.get(name)!, tensor, {
            sourceOffset: (p * source.batch + from) * K * source.capacity * D,
            sourceStride: source.capacity * D,
            targetOffset: (p * this.batch + to) * K * this.capacity * D,
            targetStride: this.capacity * D,
            width: used * D,
            height: K,
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
