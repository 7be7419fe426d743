/** Opens models by name; the command line and programs have no other way. */
import { EnvironmentError } from "../base/errors.ts";
import { isObject } from "../base/files.ts";
import { memoryInfo } from "../base/platform/mod.ts";
import { DEFAULT_BLOCK, matrixBytes, type MatrixFormat } from "../quant/codes.ts";
import { type Checkpoint, weightsOf } from "../checkpoint/open.ts";
import { Engine } from "../generate/engine.ts";
import { introducedTensors, linearSpecs } from "../model/parameters.ts";
import { matrixFormatOf } from "../runtime/weights.ts";
import {
  type DeviceOptions,
  type ElementChoice,
  type MatrixKind,
  openDevice,
  quantizes,
} from "../runtime/mod.ts";
import { findCheckpoint, type FindOptions } from "./find.ts";
import { checkOptions, number, oneOf, PATH, type Rule, SIGNAL, SWITCH, whole } from "./options.ts";
import { checkQuantize, matrixFormat, type MatrixOptions } from "./quantization.ts";
import { Session } from "./session.ts";

/** Options of opening a model; an option is that of the command line with the same name. */
export interface OpenOptions extends FindOptions, MatrixOptions {
  /** Allows a GPU that has not passed `parscale doctor --device cuda`. */
  readonly unverified?: boolean;
  /** Element type to compute in; auto is bf16 on cuda and f32 elsewhere. */
  readonly dtype?: ElementChoice;
  /** Threads to compute with; all cores unless given. */
  readonly threads?: number | undefined;
  /** Most tokens that will be drafted; above 0 single rows are computed as several are, as drafts need. */
  readonly speculate?: number | undefined;
  /** Keeps quantized weights, and those of a GGUF file, in the cache folder for the next start. */
  readonly weightCache?: boolean;
  /** Bytes of that cache; those not used for longest go first. Unlimited unless given. */
  readonly cacheLimit?: number;
  /** Bytes that a step may need; one that needs more is refused before it is computed. */
  readonly memoryLimit?: number | undefined;
  /** File of a Jinja template for messages, in place of the model's own. */
  readonly chatTemplate?: string | undefined;
  /** Variables of the template, such as `enable_thinking`, for every conversation. */
  readonly templateVariables?: Readonly<Record<string, unknown>> | undefined;
  /** Lets `withAdapter` lay other streams over this backbone, at some cost in memory. */
  readonly sharesBackbone?: boolean;
  /**
   * Leaves the tokenizer to `openTokenizer`, which a folder may then lack.
   * @internal
   */
  readonly lazyTokenizer?: boolean;
  /** @internal */
  readonly splitAbove?: DeviceOptions["splitAbove"];
  /**
   * Bytes beyond which weights are warned of; those that are free unless given.
   * @internal
   */
  readonly freeMemory?: number;
}

const DEVICE = oneOf("auto", "cpu", "webgpu", "cuda", "tfjs", "reference");

/** Rules for the options of `openModel` that are not internal. */
const RULES: Readonly<Record<string, Rule>> = {
  adapter: PATH,
  device: [(value) => DEVICE[0](value) || /^cuda:\d+$/.test(String(value)), DEVICE[1]],
  unverified: SWITCH,
  dtype: oneOf("auto", "f32", "bf16", "f16"),
  threads: whole(1),
  quantize: oneOf("none", "q8", "q4"),
  blockSize: whole(16),
  speculate: whole(0),
  weightCache: SWITCH,
  cacheLimit: number(0, Infinity, "a number of bytes"),
  memoryLimit: number(1, Infinity, "a number of bytes"),
  chatTemplate: PATH,
  templateVariables: [isObject, "an object of JSON values"],
  sharesBackbone: SWITCH,
  events: [isObject, "an object of callbacks"],
  signal: SIGNAL,
};

/**
 * Opens a folder that holds a Qwen2, Qwen2.5, Qwen3, Qwen3.5, Llama or ParScale checkpoint, a `.gguf` file of
 * such a model, an adapter that names its backbone, or a `train` run; a name such as `Qwen/Qwen2.5-0.5B`, or
 * with `:Q8_0` after it that of a GGUF file, is downloaded from the hub unless there is a folder of that name.
 * @throws {DataError} when it is not such a checkpoint
 * @throws {EnvironmentError} when the device cannot be used or the hub cannot be reached
 * @throws {UsageError} for options that do not go together
 */
export async function openModel(model: string, options: OpenOptions = {}): Promise<Session> {
  const { lazyTokenizer: _lazy, splitAbove: _split, freeMemory: _free, ...own } = options;
  checkOptions(own, RULES);
  checkQuantize(options);
  const checkpoint = await findCheckpoint(model, options);
  const format = matrixFormat(checkpoint, options);
  const { device: name = "auto" } = options;
  const keepsCodes = options.quantize === undefined && quantizes(name);
  const kept = await keptWeights(checkpoint, format, { ...options, keepsCodes });
  const stored = weightsOf(kept, { keepsCodes });
  const kinds = { ...format, matrices: format.kind, alikeRows: Boolean(options.speculate) };
  const device = await openDevice(name, { ...options, ...kinds });
  try {
    const { config } = checkpoint;
    // An adapter is bound, not built in, so that another one can take its place.
    const binds = checkpoint.adapter || options.sharesBackbone;
    const adapter = binds ? introducedTensors(config, stored) : new Map<string, never>();
    const formats = linearSpecs(config).map(({ name, shape }) => ({
      shape,
      format: matrixFormatOf(stored.get(name)!, format),
    }));
    const engine = new Engine(
      device,
      config,
      new Map([...stored].filter(([name]) => !adapter.has(name))),
      { ...options, adapter, onLoad: () => options.events?.onLoad?.(bytesOf(formats)) },
    );
    if (!device.traits.discreteMemory) warnOfMemory(formats, options);
    const kind = keptKind(formats), { weightFormat } = checkpoint.files;
    const matrices = keepsCodes && kind !== "f32" && weightFormat || kind;
    const session = new Session(checkpoint, engine, { ...options, matrices, weights: stored });
    if (!options.lazyTokenizer) await session.openTokenizer();
    return session;
  } catch (error) {
    device.close();
    throw error;
  }
}

/** A matrix of a linear layer, as a device keeps it. */
interface KeptMatrix {
  readonly shape: readonly number[];
  readonly format: MatrixFormat;
}

function bytesOf(matrices: readonly KeptMatrix[], own?: MatrixFormat): number {
  return matrices.reduce((sum, { shape, format }) => sum + matrixBytes(shape, own ?? format), 0);
}

/** Warns of matrices that do not fit the free memory, where the system may end a process without a word. */
function warnOfMemory(
  matrices: readonly KeptMatrix[],
  { events, freeMemory = memoryInfo().available }: OpenOptions,
): void {
  const bytes = bytesOf(matrices), q8 = bytesOf(matrices, { kind: "q8", block: DEFAULT_BLOCK });
  const gigabytes = (bytes: number) => `${Number((bytes / 1e9).toPrecision(2))} GB`;
  const advice = q8 < bytes ? `; with --quantize q8 they take ${gigabytes(q8)}` : "";
  if (bytes <= freeMemory) return;
  events?.onWarning?.(
    `the weights take ${gigabytes(bytes)} of memory, ${gigabytes(freeMemory)} are free${advice}`,
  );
}

/** Returns the format of most matrices: a file in Q4_0 has its output matrix in 8 bits. */
function keptKind(matrices: readonly KeptMatrix[]): MatrixKind {
  const byKind = [...Map.groupBy(matrices, ({ format }) => format.kind)];
  return byKind.toSorted(([, a], [, b]) => b.length - a.length)[0]![0];
}

/**
 * The checkpoint with quantized weights of an earlier start, or of this one, which writes them for the
 * next; the checkpoint itself where nothing is in codes or kept.
 */
async function keptWeights(
  checkpoint: Checkpoint,
  format: MatrixFormat,
  { weightCache, cacheLimit = Infinity, events, signal, keepsCodes }: OpenOptions & {
    readonly keepsCodes: boolean;
  },
): Promise<Checkpoint> {
  const isExact = format.kind === "f32";
  if (!weightCache || checkpoint.quantization || isExact && !keepsCodes) return checkpoint;
  const { openFromCache, weightCacheFolder } = await import("../checkpoint/quantized_cache.ts");
  try {
    const kept = await openFromCache(checkpoint, isExact ? undefined : format, {
      folder: weightCacheFolder(),
      limitBytes: cacheLimit,
      signal,
      onMake: (bytes, kind) => events?.onQuantize?.(kind, bytes),
      onProgress: (done) => events?.onBytes?.(done),
    });
    return kept ?? checkpoint;
  } catch (error) {
    if (!(error instanceof EnvironmentError)) throw error;
    events?.onWarning?.(`quantized weights were not kept: ${error.message}`);
    return checkpoint;
  }
}
