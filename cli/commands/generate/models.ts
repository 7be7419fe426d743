/** The models of `generate`: one, or a backbone under several adapters that rows choose from. */
import { statIfExists } from "../../../core/base/files.ts";
import type { Checkpoint } from "../../../core/checkpoint/open.ts";
import type { Engine } from "../../../core/generate/engine.ts";
import type { NamedAdapter } from "../../input/named_models.ts";
import { type OpenedModel, openModel, type OpenOptions } from "../../input/open_model.ts";
import type { Io } from "../../output/io.ts";

/** Flags that decide which models there are. */
export interface GenerateModelValues extends Omit<OpenOptions, "adapter"> {
  /** PATH or NAME=PATH each. */
  readonly adapter: readonly string[];
}

/** Opened models. Dispose of them when they are done. */
export interface GenerateModels extends Disposable {
  readonly opened: OpenedModel;
  /** Names that rows may give. */
  readonly names: readonly string[];
  /** Everything that results depend on. */
  readonly checkpoints: readonly Checkpoint[];
  /** The engine of an adapter; without a name that of the only one, or of the backbone. */
  engineOf(adapter: string | undefined): Engine;
}

/** Opens what `--model` and `--adapter` stand for. */
export async function openGenerateModels(
  values: GenerateModelValues,
  io: Io,
): Promise<GenerateModels> {
  const adapters: NamedAdapter[] = [];
  for (const text of values.adapter) adapters.push(await parseAdapter(text));
  const [only, ...others] = adapters;
  if (others.length === 0) {
    const opened = await openModel({ ...values, adapter: only?.path }, io);
    return {
      opened,
      names: adapters.map(({ name }) => name),
      checkpoints: [opened.checkpoint],
      engineOf: () => opened.engine,
      [Symbol.dispose]: () => opened[Symbol.dispose](),
    };
  }
  const { layAdapters, requireDistinct } = await import("../../input/named_models.ts");
  requireDistinct(adapters);
  const opened = await openModel({ ...values, adapter: undefined, bindsIntroduced: true }, io);
  const laid = await layAdapters(opened, values.model, adapters, io);
  const engines = new Map(laid.map(({ name, engine }) => [name, engine]));
  return {
    opened,
    names: [...engines.keys()],
    checkpoints: [opened.checkpoint, ...laid.map(({ checkpoint }) => checkpoint)],
    engineOf: (adapter) => adapter === undefined ? opened.engine : engines.get(adapter)!,
    [Symbol.dispose]: () => opened[Symbol.dispose](),
  };
}

/** `NAME=PATH`, or a path that is its own name. A path may have an equals sign in it. */
async function parseAdapter(text: string): Promise<NamedAdapter> {
  const at = text.indexOf("=");
  if (at <= 0 || await statIfExists(text)) return { name: text, path: text };
  return { name: text.slice(0, at), path: text.slice(at + 1) };
}
