/**
 * Capabilities of each device. Every trait has one meaning; code above `core/runtime` asks for
 * the trait that it depends on, never for a device by name.
 */

/** Devices that can be asked for by name. */
export type DeviceName = "reference" | "cpu" | "webgpu" | "cuda" | "tfjs";

/** Element types that a device may keep keys and values in. */
export type CacheType = "f32" | "bf16" | "f16";

export interface Traits {
  /** Prompt tokens per forward pass: enough rows for full speed of the matrix products. */
  readonly prefillChunk: number;
  /** A program is prepared anew for each size, so token counts and capacities are rounded up. */
  readonly staticShapes: boolean;
  /** Reading a tensor copies it to the host, so logits become tokens on the device where possible. */
  readonly readbackIsCopy: boolean;
  /** Tensors lie in memory of the device's own, not in that of the process. */
  readonly discreteMemory: boolean;
  /** Frozen parameters are compiled as constant weights, stored in the compute type. */
  readonly freezesWeights: boolean;
  /** Knows the op `sample`, so that no logits need to be read. */
  readonly samplesTokens: boolean;
  /** Attention reads keys and values through a block table, without a copy. */
  readonly pagedCache: boolean;
  /** Element types of KV caches. */
  readonly cacheTypes: readonly CacheType[];
  /** A view may be a part of a tensor; without this trait it has all elements, in another shape. */
  readonly partialViews: boolean;
  /** Elements of a long array that one program of the optimizer works on. */
  readonly optimizerChunk: number;
  /** Bytes that training holds beside its tensors: the program and its libraries. 0 where not measured. */
  readonly processBytes: number;
  /** Bytes that the allocator of temporaries needs for itself, for each of theirs. */
  readonly allocatorShare: number;
  /** Bytes that its holes take besides, as a multiple of the largest temporary. */
  readonly allocatorHoles: number;
  /** Bytes that the allocator rounds an array up to; smaller and larger ones count as they are. */
  readonly bufferSizes: readonly number[];
}

/** Tensors in host memory, programs for all sizes. Chunks of the optimizer fit a processor's cache. */
const HOST: Traits = {
  partialViews: true,
  samplesTokens: false,
  pagedCache: false,
  cacheTypes: ["f32"],
  prefillChunk: 256,
  staticShapes: false,
  discreteMemory: false,
  readbackIsCopy: false,
  freezesWeights: false,
  optimizerChunk: 2 ** 16,
  processBytes: 0,
  allocatorShare: 0,
  allocatorHoles: 0,
  bufferSizes: [],
};

/** A GPU needs more rows than a processor to be busy. */
const GPU: Traits = {
  ...HOST,
  prefillChunk: 2048,
  staticShapes: true,
  readbackIsCopy: true,
  discreteMemory: true,
  freezesWeights: true,
};

export const TRAITS: Readonly<Record<DeviceName, Traits>> = {
  reference: { ...HOST, samplesTokens: true },
  // ONNX Runtime's arena keeps 8 bytes for every 256. Its regions fit nothing a little larger.
  cpu: { ...HOST, processBytes: 140e6, allocatorShare: 8 / 256, allocatorHoles: 1.5 },
  webgpu: {
    ...GPU,
    cacheTypes: ["f32", "f16"],
    // Every parameter is an array of its own, which one program updates.
    partialViews: false,
    optimizerChunk: 2 ** 31,
    // ONNX Runtime's provider reuses a buffer only for its own size, some steps after it was released.
    allocatorShare: 0.7,
    bufferSizes: [1, 2, 4, 8, 16, 32, 64, 96, 128, 200, 256, 337.5, 450, 512, 1024, 1280]
      .map((size) => size * 2 ** 17),
  },
  cuda: {
    ...GPU,
    samplesTokens: true,
    pagedCache: true,
    cacheTypes: ["f32", "bf16"],
    // A reduction over it still fits the second extent of a grid.
    optimizerChunk: 2 ** 29,
  },
  tfjs: { ...HOST, readbackIsCopy: true, freezesWeights: true, optimizerChunk: 2 ** 22 },
};
