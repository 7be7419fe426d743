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
import { KINDS, StateReader } from "./state_reader.ts";
import type { Trainer } from "./trainer.ts";

const TENSORS = "training_state.safetensors", STATE = "training_state.json";
const SCHEMA = "parscale.training_state/1";

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

/** Writes both files into a checkpoint folder; while rank 0 does, all others call `sendState`. */
export async function saveState(
  folder: string,
  trainer: Trainer,
  state: TrainingState,
): Promise<void> {
  const reader = new StateReader(trainer);
  const tensors = trainer.groups.flatMap((arrays) =>
    KINDS.flatMap((kind) =>
      arrays.group.tensors.map(({ name, shape, start }): OutputTensor => ({
        name: `${kind}.${name}`,
        dtype: "f32",
        shape,
        byteLength: elementCount(shape) * 4,
        source: async (first, length) => {
          const from = start + first / 4, to = from + length / 4;
          const part = await reader.read(arrays, kind, from, to);
          return new Uint8Array(part.buffer);
        },
      }))
    )
  );
  await writeSafetensors(`${folder}/${TENSORS}`, tensors);
  reader.close();
  const { step, tokens, lossEma, cursor } = state;
  const json = { schema: SCHEMA, step, tokens, loss_ema: lossEma ?? null, cursor };
  await writeJson(`${folder}/${STATE}`, json);
}

/**
 * Puts the tensors of a checkpoint folder back into a trainer: all values, and of the moments this rank's
 * slice.
 * @throws {DataError} when the folder is damaged or other tensors were trained
 */
export async function loadState(folder: string, trainer: Trainer): Promise<TrainingState> {
  const json = await readJsonObject(`${folder}/${STATE}`);
  const path = `${folder}/${TENSORS}`;
  const { entries } = await readHeader(path);
  const stored = new Map(entries.map((entry) => [entry.name, entry]));
  using file = openFile(path);
  const { device } = trainer;
  for (const arrays of trainer.groups) {
    for (const kind of KINDS) {
      // The range of the group that the array holds.
      const { start: low, count } = kind === "values"
        ? { start: 0, count: arrays.group.count }
        : arrays.slice;
      for (const { name, shape, start } of arrays.group.tensors) {
        const entry = stored.get(`${kind}.${name}`);
        if (entry?.shape.join() !== shape.join()) throw otherTensors(path, name);
        stored.delete(`${kind}.${name}`);
        const from = Math.max(start, low);
        const to = Math.min(start + elementCount(shape), low + count);
        if (from >= to) continue;
        const values = new Float32Array(to - from);
        readExactlySync(
          file,
          path,
          entry.offset + 4 * (from - start),
          new Uint8Array(values.buffer),
        );
        const type = { dtype: "f32", shape: [to - from] } as const;
        device.write(device.view(arrays[kind], from - low, type), values);
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
