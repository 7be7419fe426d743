/** Everything of a run that is shown: its plan, its steps, and the model card of its checkpoints. */
import { UsageError } from "../../../core/base/errors.ts";
import { statIfExists } from "../../../core/base/files.ts";
import { memoryInfo } from "../../../core/base/platform/mod.ts";
import { CARD_FILE, modelCard } from "../../../core/convert/model_card.ts";
import { describeRow } from "../../../core/data/batches.ts";
import { countParameters, elementCount, parameterSpecs } from "../../../core/model/parameters.ts";
import { writeFile } from "../../../core/storage/write_file.ts";
import { MEAN_STEPS, type StepReport } from "../../../core/train/loop.ts";
import { defaultRates } from "../../../core/train/rates.ts";
import { requireNoRun } from "../../../core/train/run_folder.ts";
import { groupTensors, type RateKind } from "../../../core/train/trainable.ts";
import type { TrainingState } from "../../../core/train/training_state.ts";
import type { PlanText } from "../../output/plan.ts";
import type { Io } from "../../output/io.ts";
import { type Count, formatDuration } from "../../output/progress.ts";
import { formatNumber } from "../../output/table.ts";
import { bytesText, counted, grouped } from "../../output/units.ts";
import { plannedRanks } from "../../ranks/ranks.ts";
import type { TrainPlan } from "./plan.ts";
import { type PreparedRun, prepareRun } from "./prepare.ts";
import { measureRunTime } from "./run_time.ts";

/** Text of `--dry-run`: sizes, memory, and the first row as it will be read; allocates nothing. */
export async function describe(plan: TrainPlan, io: Io): Promise<PlanText> {
  const { values } = plan;
  if (plan.saved) {
    throw new UsageError("`--resume` cannot be combined with `--dry-run`", {
      hints: [
        `see its plan with \`parscale train --config ${values.out}/config.json --out new --dry-run\``,
      ],
    });
  }
  await requireNoRun(values.out, values.overwrite);
  const ranks = plannedRanks(values, io);
  const { world } = ranks;
  using run = await prepareRun(plan, ranks);
  const { source, data, stream, memory, loop, trainer, tokenizer } = run;
  const microBatch = trainer.sizes.batch;
  const count = (specs: readonly { shape: readonly number[] }[]) =>
    specs.reduce((total, { shape }) => total + elementCount(shape), 0);
  const perStep = values.batch * data.tokens;
  const batch = stream.next()!;
  const decode = (ids: Int32Array) => tokenizer ? tokenizer.decode(ids) : ids.join(" ");
  const row = describeRow(batch, 0, decode).map(({ start, length, text }) =>
    `  tokens ${start} to ${start + length - 1}: ${JSON.stringify(text)}`
  );
  const used = batch.used / (batch.filledRows * batch.tokens);
  const { config } = source;
  const time = await measureRunTime(run, batch, world);
  const { total: memoryBytes, runtime, ...sections } = memory;
  const free = run.takesFreeMemory ? memoryInfo().available : Infinity;
  const parts = Object.entries({ ...sections, ...(runtime > 0 && { runtime }) });
  const lines = [
    `model: ${values.model ?? values.configFrom}, ${config.family}, ${
      counted(config.streams, "stream")
    }${config.prefix ? ` of ${counted(config.prefixTokens, "prefix token")}` : ""}`,
    `trained parameters: ${grouped(count(trainer.trained))} of ${
      grouped(count(parameterSpecs(source.config)))
    } in ${counted(trainer.trained.length, "tensor")}`,
    `steps: ${grouped(loop.schedule.steps)}, each ${
      counted(values.batch, "row")
    } of ${data.tokens} tokens, ` +
    `${grouped(perStep)} tokens a step in ${counted(loop.microBatches * world, "micro-batch")}`,
    ...(run.rateReason === undefined ? [] : [`learning rates: ${run.rateReason}`]),
    `data: ${await dataText(values.data)}, ${
      counted(stream.rowsPerEpoch, "row")
    } an epoch, the first batch ${Math.round(100 * used)}% full`,
    ...(data.evalSize
      ? [
        `validation: ${counted(data.evalSize.rows, "row")}, ${
          counted(data.evalSize.tokens, "token")
        }`,
      ]
      : []),
    ...(world === 1 ? [] : [
      `ranks: ${grouped(world)}, each with ${counted(loop.microBatches, "micro-batch")} of ${
        counted(microBatch, "row")
      } a step`,
    ]),
    `memory${world === 1 ? "" : " per rank"}: ${bytesText(memoryBytes)}${
      memoryBytes > free ? `, of which ${bytesText(free)} are free here` : ""
    }, that is`,
    ...parts.map(([name, bytes]) => `  ${name} ${bytesText(bytes)} (${bytes} bytes)`),
    ...(time === undefined ? [] : [
      `time: about ${formatDuration(time.run)}, from one step of ${formatNumber(time.step, 2)} s`,
    ]),
    "first row:",
    ...row,
  ];
  const { steps, warmup, decay } = loop.schedule;
  return {
    lines,
    values: {
      steps,
      warmup,
      "seq-len": data.tokens,
      "micro-batch": microBatch,
      "checkpoint-activations": trainer.recompute,
      "train-params": source.params,
      "lr-prefix": loop.rates.prefix,
      "lr-aggregator": loop.rates.aggregator,
      ...(loop.schedule.kind === "wsd" && { "decay-steps": decay }),
    },
    results: {
      trained_params: count(trainer.trained),
      params: count(parameterSpecs(source.config)),
      steps,
      step_s: time?.step ?? null,
      duration_s: time?.run ?? null,
      ranks: world,
      tokens_per_step: perStep,
      rows_per_epoch: stream.rowsPerEpoch,
      eval_rows: data.evalSize?.rows ?? 0,
      eval_tokens: data.evalSize?.tokens ?? 0,
      memory_bytes: memoryBytes,
      parameter_bytes: memory.parameters,
      gradient_bytes: memory.gradients,
      moment_bytes: memory.moments,
      activation_bytes: memory.activations,
      runtime_bytes: memory.runtime,
    },
  };
}

/** `py/a.py and 175 more, 5.0 MB`: the size is that of files alone. */
async function dataText([first, ...more]: readonly string[]): Promise<string> {
  if (more.length < 3) return [first, ...more].join(" ");
  const files = await Promise.all([first!, ...more].map((path) => statIfExists(path)));
  const bytes = files.reduce((sum, file) => sum + (file?.size ?? 0), 0);
  return `${first} and ${more.length} more${bytes > 0 ? `, ${bytesText(bytes)}` : ""}`;
}

/** A step, or the validation before the first. */
export type MeasuredStep = Pick<StepReport, "step" | "tokens" | "validation"> & Partial<StepReport>;

/** A line of `metrics.jsonl`; `world` is the number of ranks. */
export function metricsRow(step: MeasuredStep, world: number): Record<string, unknown> {
  const { tokensPerSecond: rate } = step;
  return {
    step: step.step,
    tokens: step.tokens,
    loss: step.loss ?? null,
    loss_ema: step.lossEma ?? null,
    grad_norm: step.gradNorm ?? null,
    clip_scale: step.clipScale ?? null,
    lr: step.rates?.backbone ?? null,
    lr_prefix: step.rates?.prefix ?? null,
    lr_aggregator: step.rates?.aggregator ?? null,
    tokens_per_s: rate === undefined ? null : Math.round(rate),
    step_s: step.seconds ?? null,
    data_wait: step.dataWait ?? null,
    eval_loss: step.validation?.loss ?? null,
    stream_weights: step.streamWeights ?? null,
    eval_stream_weights: step.validation?.streamWeights ?? null,
    world,
  };
}

/** The progress line: step, its loss and the smoothed one, rate and time left first; `flops` are of a step. */
export function progressLine(
  { done, total, left }: Count,
  step: StepReport | undefined,
  { source: { params } }: PreparedRun,
  flops: number,
): readonly string[] {
  const at = `step ${done}/${total}`;
  if (!step) return [at];
  const percent = (share: number) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
  return [
    at,
    `loss ${step.loss.toFixed(4)}`,
    `smoothed ${step.lossEma.toFixed(4)}`,
    `${formatNumber(Math.round(step.tokensPerSecond))} tok/s`,
    left,
    `lr ${step.rates[params === "all" ? "backbone" : "prefix"].toExponential(1)}`,
    `grad ${formatNumber(step.gradNorm)}`,
    `${formatNumber(flops / step.seconds / 1e9, 1)} GFLOP/s`,
    `data wait ${percent(step.dataWait)}`,
  ];
}

/** Line before the first step: what is trained, and at which rates. */
export function startText({ source, trainer, loop: { rates } }: PreparedRun): string {
  const groups = groupTensors(trainer.trained);
  const kinds = [...new Set(groups.map(({ rate }) => rate))];
  const trained = groups.reduce((sum, { count }) => sum + count, 0);
  const all = countParameters(source.config).total;
  return `training ${grouped(trained)} of ${grouped(all)} parameters: ` +
    kinds.map((kind) => `${kind} at ${rates[kind]}`).join(", ");
}

/** Share of the floor at which a stream counts as dead. */
const MARGIN = 1.25;
/** Steps over which a stream's weight is averaged before it is tested. */
const PATIENCE = 20;
/** Share of the first loss above which a run counts as diverging. */
const DIVERGED = 1.5;

/**
 * Warns at the step at which a run goes wrong: its loss is far above that of the start, or a stream is
 * hardly used any more, since its weight sits at the floor that ε leaves.
 */
export class RunWatch {
  readonly #averages: number[] = [];
  readonly #warned = new Set<number | "loss">();
  /** The last `MEAN_STEPS` steps. */
  readonly #last: StepReport[] = [];
  #steps = 0;
  /** Loss on the validation data before the first step. */
  #before = 0;

  constructor(readonly io: Io, readonly run: PreparedRun) {}

  /** Takes the validation loss before the first step: a batch may be easier than the rest. */
  start(loss: number): void {
    this.#before = loss;
  }

  /** Takes note of a step. */
  look(step: StepReport): void {
    this.#steps++;
    this.#last.push(step);
    if (this.#last.length > MEAN_STEPS) this.#last.shift();
    const first = Math.max(step.firstLoss, this.#before), loss = meanLoss(this.#last);
    if (this.#last.length === MEAN_STEPS && loss > DIVERGED * first) {
      const message =
        `the mean loss of the last ${MEAN_STEPS} steps is ${loss.toFixed(4)} at step ` +
        `${step.step}, where the run began with ${first.toFixed(4)}`;
      this.#warn("loss", message, lowerRates(this.run));
    }
    step.streamWeights?.forEach((weight, p) => this.#lookAt(p, weight, step));
  }

  /** Says how the streams share the validation data at the end, and warns of one that has next to no share. */
  end(weights: readonly number[] | undefined): void {
    if (weights === undefined) return;
    const { floor, least } = this.#bounds;
    const shares = weights.map((weight, p) => `${p}: ${weight.toFixed(2)}`).join(", ");
    this.io.note(`mean weights of the streams on the validation data: ${shares}`);
    weights.forEach((weight, p) => {
      if (weight > least) return;
      const message = `stream ${p} is hardly used: its mean weight on the validation data is ` +
        `${weight.toFixed(3)}, the least possible is ${floor}`;
      this.#warn(p, message, lowerRate(this.run, "aggregator"));
    });
  }

  #lookAt(p: number, weight: number, { step, lossEma, firstLoss }: StepReport): void {
    const { floor, least } = this.#bounds;
    const average = this.#averages[p] = 0.9 * (this.#averages[p] ?? weight) + 0.1 * weight;
    const isDead = this.#steps >= PATIENCE && average <= least;
    const isDying = weight <= least && lossEma > firstLoss;
    if (!isDead && !isDying) return;
    const mean = (isDying ? weight : average).toFixed(3);
    this.#warn(
      p,
      `stream ${p} is hardly used at step ${step}: its mean weight is ${mean}, the least possible ${floor}`,
      lowerRate(this.run, "aggregator"),
    );
  }

  /** Least possible weight of a stream, as text, and the one up to which a stream counts as dead. */
  get #bounds(): { readonly floor: string; readonly least: number } {
    const { streams, smoothing } = this.run.source.config;
    const floor = (smoothing / streams).toFixed(3);
    return { floor, least: Math.max(smoothing, 0.02) / streams * MARGIN };
  }

  /** Each warning comes once. */
  #warn(what: number | "loss", message: string, rates: string): void {
    if (this.#warned.has(what)) return;
    this.#warned.add(what);
    this.io.warn(message, `start anew with ${rates}`);
  }
}

/** Mean over the tokens of steps. */
function meanLoss(steps: readonly StepReport[]): number {
  const weights = steps.map(({ tokensPerSecond, seconds }) => tokensPerSecond * seconds);
  const sum = steps.reduce((sum, { loss }, i) => sum + loss * weights[i]!, 0);
  return sum / weights.reduce((a, b) => a + b);
}

/** Flags with lower rates for all that is trained. */
function lowerRates(run: PreparedRun): string {
  const { params, config } = run.source;
  if (params === "all") return lowerRate(run, "backbone");
  return (["prefix", "aggregator"] as const).slice(0, config.streams > 1 ? 2 : 1)
    .map((kind) => lowerRate(run, kind)).join(" ");
}

/** Flag with a lower rate: the default, or a third of what was taken where that is less. */
function lowerRate({ source, loop: { rates } }: PreparedRun, kind: RateKind): string {
  const flag = kind === "backbone" ? "--lr" : `--lr-${kind}`;
  const most = kind === "backbone" ? Infinity : defaultRates(source)[kind];
  return `${flag} ${Number(Math.min(most, rates[kind] / 3).toPrecision(1))}`;
}

/** Writes the card of a checkpoint into `path`; it is called by the name of the run's folder. */
export async function writeCard(
  path: string,
  run: PreparedRun,
  plan: TrainPlan,
  state: TrainingState,
  evalLoss: number | undefined,
): Promise<void> {
  const { source } = run;
  const isAdapter = source.params === "introduced";
  const card = await modelCard({
    folder: plan.values.out,
    config: source.config,
    source: source.checkpoint?.files,
    isAdapter,
    backboneSha256: isAdapter ? await source.backboneSha256() : undefined,
    training: trainingLines(run, plan, state),
    evaluation: [
      ...(state.lossEma === undefined ? [] : [`training loss, smoothed: ${fixed(state.lossEma)}`]),
      ...(evalLoss === undefined ? [] : [`validation loss: ${fixed(evalLoss)}`]),
    ],
  });
  writeFile(`${path}/${CARD_FILE}`, card);
}

function trainingLines(
  { source, loop, data, stream }: PreparedRun,
  { values: { batch, seed }, schedule }: TrainPlan,
  { step, tokens }: TrainingState,
): string[] {
  const { backbone, prefix, aggregator } = loop.rates;
  const own = source.params === "introduced"
    ? [`learning rate of prefixes ${prefix}`, `of the aggregator ${aggregator}`]
    : [
      `learning rate ${backbone}`,
      ...(prefix === backbone ? [] : [`of prefixes ${prefix}`]),
      ...(aggregator === backbone ? [] : [`of the aggregator ${aggregator}`]),
    ];
  return [
    `${grouped(step)} of ${
      grouped(loop.schedule.steps)
    } steps of ${batch} rows of ${data.tokens} ` +
    `tokens, ${grouped(tokens)} tokens in all`,
    source.params === "introduced"
      ? "the ParScale parameters alone; the backbone is unchanged"
      : "all parameters",
    `${own.join(", ")}; schedule ${schedule.kind}, seed ${seed}`,
    ...(data.hubData ?? []).map(({ repository, commit }) => `data: ${repository} at ${commit}`),
    `SHA-256 of the tokenized data: \`${stream.fingerprint}\``,
  ];
}

function fixed(loss: number): string {
  return `${loss.toFixed(4)} nats per token`;
}
