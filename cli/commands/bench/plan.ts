/** From the flags of `parscale bench` to what is timed. */
import { UsageError } from "../../../core/base/errors.ts";
import type { Checkpoint } from "../../../core/checkpoint/open.ts";
import type { ModelPaths } from "../../../core/checkpoint/run.ts";
import { isParScale, type ModelConfig } from "../../../core/model/config.ts";
import { quantizes } from "../../../core/runtime/mod.ts";
import { checkBlockSize, matrixFormat } from "../../../core/session/quantization.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { requireContext } from "../../input/limits.ts";
import { findCheckpoint, findModel, type ModelPlan } from "../../input/open_model.ts";
import type { Io } from "../../output/io.ts";
import { counted } from "../../output/units.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type BenchValues = ValuesOf<typeof command>;

/** Everything that is timed, in turns. */
export interface TimingPlan {
  /** One per device and kind of matrices. */
  readonly opened: readonly ModelPlan[];
  readonly streams: readonly Streams[];
  readonly work: readonly Work[];
}

/** A number of streams, and where their prefixes and aggregator are from. */
export interface Streams {
  readonly count: number;
  readonly introduced: "own" | "random" | "none";
}

/** Timed work: decode after cached tokens, a prompt, or a training step. */
export interface Work {
  readonly what: BenchValues["what"][number];
  /** Parameters that a training step changes; null for other work. */
  readonly trainParams: BenchValues["trainParams"][number] | null;
  readonly batch: number;
  /** Tokens in the cache before. */
  readonly context: number;
  /** Tokens of the prompt, or of a row to train on; null for decode. */
  readonly prompt: number | null;
}

/** Slots that a sequence needs. */
export function slotsOf({ context, prompt }: Work, steps: number): number {
  return context + (prompt ?? steps);
}

/** Finds the model, and checks lengths and matrices. */
export async function planTiming(values: BenchValues, io: Io): Promise<TimingPlan> {
  checkBlockSize(values.blockSize);
  const paths = await findModel(values, io);
  const trains = values.what.includes("train");
  if (trains) refuseInexact(values);
  const checkpoint = await findCheckpoint(paths, io, trains ? "`--what train`" : undefined);
  const work = workOf(values, checkpoint);
  const { config } = checkpoint;
  const streams = unique(values.streams.length > 0 ? values.streams : [config.streams])
    .map((count) => ({ count, introduced: introducedOf(config, count) }));
  if (streams.some(({ introduced }) => introduced === "none")) requireBackbone(work);
  return { opened: modelsOf(values, paths, checkpoint), streams, work };
}

/** Refuses formats of weights that cannot be trained. */
function refuseInexact({ quantize, dtype }: BenchValues): void {
  const bits = quantize.find((kind) => kind !== "none");
  const flag = bits ? `--quantize ${bits}` : dtype === "f16" ? "--dtype f16" : undefined;
  if (flag === undefined) return;
  throw new UsageError(`\`--what train\` cannot be combined with \`${flag}\``, {
    hints: ["training is in f32, or in bf16 on cuda; time other rows in a run of their own"],
  });
}

/** Refuses to train ParScale parameters where a model has none. */
function requireBackbone(work: readonly Work[]): void {
  if (!work.some(({ trainParams }) => trainParams === "introduced")) return;
  throw new UsageError("a model with one stream has no ParScale parameters to train", {
    hints: ["add `--streams 4`, or pass `--train-params all`"],
  });
}

function introducedOf(config: ModelConfig, streams: number): Streams["introduced"] {
  if (streams === config.streams) return isParScale(config) ? "own" : "none";
  return streams === 1 ? "none" : "random";
}

/** Each value once, in the order of their first appearance. */
function unique<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}

/** Every combination of device and kind of matrices. */
function modelsOf(values: BenchValues, paths: ModelPaths, checkpoint: Checkpoint): ModelPlan[] {
  const { threads, unverified, dtype, memoryLimit, blockSize } = values;
  return unique(values.device).flatMap((device) =>
    (values.quantize.length > 0 ? unique(values.quantize) : [undefined]).map((quantize) => {
      const { kind } = matrixFormat(checkpoint, { quantize, blockSize, device });
      if (kind !== "f32" && !quantizes(device)) {
        throw new UsageError(`the ${device} device cannot use ${kind} weights`, {
          hints: ["time --quantize q8 and q4 on --device cpu or webgpu"],
        });
      }
      const matrices = quantize === "none" ? { quantize } : { quantize, blockSize };
      return { ...paths, device, ...matrices, threads, unverified, dtype, memoryLimit };
    })
  );
}

/** The work asked for in the order of rows, in lengths that fit the model's context. */
function workOf(values: BenchValues, { config }: Checkpoint): Work[] {
  const { steps } = values;
  const limit = config.maxPositionEmbeddings;
  const contexts = values.context.length > 0
    ? unique(values.context)
    : [Math.max(1, Math.min(512, limit - steps))];
  const prompts = values.prompt.length > 0 ? unique(values.prompt) : [Math.min(512, limit)];
  const params = values.trainParams.length > 0 ? unique(values.trainParams) : ["all" as const];
  const work = unique(values.what).flatMap((what) =>
    unique(values.batch).flatMap((batch): Work[] => {
      if (what === "decode") {
        return contexts.map((context) => ({
          what,
          trainParams: null,
          batch,
          context,
          prompt: null,
        }));
      }
      return (what === "train" ? params : [null]).flatMap((trainParams) =>
        prompts.map((prompt) => ({ what, trainParams, batch, context: 0, prompt }))
      );
    })
  );
  for (const one of work) {
    const [what, hint] = one.what === "decode"
      ? [`\`--context ${one.context}\` with ${counted(steps, "step")}`, "--context"]
      : [`\`--prompt ${one.prompt}\``, "--prompt"];
    requireContext(config, slotsOf(one, steps), what, `shorten ${hint}`);
  }
  return work;
}
