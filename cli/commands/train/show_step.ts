/** What is shown and recorded of each step. */
import type { StepReport } from "../../../core/train/loop.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import type { Io } from "../../output/io.ts";
import type { Count } from "../../output/progress.ts";
import { formatNumber } from "../../output/table.ts";

/** A line of `metrics.jsonl`; `world` is the number of ranks. */
export function metricsRow(step: StepReport, world: number): Record<string, unknown> {
  return {
    step: step.step,
    tokens: step.tokens,
    loss: step.loss,
    loss_ema: step.lossEma,
    grad_norm: step.gradNorm,
    clip_scale: step.clipScale,
    lr: step.rates.backbone,
    lr_prefix: step.rates.prefix,
    lr_aggregator: step.rates.aggregator,
    tokens_per_s: Math.round(step.tokensPerSecond),
    step_s: step.seconds,
    data_wait: step.dataWait,
    eval_loss: step.evalLoss ?? null,
    stream_weights: step.streamWeights ?? null,
    world,
  };
}

/**
 * The progress line: step, loss, rate and time left first. `peakSeconds` is what the arithmetic of a
 * step takes at the rate of a large matrix product here.
 */
export function progressLine(
  { done, total, left }: Count,
  step: StepReport | undefined,
  evalLoss: number | undefined,
  peakSeconds: number,
): string {
  const at = `step ${done}/${total}`;
  if (!step) return at;
  const percent = (share: number) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
  const parts = [
    at,
    `loss ${step.lossEma.toFixed(4)}`,
    `${formatNumber(Math.round(step.tokensPerSecond))} tok/s`,
    left,
    evalLoss === undefined ? "" : `eval ${evalLoss.toFixed(4)}`,
    `lr ${step.rates.backbone.toExponential(1)}`,
    `grad ${formatNumber(step.gradNorm)}`,
    `${percent(peakSeconds / step.seconds)} of GEMM peak`,
    `data wait ${percent(step.dataWait)}`,
  ];
  return parts.filter((part) => part !== "").join(", ");
}

/** Share of the floor at which a stream counts as dead. */
const MARGIN = 1.25;
/** Steps over which a stream's weight is averaged before it is judged. */
const PATIENCE = 20;

/** Warns when a stream is hardly used any more: its weight sits at the floor that ε leaves. */
export class StreamWatch {
  readonly #averages: number[] = [];
  readonly #warned = new Set<number>();
  #steps = 0;

  constructor(readonly io: Io, readonly config: ModelConfig) {}

  /** Takes note of a step. */
  look({ step, streamWeights }: StepReport): void {
    if (!streamWeights) return;
    this.#steps++;
    const { streams, smoothing } = this.config;
    const floor = Math.max(smoothing, 0.02) / streams;
    streamWeights.forEach((weight, p) => {
      const average = this.#averages[p] = 0.9 * (this.#averages[p] ?? weight) + 0.1 * weight;
      if (this.#steps < PATIENCE || average > floor * MARGIN || this.#warned.has(p)) return;
      this.#warned.add(p);
      const least = (smoothing / streams).toFixed(3);
      this.io.warn(
        `stream ${p} is hardly used at step ${step}: its mean weight is ${average.toFixed(3)}, ` +
          `the least possible ${least}`,
        "lower --lr-aggregator, or raise --lr-prefix",
      );
    });
  }
}
