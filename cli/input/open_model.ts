/**
 * Opens what engine commands work on: checkpoint, device and tokenizer, from their flags.
 */
import type { Checkpoint } from "../../core/checkpoint/open.ts";
import type { Engine } from "../../core/generate/engine.ts";
import type {
  DeviceChoice,
  DeviceName,
  ElementChoice,
  MatrixKind,
} from "../../core/runtime/mod.ts";
import type { Tokenizer } from "../../core/tokenizer/tokenizer.ts";
import { UsageError } from "../../core/base/errors.ts";
import type { Io } from "../output/io.ts";
import type { Quantization } from "./model_flags.ts";

export type { Quantization };

/** The same as devices say it. */
export function matrixKind(quantize: Quantization): MatrixKind {
  return quantize === "none" ? "f32" : quantize;
}

/** Throws unless a --block-size, where given, is a power of two. */
export function checkBlockSize(blockSize: number | undefined): void {
  if (blockSize === undefined || Number.isInteger(Math.log2(blockSize))) return;
  throw new UsageError(
    `invalid value ${blockSize} for \`--block-size\`: must be 16, 32, 64, 128 or 256`,
  );
}

/**
 * Checks what quantization needs: a device that can, and bits for a --block-size.
 * @throws {UsageError} for flags that do not go together
 */
export async function checkQuantize(
  { quantize = "none", blockSize, device }: Pick<OpenOptions, "quantize" | "blockSize" | "device">,
): Promise<void> {
  checkBlockSize(blockSize);
  if (quantize === "none") {
    if (blockSize === undefined) return;
    throw new UsageError("`--block-size` needs `--quantize q8` or `q4`");
  }
  const { quantizes } = await import("../../core/runtime/mod.ts");
  if (quantizes(device)) return;
  throw new UsageError(`the ${device} device cannot run with \`--quantize ${quantize}\``, {
    hints: ["use --device cpu or webgpu, or leave out --quantize"],
  });
}

/** How a device keeps the matrices of a model. */
export interface MatrixChoice {
  readonly matrices: MatrixKind;
  readonly block: number | undefined;
}

/**
 * How the matrices of a checkpoint are kept: as the flags say or, where they are stored in 8 or 4 bits, as
 * they are stored.
 * @throws {UsageError} for a device that cannot use them, or flags that ask for another kind
 */
export async function matrixChoice(
  { quantization, directory }: Checkpoint,
  { quantize = "none", blockSize, device }: Pick<OpenOptions, "quantize" | "blockSize" | "device">,
): Promise<MatrixChoice> {
  if (!quantization) return { matrices: matrixKind(quantize), block: blockSize };
  const { kind, block } = quantization.format;
  const { quantizes } = await import("../../core/runtime/mod.ts");
  const refuse = (what: string, hint: string) =>
    new UsageError(`${what} needs full-precision weights: "${directory}" is ${kind}`, {
      hints: [`${hint}, or use the checkpoint that it was quantized from`],
    });
  if (!quantizes(device)) throw refuse(`the ${device} device`, "use `--device cpu` or `webgpu`");
  if (quantize !== "none" && quantize !== kind) {
    throw refuse(`\`--quantize ${quantize}\``, "leave out `--quantize`");
  }
  if (blockSize !== undefined && blockSize !== block) {
    throw refuse(`\`--block-size ${blockSize}\``, `its block size is ${block}: leave out the flag`);
  }
  return { matrices: kind, block };
}

/** Values of the flags that decide what is opened. */
export interface OpenOptions {
  readonly model: string;
  readonly adapter?: string | undefined;
  readonly device: DeviceChoice;
  readonly unverified?: boolean;
  readonly dtype?: ElementChoice;
  readonly threads?: number | undefined;
  readonly quantize?: Quantization;
  readonly blockSize?: number | undefined;
  readonly memoryLimit?: number | undefined;
  /** Whether quantized weights are kept for the next start (default false), and how many bytes. */
  readonly weightCache?: boolean;
  readonly cacheLimit?: number;
  /** Binds the introduced tensors of a ParScale checkpoint, so that adapters can take their place. */
  readonly bindsIntroduced?: boolean;
}

/** A model ready to run. */
export class OpenedModel implements Disposable {
  #tokenizer: Promise<Tokenizer> | undefined;

  constructor(
    readonly checkpoint: Checkpoint,
    readonly engine: Engine,
    /** How the device keeps matrices. */
    readonly matrices: MatrixKind,
  ) {}

  /** Name of the device in use. */
  get device(): DeviceName {
    return this.engine.device.name;
  }

  /** The checkpoint's tokenizer, read at the first call. */
  tokenizer(): Promise<Tokenizer> {
    return this.#tokenizer ??= import("../../core/tokenizer/tokenizer.ts")
      .then(({ openTokenizer }) => openTokenizer(this.checkpoint.directory));
  }

  /** The tokenizer, or undefined where the folder has none, which is enough for rows of ids. */
  async tokenizerIfAny(): Promise<Tokenizer | undefined> {
    const { statIfExists } = await import("../../core/base/files.ts");
    for (const file of ["tokenizer.json", "vocab.json"]) {
      if (await statIfExists(`${this.checkpoint.directory}/${file}`)) return await this.tokenizer();
    }
  }

  [Symbol.dispose](): void {
    this.engine.device.close();
  }
}

/**
 * Opens the folder, hub name, run or adapter that --model and --adapter stand for. With a `purpose`, a
 * command in backticks, weights must have full precision.
 */
export async function openNamedCheckpoint(
  { model, adapter }: Pick<OpenOptions, "model" | "adapter">,
  io: Io,
  purpose?: string,
): Promise<Checkpoint> {
  const { findModel } = await import("./hub.ts");
  const { openCheckpoint } = await import("../../core/checkpoint/open.ts");
  const { resolveRuns } = await import("../../core/checkpoint/run.ts");
  const paths = await resolveRuns(await findModel(model, io), adapter);
  const how = purpose === undefined ? { quantized: true } : { purpose };
  return await openCheckpoint(paths.model, { ...paths, ...how });
}

/** Opens a model; see `core/checkpoint` and `core/runtime` for what it may throw. */
export async function openModel(options: OpenOptions, io: Io): Promise<OpenedModel> {
  const { openDevice } = await import("../../core/runtime/mod.ts");
  const { Engine } = await import("../../core/generate/engine.ts");
  const { introducedTensors } = await import("../../core/model/parameters.ts");
  const { weightsOf } = await import("../../core/checkpoint/open.ts");
  await checkQuantize(options);
  const checkpoint = await openNamedCheckpoint(options, io);
  const choice = await matrixChoice(checkpoint, options);
  const { keepQuantized } = await import("./quantized_cache.ts");
  const source = await keepQuantized(checkpoint, choice, options, io);
  const device = await openDevice(options.device, { ...options, ...choice });
  // An adapter is bound, not built in, so that another one can take its place.
  const binds = checkpoint.adapter || options.bindsIntroduced;
  const stored = weightsOf(source);
  const adapter = binds ? introducedTensors(checkpoint.config, stored) : new Map<string, never>();
  const weights = new Map([...stored].filter(([name]) => !adapter.has(name)));
  const engine = new Engine(device, checkpoint.config, weights, { ...options, adapter });
  return new OpenedModel(checkpoint, engine, choice.matrices);
}
