/** Opens models for commands: flags become options, and what core reports goes to stderr. */
import { basename, resolve } from "node:path";
import type { Checkpoint } from "../../core/checkpoint/open.ts";
import { weightCacheFolder } from "../../core/checkpoint/quantized_cache.ts";
import { type ModelPaths, resolveRuns } from "../../core/checkpoint/run.ts";
import { isOnHub } from "../../core/hub/model.ts";
import * as find from "../../core/session/find.ts";
import type { OpenOptions } from "../../core/session/open.ts";
import type { Quantization } from "../../core/session/quantization.ts";
import type { Session } from "../../core/session/session.ts";
import type { Tokenizer } from "../../core/tokenizer/tokenizer.ts";
import type { Io } from "../output/io.ts";
import type { PlanText } from "../output/plan.ts";
import { templateVariables } from "./template_variables.ts";
import { Progress } from "../output/progress.ts";
import { bytesText, counted } from "../output/units.ts";

/** Files to open. */
export type NamePlan = Pick<ModelPlan, "model" | "adapter">;

/** Model to open, and its options. */
export interface ModelPlan extends Omit<OpenOptions, "events" | "signal" | "lazyTokenizer"> {
  readonly model: string;
}

/** Values of flags that name a model. */
export type ModelValues = Omit<ModelPlan, "adapter" | "templateVariables"> & {
  readonly adapter?: unknown;
  readonly templateVar?: readonly string[];
};

const MODEL_FLAGS = [
  ...["model", "adapter", "device", "unverified", "dtype", "threads", "memoryLimit"] as const,
  ...["quantize", "blockSize", "weightCache", "cacheLimit", "chatTemplate", "speculate"] as const,
];

/** The model that flags name; a command may lack some of them, or have several adapters. */
export function modelPlan(values: ModelValues): ModelPlan {
  const given = MODEL_FLAGS.filter((name) =>
    values[name] !== undefined && !Array.isArray(values[name])
  );
  return {
    ...Object.fromEntries(given.map((name) => [name, values[name]])) as unknown as ModelPlan,
    ...templateVariables(values.templateVar),
  };
}

/** Opens a model; its tokenizer is read when it is first asked for. */
export async function openModel({ model, ...options }: ModelPlan, io: Io): Promise<Session> {
  // Loads the engine, which commands that only find a model do not need.
  const { openModel } = await import("../../core/session/open.ts");
  using events = new OpenDisplay(io, undefined, model);
  const { interruption: signal } = io;
  return await openModel(model, { ...options, events, signal, lazyTokenizer: true });
}

/**
 * Opens a model for `--dry-run`, and says what it is. One on the hub is not downloaded, and no quantized
 * weights are kept.
 */
export async function tryModel<T extends { readonly session: Session }>(
  plan: ModelPlan,
  open: (plan: ModelPlan) => Promise<T>,
): Promise<{ readonly text: PlanText; readonly opened?: T }> {
  const { model } = plan, name = await nameOnHub(model);
  if (name) return { text: { lines: [`model: ${name} on the hub`] } };
  const opened = await open({ ...plan, weightCache: false });
  const { device, config: { family, streams } } = opened.session;
  const lines = [`model: ${model}, ${family}, ${counted(streams, "stream")}, on ${device}`];
  return { text: { lines, results: { device, streams } }, opened };
}

/** Name on the hub of a model, or of an adapter's backbone; undefined for one that is here. */
export async function nameOnHub(given: string): Promise<string | undefined> {
  const { model } = await resolveRuns(given, undefined);
  return await isOnHub(model) ? model : undefined;
}

/** Opens the checkpoint of a model; with a `purpose`, weights must have full precision. */
export async function findCheckpoint(
  { model, adapter }: NamePlan,
  io: Io,
  purpose?: string,
): Promise<Checkpoint> {
  using events = new OpenDisplay(io);
  return await find.findCheckpoint(model, { adapter, events, signal: io.interruption }, purpose);
}

/** Finds the folders of a model and its adapter. */
export async function findModel({ model, adapter }: NamePlan, io: Io): Promise<ModelPaths> {
  using events = new OpenDisplay(io);
  return await find.findModel(model, { adapter, events, signal: io.interruption });
}

/** Name of a folder in this one for what is made of a model, such as `qwen-q4`. */
export function derivedName(model: string, made?: string): string {
  const name = basename(resolve(model)).replace(/[@:].*$/, "").replace(/(-\d+-of-\d+)?\.gguf$/, "");
  return made === undefined ? name : `${name}-${made}`;
}

/** Size in bytes of weights that take about a second to load. */
export const LARGE_WEIGHTS = 1e8;

/** Says on a terminal that a chat model continues prompts without its template, which few users want. */
export function noteContinued(io: Io, { chatTemplate }: Pick<Tokenizer, "chatTemplate">): void {
  if (chatTemplate === undefined || !io.isTerminal("stdout")) return;
  io.note("the prompt is continued as it stands; --chat applies the model's chat template");
}

/**
 * Shows downloads and the quantizing of weights; dispose of it when that is over. That a model's weights are
 * loaded is shown when it happens, which is at its first use.
 */
export class OpenDisplay implements find.OpenEvents, Disposable {
  #progress: Progress | undefined;

  constructor(readonly io: Io, readonly label = "Downloading", readonly model?: string) {}

  readonly onTotal = (bytes: number): void => this.#start(this.label, bytes);

  readonly onBytes = (bytes: number): void => this.#progress?.update(bytes / 1e6);

  readonly onNotice = (text: string): void => this.io.note(text);

  readonly onWarning = (text: string): void => this.io.warn(text);

  readonly onQuantize = (quantize: Quantization, bytes: number): void => {
    this.io.note(
      `keeping ${quantize} weights (${bytesText(bytes)}) in ${weightCacheFolder()} for the next ` +
        "start; --no-weight-cache leaves that out",
    );
    this.#start("Quantizing", bytes);
  };

  readonly onLoad = (bytes: number): void => {
    if (this.model !== undefined && bytes >= LARGE_WEIGHTS) {
      this.io.noteOnce(`opening ${this.model} …`);
    }
  };

  [Symbol.dispose](): void {
    this.#progress?.[Symbol.dispose]();
  }

  #start(label: string, bytes: number): void {
    this.#progress?.[Symbol.dispose]();
    this.#progress = new Progress(this.io, { label, unit: "MB", total: bytes / 1e6 });
  }
}
