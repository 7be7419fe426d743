/** A backbone, and adapters over it by name. */
import { basename, resolve } from "node:path";
import { UsageError } from "../../core/base/errors.ts";
import { statIfExists } from "../../core/base/files.ts";
import type { Checkpoint } from "../../core/checkpoint/open.ts";
import type { ServedModel } from "../../core/serve/service.ts";
import type { Session } from "../../core/session/session.ts";
import type { Io } from "../output/io.ts";
import { requireContext } from "./limits.ts";
import { type ModelPlan, openModel } from "./open_model.ts";

/** A session, and by name those of adapters over its backbone. */
export interface NamedSessions {
  readonly session: Session;
  readonly adapters: ReadonlyMap<string, Session>;
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

/** Opens the backbone, whose weights are shared, and lays every adapter over it. */
export async function openAdapters(
  model: ModelPlan,
  adapters: readonly NamedAdapter[],
  io: Io,
): Promise<NamedSessions> {
  const sharesBackbone = adapters.length > 0;
  const session = await openModel({ ...model, sharesBackbone }, io);
  const over = new Map<string, Session>();
  for (const { name, path } of adapters) over.set(name, await session.withAdapter(path));
  return { session, adapters: over };
}

/** The same by the names that requests use; the first is the backbone. */
export async function openServed(
  plan: ModelPlan,
  adapters: readonly NamedAdapter[],
  io: Io,
  maxModelLen?: number,
): Promise<{ session: Session; models: ServedModel[] }> {
  const { session, adapters: over } = await openAdapters(plan, adapters, io);
  const { config, checkpoint } = session;
  const maxLength = maxModelLen ?? config.maxPositionEmbeddings;
  requireContext(
    config,
    maxLength,
    `\`--max-model-len ${maxLength}\``,
    `pass \`--max-model-len ${config.maxPositionEmbeddings}\` or less`,
  );
  await session.openTokenizer();
  const tokenizerClass = await tokenizerClassOf(checkpoint);
  const name = await nameOf(plan.model);
  if (over.has(name)) throw new UsageError(`\`--adapter ${name}\` has the name of the backbone`);
  const model = (name: string, session: Session, parent: string | null): ServedModel => {
    return { name, session, maxLength, parent, tokenizerClass };
  };
  const others = Array.from(over, ([own, one]) => model(own, one, name));
  return { session, models: [model(name, session, null), ...others] };
}

/** A folder is known by its name, a model of the hub by its whole name. */
async function nameOf(model: string): Promise<string> {
  return await statIfExists(model) ? basename(resolve(model)) : model;
}

async function tokenizerClassOf({ files }: Checkpoint): Promise<string | null> {
  const { tokenizer_class: name } = await files.json("tokenizer_config.json");
  return typeof name === "string" ? name : null;
}
