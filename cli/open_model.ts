/**
 * Opens what engine commands work on: checkpoint, device and tokenizer, from their flags.
 *
 * Everything heavy is imported inside, so that a command file may import this one for its flags.
 */
import type { Checkpoint } from "../core/checkpoint/open.ts";
import type { Engine } from "../core/generate/engine.ts";
import type { DeviceChoice, DeviceName, MatrixKind } from "../core/runtime/mod.ts";
import type { Tokenizer } from "../core/tokenizer/tokenizer.ts";
import type { FlagTable } from "./flags/table.ts";

/** The checkpoint to run; for commands that need one. */
export const modelFlags = {
  model: {
    type: "path",
    required: true,
    group: "Model",
    summary: "Checkpoint folder, or organisation/name on the hub",
    details: "A Qwen2, Qwen2.5, Qwen3 or ParScale checkpoint as Hugging Face lays it out. A path " +
      "that exists is never looked up on the hub.",
  },
  batch: {
    type: "int",
    min: 1,
    max: 1024,
    default: 8,
    group: "Engine",
    unit: "sequences",
    summary: "Sequences computed together",
    details: "More is faster per sequence and takes more memory; a row's result does not depend " +
      "on the others beyond rounding.",
  },
} as const satisfies FlagTable;

/** Values of the flags that decide what is opened. */
export interface OpenOptions {
  readonly model: string;
  readonly adapter?: string | undefined;
  readonly device: DeviceChoice;
  readonly dtype?: "auto" | "f32" | "bf16";
  readonly threads?: number | undefined;
  readonly matrices?: MatrixKind;
  readonly block?: number | undefined;
  readonly memoryLimit?: number | undefined;
}

/** A model ready to run. */
export class OpenedModel implements Disposable {
  #tokenizer: Promise<Tokenizer> | undefined;

  constructor(readonly checkpoint: Checkpoint, readonly engine: Engine) {}

  /** Name of the device in use. */
  get device(): DeviceName {
    return this.engine.device.name;
  }

  /** The checkpoint's tokenizer, read at the first call. */
  tokenizer(): Promise<Tokenizer> {
    return this.#tokenizer ??= import("../core/tokenizer/tokenizer.ts")
      .then(({ openTokenizer }) => openTokenizer(this.checkpoint.directory));
  }

  /** The tokenizer, or undefined where the folder has none, which is enough for rows of ids. */
  async tokenizerIfAny(): Promise<Tokenizer | undefined> {
    const { statIfExists } = await import("../core/checkpoint/files.ts");
    for (const file of ["tokenizer.json", "vocab.json"]) {
      if (await statIfExists(`${this.checkpoint.directory}/${file}`)) return await this.tokenizer();
    }
  }

  [Symbol.dispose](): void {
    this.engine.device.close();
  }
}

/** Opens a model; see `core/checkpoint` and `core/runtime` for what it may throw. */
export async function openModel(options: OpenOptions): Promise<OpenedModel> {
  const { resolveModel } = await import("../core/checkpoint/hub.ts");
  const { openCheckpoint } = await import("../core/checkpoint/open.ts");
  const { openDevice } = await import("../core/runtime/mod.ts");
  const { Engine } = await import("../core/generate/engine.ts");
  const { parameterSpecs } = await import("../core/model/parameters.ts");
  const { resolveRuns } = await import("../core/checkpoint/run.ts");
  const paths = await resolveRuns(await resolveModel(options.model), options.adapter);
  const checkpoint = await openCheckpoint(paths.model, paths);
  const device = await openDevice(options.device, options);
  // An adapter is bound, not built in, so that another one can take its place.
  const names = checkpoint.adapter
    ? parameterSpecs(checkpoint.config).filter((spec) => spec.introduced).map(({ name }) => name)
    : [];
  const adapter = new Map(names.map((name) => [name, checkpoint.tensors.get(name)!]));
  const weights = new Map([...checkpoint.tensors].filter(([name]) => !adapter.has(name)));
  const engine = new Engine(device, checkpoint.config, weights, { ...options, adapter });
  return new OpenedModel(checkpoint, engine);
}
