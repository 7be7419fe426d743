/** The model card in a checkpoint of a run. */
import { CARD_FILE, modelCard } from "../../../core/checkpoint/model_card.ts";
import { writeText } from "../../../core/checkpoint/write.ts";
import type { TrainingState } from "../../../core/train/training_state.ts";
import { grouped } from "../../output/units.ts";
import type { TrainValues } from "./flags.ts";
import type { PreparedRun } from "./open_run.ts";

/** Writes the card of a checkpoint into `path`; it is called by the name of the run's folder. */
export async function writeCard(
  path: string,
  run: PreparedRun,
  values: TrainValues,
  state: TrainingState,
  evalLoss: number | undefined,
): Promise<void> {
  const { source } = run;
  const isAdapter = values.trainParams === "introduced";
  const card = modelCard({
    folder: values.out,
    config: source.config,
    source: source.checkpoint && source.directory,
    isAdapter,
    backboneSha256: isAdapter ? await source.backboneSha256() : undefined,
    training: trainingLines(run, values, state),
    evaluation: [
      ...(state.lossEma === undefined ? [] : [`training loss, smoothed: ${fixed(state.lossEma)}`]),
      ...(evalLoss === undefined ? [] : [`validation loss: ${fixed(evalLoss)}`]),
    ],
  });
  await writeText(`${path}/${CARD_FILE}`, card);
}

function trainingLines(
  { loop, data }: PreparedRun,
  values: TrainValues,
  { step, tokens }: TrainingState,
): string[] {
  const { batch, seqLen, lr, lrPrefix, lrAggregator, schedule, seed, trainParams } = values;
  const rates = [
    `learning rate ${lr}`,
    ...(lrPrefix === undefined ? [] : [`of prefixes ${lrPrefix}`]),
    ...(lrAggregator === undefined ? [] : [`of the aggregator ${lrAggregator}`]),
  ];
  return [
    `${grouped(step)} of ${grouped(loop.schedule.steps)} steps of ${batch} rows of ${seqLen} ` +
    `tokens, ${grouped(tokens)} tokens in all`,
    trainParams === "introduced"
      ? "the ParScale parameters alone; the backbone is unchanged"
      : "all parameters",
    `${rates.join(", ")}; schedule ${schedule}, seed ${seed}`,
    ...(data.hubData ?? []).map(({ repository, commit }) => `data: ${repository} at ${commit}`),
    `SHA-256 of the tokenized data: \`${data.stream.fingerprint}\``,
  ];
}

function fixed(loss: number): string {
  return `${loss.toFixed(4)} nats per token`;
}
