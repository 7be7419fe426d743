/**
 * State of a checkpoint besides the model, so that training resumes as if it had never stopped.
 *
 *     training_state.safetensors   values (in f32), m and v of every trained tensor
 *     training_state.json          step, tokens, smoothed and first loss, place in the data
 *
 * The model beside it may be rounded to a narrower type and its prefixes folded, hence the values.
 */
import { DataError } from "../base/errors.ts";
import {
  type JsonObject,
  openRegularFile,
  readExactlySync,
  readJsonObject,
} from "../base/files.ts";
import { readHeader } from "../checkpoint/safetensors.ts";
import { type OutputTensor, writeSafetensors } from "../checkpoint/write.ts";
import { writeJson } from "../storage/write_file.ts";
import { chunksOf } from "../collective/collective.ts";
import { elementCount } from "../model/parameters.ts";
import type { Device, DeviceTensor, HostArray } from "../runtime/device.ts";
import type { Trainer } from "./trainer.ts";

const TENSORS = "training_state.safetensors", STATE = "training_state.json";
const SCHEMA = "parscale.training_state/1";

/** Arrays of a group that are saved, in the order of the file. */
const KINDS = ["values", "m", "v"] as const;

/** Elements that are read from the device at a time. */
const CHUNK = 2 ** 20;

/** Progress of a run. */
export interface TrainingState {
  /** Steps taken. */
  step: number;
  /** Tokens read, padding not counted. */
  tokens: number;
  /** Exponential moving average of the loss over tokens; undefined before the first step. */
  lossEma: number | undefined;
  /** Tokens that it averages over, those of earlier steps decayed. */
  emaTokens: number;
  /** Mean loss of the first steps; undefined before them. */
  firstLoss: number | undefined;
  /** Position of the next batch; see `core/data`. */
  cursor: unknown;
}

/**
 * Writes both files into a checkpoint folder. All processes call it; the primary one names the folder, and
 * it alone writes.
 */
export async function saveState(
  folder: string | undefined,
  trainer: Trainer,
  state: TrainingState,
): Promise<void> {
  const parts = partsOf(trainer);
  if (folder === undefined) return void await Array.fromAsync(parts);
  const next = inOrder(trainer.device, parts);
  const tensors = trainer.groups.flatMap(({ group }) =>
    KINDS.flatMap((kind) =>
      group.tensors.map(({ name, shape }): OutputTensor => ({
        name: `${kind}.${name}`,
        dtype: "f32",
        shape,
        byteLength: elementCount(shape) * 4,
        source: async (_, length) => new Uint8Array((await next(length / 4)).buffer),
      }))
    )
  );
  await writeSafetensors(`${folder}/${TENSORS}`, tensors);
  await parts.return();
  const { step, tokens, lossEma = null, emaTokens, firstLoss = null, cursor } = state;
  const losses = { loss_ema: lossEma, ema_tokens: emaTokens, first_loss: firstLoss };
  writeJson(`${folder}/${STATE}`, { schema: SCHEMA, step, tokens, ...losses, cursor });
}

/** Values and moments in the order of the file, those of all processes, in parts of at most `CHUNK`. */
async function* partsOf(
  { groups, device, collective }: Trainer,
): AsyncGenerator<DeviceTensor, void> {
  const size = device.traits.partialViews ? CHUNK : Infinity;
  function* chunks(tensor: DeviceTensor, elements: number) {
    for (const { start, count } of chunksOf(elements, size)) {
      yield device.view(tensor, start, { dtype: "f32", shape: [count] });
    }
  }
  for (const { group, values, m, v } of groups) {
    yield* chunks(values, group.count);
    for (const moments of [m, v]) {
      for await (const part of collective.parts(moments, group.count)) {
        yield* chunks(part, elementCount(part.shape));
      }
    }
  }
}

/** Reads the elements of parts one after the other, any number at a time. */
function inOrder(device: Device, parts: AsyncIterator<DeviceTensor, void>) {
  let data: HostArray = new Float32Array();
  return async (count: number): Promise<Float32Array<ArrayBuffer>> => {
    const result = new Float32Array(count);
    for (let filled = 0; filled < count;) {
      if (data.length === 0) {
        const { value } = await parts.next();
        data = device.read(value!);
      }
      const own = data.subarray(0, count - filled);
      result.set(own, filled);
      filled += own.length;
      data = data.subarray(own.length);
    }
    return result;
  };
}

/**
 * Puts the tensors of a checkpoint folder back into a trainer: all values, and of the moments the slice of
 * this process.
 * @throws {DataError} when the folder is damaged or other tensors were trained
 */
export async function loadState(folder: string, trainer: Trainer): Promise<TrainingState> {
  const json = await readJsonObject(`${folder}/${STATE}`);
  const path = `${folder}/${TENSORS}`;
  const entries = await readHeader(path);
  const stored = new Map(entries.map((entry) => [entry.name, entry]));
  using file = openRegularFile(path);
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
  const { schema, step, tokens, loss_ema, ema_tokens, first_loss, cursor } = json;
  const whole = (value: unknown): value is number =>
    Number.isSafeInteger(value) && Number(value) >= 0;
  if (schema !== SCHEMA || !whole(step) || !whole(tokens)) {
    throw new DataError(
      `"${path}" is not a training state: its schema must be ${SCHEMA}, with step and tokens`,
    );
  }
  const number = (value: unknown) => typeof value === "number" ? value : undefined;
  return {
    step,
    tokens,
    lossEma: number(loss_ema),
    emaTokens: number(ema_tokens) ?? 0,
    firstLoss: number(first_loss),
    cursor,
  };
}
