/** What `parscale train --dry-run` prints: sizes, memory, and the first row as it will be read. */
import { describeRow } from "../../../core/data/batches.ts";
import { elementCount, parameterSpecs } from "../../../core/model/parameters.ts";
import { UsageError } from "../../../core/base/errors.ts";
import type { PlanText } from "../../framework/command.ts";
import type { Io } from "../../output/io.ts";
import { bytesText, counted, grouped } from "../../output/units.ts";
import { prepareRun } from "./open_run.ts";
import { plannedRanks } from "./ranks.ts";
import type { TrainValues } from "./flags.ts";

/** Opens everything but allocates nothing. */
export async function describe(values: TrainValues, io: Io): Promise<PlanText> {
  if (values.resume) {
    throw new UsageError(
      "`--resume` cannot be combined with `--dry-run`",
      {
        hints: [
          `see its plan with \`parscale train --config ${values.out}/config.json --dry-run\``,
        ],
      },
    );
  }
  const ranks = plannedRanks(values, io);
  const { world } = ranks;
  using run = await prepareRun(values, ranks);
  const { source, data, memory, loop, trainer, tokenizer } = run;
  const microBatch = trainer.sizes.batch;
  const count = (specs: readonly { shape: readonly number[] }[]) =>
    specs.reduce((total, { shape }) => total + elementCount(shape), 0);
  const perStep = values.batch * data.tokens;
  const batch = data.stream.next()!;
  const decode = (ids: Int32Array) => tokenizer ? tokenizer.decode(ids) : ids.join(" ");
  const row = describeRow(batch, 0, decode).map(({ start, length, text }) =>
    `  slots ${start} to ${start + length - 1}: ${JSON.stringify(text)}`
  );
  const used = batch.used / (batch.filledRows * batch.tokens);
  const lines = [
    `trained parameters: ${grouped(count(trainer.trained))} of ${
      grouped(count(parameterSpecs(source.config)))
    } in ${counted(trainer.trained.length, "tensor")}`,
    `steps: ${grouped(loop.schedule.steps)} of ${values.batch} rows of ${data.tokens} tokens, ` +
    `${grouped(perStep)} tokens a step in ${
      counted(loop.microBatches * world, "micro-batch")
        .replace("micro-batchs", "micro-batches")
    }`,
    `data: ${counted(data.stream.rowsPerEpoch, "row")} an epoch, the first batch ${
      Math.round(100 * used)
    }% full`,
    ...(world === 1 ? [] : [
      `ranks: ${grouped(world)}, each with ${
        counted(loop.microBatches, "micro-batch")
          .replace("micro-batchs", "micro-batches")
      } of ${counted(microBatch, "row")} a step`,
    ]),
    `memory${world === 1 ? "" : " per rank"}: ${bytesText(memory.total)}, that is`,
    `  parameters ${bytesText(memory.parameters)} (${memory.parameters} bytes)`,
    `  gradients ${bytesText(memory.gradients)} (${memory.gradients} bytes)`,
    `  moments ${bytesText(memory.moments)} (${memory.moments} bytes)`,
    `  activations ${bytesText(memory.activations)} (${memory.activations} bytes)`,
    ...(memory.runtime === 0
      ? []
      : [`  runtime ${bytesText(memory.runtime)} (${memory.runtime} bytes)`]),
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
      "lr-prefix": loop.rates.prefix,
      "lr-aggregator": loop.rates.aggregator,
      ...(loop.schedule.kind === "wsd" && { "decay-steps": decay }),
    },
    results: {
      trained_params: count(trainer.trained),
      params: count(parameterSpecs(source.config)),
      steps,
      ranks: world,
      tokens_per_step: perStep,
      rows_per_epoch: data.stream.rowsPerEpoch,
      memory_bytes: memory.total,
      parameter_bytes: memory.parameters,
      gradient_bytes: memory.gradients,
      moment_bytes: memory.moments,
      activation_bytes: memory.activations,
      runtime_bytes: memory.runtime,
    },
  };
}
