/** A backbone, and adapters over it by name. */
import { basename, resolve } from "node:path";
import type { Checkpoint } from "../../core/checkpoint/open.ts";
import type { Engine } from "../../core/generate/engine.ts";
import { UsageError } from "../../core/base/errors.ts";
import { readJsonObject, statIfExists } from "../../core/base/files.ts";
import { introducedTensors } from "../../core/model/parameters.ts";
import type { ServedModel } from "../../core/serve/service.ts";
import { requireContext } from "./context.ts";
import {
  type OpenedModel,
  openModel,
  openNamedCheckpoint,
  type OpenOptions,
} from "./open_model.ts";
import type { Io } from "../output/io.ts";

/** Flags that decide which models there are. */
export interface ModelValues extends Omit<OpenOptions, "adapter"> {
  /** NAME=PATH each. */
  readonly adapter: readonly string[];
  readonly maxModelLen: number | undefined;
}

/** An adapter by name. */
export interface NamedAdapter {
  readonly name: string;
  readonly path: string;
}

/** Takes `NAME=PATH` apart. @throws {UsageError} for a missing part or a name given twice */
export function parseAdapters(texts: readonly string[]): NamedAdapter[] {
  const adapters = texts.map((text) => {
    const at = text.indexOf("=");
    if (at > 0 && at < text.length - 1) {
      return { name: text.slice(0, at), path: text.slice(at + 1) };
    }
    throw new UsageError(`\`--adapter ${text}\` needs a name and a path`, {
      hints: [`write \`--adapter NAME=${at < 0 ? text : "PATH"}\``],
    });
  });
  requireDistinct(adapters);
  return adapters;
}

/** @throws {UsageError} for a name given twice */
export function requireDistinct(adapters: readonly NamedAdapter[]): void {
  const names = adapters.map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw new UsageError(`\`--adapter\` names "${twice}" twice`);
}

/** Opens the backbone and lays every adapter over it; the first model is the backbone. */
export async function openModels(
  values: ModelValues,
  adapters: readonly NamedAdapter[],
  io: Io,
): Promise<{ opened: OpenedModel; models: ServedModel[] }> {
  const bindsIntroduced = adapters.length > 0;
  const opened = await openModel({ ...values, adapter: undefined, bindsIntroduced }, io);
  const { checkpoint, engine } = opened;
  const { config } = checkpoint;
  const maxLength = values.maxModelLen ?? config.maxPositionEmbeddings;
  requireContext(
    config,
    maxLength,
    `\`--max-model-len ${maxLength}\``,
    `pass \`--max-model-len ${config.maxPositionEmbeddings}\` or less`,
  );
  const tokenizer = await opened.tokenizer();
  const common = {
    tokenizer,
    maxLength,
    tokenizerClass: await tokenizerClassOf(checkpoint.directory),
  };
  const name = await nameOf(values.model);
  if (adapters.some((adapter) => adapter.name === name)) {
    throw new UsageError(`\`--adapter ${name}\` has the name of the backbone`);
  }
  const models: ServedModel[] = [{ ...common, name, engine, parent: null }];
  for (const over of await layAdapters(opened, values.model, adapters, io)) {
    models.push({ ...common, name: over.name, engine: over.engine, parent: name });
  }
  return { opened, models };
}

/** An adapter over a backbone, ready to run. */
export interface LaidAdapter {
  readonly name: string;
  readonly engine: Engine;
  readonly checkpoint: Checkpoint;
}

/** Lays adapters over an opened backbone, whose weights are shared. */
export async function layAdapters(
  { engine }: OpenedModel,
  model: string,
  adapters: readonly NamedAdapter[],
  io: Io,
): Promise<LaidAdapter[]> {
  const laid: LaidAdapter[] = [];
  for (const { name, path } of adapters) {
    const checkpoint = await openNamedCheckpoint({ model, adapter: path }, io);
    const { config, tensors } = checkpoint;
    const own = introducedTensors(config, tensors);
    laid.push({ name, engine: engine.withAdapter(config, own), checkpoint });
  }
  return laid;
}

/** A folder is known by its name, a model of the hub by its whole name. */
async function nameOf(model: string): Promise<string> {
  return await statIfExists(model) ? basename(resolve(model)) : model;
}

async function tokenizerClassOf(directory: string): Promise<string | null> {
  const path = `${directory}/tokenizer_config.json`;
  if (!await statIfExists(path)) return null;
  const { tokenizer_class: name } = await readJsonObject(path);
  return typeof name === "string" ? name : null;
}
