/** Before the first step all ranks compare what they were started with. */
import { hashNumber, requireSame } from "../../../core/collective/agreement.ts";
import { chunksOf } from "../../../core/collective/slices.ts";
import { parameterSpecs } from "../../../core/model/parameters.ts";
import type { Trainer } from "../../../core/train/trainer.ts";
import { VERSION } from "../../framework/version.ts";
import type { TrainValues } from "./flags.ts";
import type { PreparedRun } from "./open_run.ts";

/** Elements hashed at a time. */
const CHUNK = 2 ** 22;

/** May differ from rank to rank: they do not enter the result. */
const FREE = new Set(
  ["threads", "quiet", "verbose", "format", "color", "progress", "memoryLimit", "distTimeout"],
);

/**
 * Compares version, flags, data and weights with those of rank 0.
 * @throws {RanksDifferError} on every rank, with the first that differs
 */
export async function compareRanks(
  run: PreparedRun,
  trainer: Trainer,
  values: TrainValues,
): Promise<void> {
  const { collective } = trainer;
  if (collective.world === 1) return;
  const flags = Object.entries(values).filter(([name]) => !FREE.has(name));
  const { fingerprint, cursor } = run.data.stream;
  await requireSame(collective, {
    version: hashNumber([VERSION]),
    flags: hashNumber([JSON.stringify(flags)]),
    data: hashNumber([fingerprint, run.data.evalFingerprint ?? "", JSON.stringify(cursor)]),
    weights: hashNumber(weightsOf(run, trainer)),
  });
}

/** Bytes of all weights: those that learn, then the others. */
function* weightsOf({ source }: PreparedRun, trainer: Trainer): Generator<Uint8Array> {
  const learned = new Set<string>();
  for (const { group, values } of trainer.groups) {
    for (const { name } of group.tensors) learned.add(name);
    for (const { start, count } of chunksOf(group.count, CHUNK)) {
      const view = trainer.device.view(values, start, { dtype: "f32", shape: [count] });
      yield bytesOf(trainer.device.read(view));
    }
  }
  for (const { name } of parameterSpecs(source.config)) {
    if (!learned.has(name) && trainer.has(name)) yield bytesOf(trainer.values(name));
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);
}
