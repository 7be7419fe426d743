/**
 * What a checkpoint holds besides the model, so that training goes on as if it had never stopped.
 *
 *     training_state.safetensors   values (in f32), m and v of every trained tensor
 *     training_state.json          step, tokens, smoothed loss, place in the data
 *
 * The model beside it may be rounded to a narrower type and its prefixes folded, hence the values.
 */
import { type JsonObject, readExactlySync, readJsonObject } from "../base/files.ts";
import { openFile } from "../checkpoint/read.ts";
import { readHeader } from "../checkpoint/safetensors.ts";
import { type OutputTensor, writeJson, writeSafetensors } from "../checkpoint/write.ts";
import { DataError } from "../base/errors.ts";
import { elementCount } from "../model/parameters.ts";
import type { GroupTensors } from "./optimizer.ts";
import type { Trainer } from "./trainer.ts";

const TENSORS = "training_state.safetensors", STATE = "training_state.json";
const SCHEMA = "parscale.training_state/1";
const KINDS = ["values", "m", "v"] as const;

/** Where a run stands. */
export interface TrainingState {
  /** Steps taken. */
  step: number;
  /** Tokens read, padding not counted. */
  tokens: number;
  /** Exponential moving average of the loss; undefined before the first step. */
  lossEma: number | undefined;
  /** Where the next batch begins; see `core/data`. */
  cursor: unknown;
}

/** Writes both files into a checkpoint folder. */
export async function saveState(
  folder: string,
  trainer: Trainer,
  state: TrainingState,
): Promise<void> {
  const tensors = trainer.groups.flatMap((arrays) =>
    KINDS.flatMap((kind) =>
      arrays.group.tensors.map((one) => storedPart(trainer, arrays, kind, one))
    )
  );
  await writeSafetensors(`${folder}/${TENSORS}`, tensors);
  const { step, tokens, lossEma, cursor } = state;
  const json = { schema: SCHEMA, step, tokens, loss_ema: lossEma ?? null, cursor };
  await writeJson(`${folder}/${STATE}`, json);
}

function storedPart(
  trainer: Trainer,
  arrays: GroupTensors,
  kind: typeof KINDS[number],
  { name, shape, start }: { name: string; shape: readonly number[]; start: number },
): OutputTensor {
  const array = trainer.device.read(arrays[kind]);
  const part = array.subarray(start, start + elementCount(shape));
  return {
    name: `${kind}.${name}`,
    dtype: "f32",
    shape,
    byteLength: part.length * 4,
    source: (first, length) => {
      const values = Float32Array.from(part.subarray(first / 4, (first + length) / 4));
      return new Uint8Array(values.buffer);
    },
  };
}

/**
 * Puts the tensors of a checkpoint folder back into a trainer.
 * @throws {DataError} when the folder is damaged or other tensors were trained
 */
export async function loadState(folder: string, trainer: Trainer): Promise<TrainingState> {
  const json = await readJsonObject(`${folder}/${STATE}`);
  const path = `${folder}/${TENSORS}`;
  const { entries } = await readHeader(path);
  const stored = new Map(entries.map((entry) => [entry.name, entry]));
  using file = openFile(path);
  for (const arrays of trainer.groups) {
    for (const kind of KINDS) {
      const array = trainer.device.read(arrays[kind]);
      for (const { name, shape, start } of arrays.group.tensors) {
        const entry = stored.get(`${kind}.${name}`);
        if (entry?.shape.join() !== shape.join()) throw otherTensors(path, name);
        stored.delete(`${kind}.${name}`);
        const values = new Float32Array(elementCount(shape));
        readExactlySync(file, path, entry.offset, new Uint8Array(values.buffer));
        array.set(values, start);
      }
    }
  }
  const [surplus] = stored.keys();
  if (surplus) throw otherTensors(path, surplus);
  return parseState(json, `${folder}/${STATE}`);
}

function otherTensors(path: string, name: string): DataError {
  return new DataError(
    `the trained tensors in "${path}" are not those of this run: ${name} differs`,
    { hints: ["resume with the flags the run was started with"] },
  );
}

function parseState(json: JsonObject, path: string): TrainingState {
  const { schema, step, tokens, loss_ema: ema, cursor } = json;
  const whole = (value: unknown): value is number => Number.isSafeInteger(value);
  if (schema !== SCHEMA || !whole(step) || !whole(tokens)) {
    throw new DataError(
      `"${path}" is not a training state: its schema must be ${SCHEMA}, with step and tokens`,
    );
  }
  return { step, tokens, lossEma: typeof ema === "number" ? ema : undefined, cursor };
}
