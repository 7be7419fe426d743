/**
 * Values and moments of all ranks as rank 0 writes them: one after the other, through a buffer of one size.
 *
 * Every rank walks the same ranges in the order of the file. The owner of a range broadcasts it, unless
 * it is rank 0 itself.
 */
import { chunksOf } from "../collective/slices.ts";
import type { DeviceTensor, HostArray } from "../runtime/device.ts";
import type { GroupTensors } from "./optimizer.ts";
import type { Trainer } from "./trainer.ts";

/** Elements that are sent at a time. */
const CHUNK = 2 ** 20;

/** Arrays of a group that are saved, in the order of the file. */
export const KINDS = ["values", "m", "v"] as const;
export type Kind = typeof KINDS[number];

/** Elements `start` to `end` of a group, which one rank holds. */
interface Range {
  readonly arrays: GroupTensors;
  readonly kind: Kind;
  readonly owner: number;
  readonly start: number;
  readonly end: number;
}

/** Ranges in the order of the file; padding is left out. */
function* rangesOf({ groups, collective: { world } }: Trainer, size: number): Generator<Range> {
  for (const arrays of groups) {
    const { group, slice } = arrays;
    for (const kind of KINDS) {
      // Values are whole on every rank, and so are moments that are not sharded.
      const isSliced = kind !== "values" && slice.count < group.count;
      for (let owner = 0; owner < (isSliced ? world : 1); owner++) {
        const low = isSliced ? owner * slice.count : 0;
        const count = isSliced ? Math.min(slice.count, group.count - low) : group.count;
        for (const chunk of chunksOf(count, size)) {
          const start = low + chunk.start;
          yield { arrays, kind, owner, start, end: start + chunk.count };
        }
      }
    }
  }
}

/** Takes part, as a rank other than 0, in the saving of a state. */
export async function sendState(trainer: Trainer, chunk = CHUNK): Promise<void> {
  const exchange = new Exchange(trainer, chunk);
  for (const range of rangesOf(trainer, chunk)) {
    if (range.owner !== 0) await exchange.fetch(range);
  }
  exchange.close();
}

/** Reads everything from front to back on rank 0. */
export class StateReader {
  readonly #trainer: Trainer;
  readonly #ranges: Generator<Range>;
  readonly #exchange: Exchange;
  #range: Range | undefined;
  #data: HostArray = new Float32Array();

  constructor(trainer: Trainer, chunk = CHUNK) {
    this.#trainer = trainer;
    this.#ranges = rangesOf(trainer, chunk);
    this.#exchange = new Exchange(trainer, chunk);
  }

  /** Elements `from` to `to` of a group's array, which follow those read before. */
  async read(
    arrays: GroupTensors,
    kind: Kind,
    from: number,
    to: number,
  ): Promise<Float32Array<ArrayBuffer>> {
    const result = new Float32Array(to - from);
    for (let at = from; at < to;) {
      while (!this.#covers(arrays, kind, at)) await this.#next();
      const { start, end } = this.#range!;
      const count = Math.min(end, to) - at;
      result.set(this.#data.subarray(at - start, at - start + count), at - from);
      at += count;
    }
    return result;
  }

  #covers(arrays: GroupTensors, kind: Kind, at: number): boolean {
    const range = this.#range;
    return range?.arrays === arrays && range.kind === kind && at < range.end;
  }

  /** Returns the buffer. */
  close(): void {
    this.#exchange.close();
  }

  async #next(): Promise<void> {
    const { value, done } = this.#ranges.next();
    if (done) throw new RangeError("cannot read the state: it is read from front to back");
    this.#range = value;
    this.#data = this.#trainer.device.read(await this.#exchange.fetch(value));
  }
}

/** Brings ranges of other ranks to rank 0. */
class Exchange {
  readonly #trainer: Trainer;
  readonly #size: number;
  #buffer: DeviceTensor | undefined;

  constructor(trainer: Trainer, size: number) {
    [this.#trainer, this.#size] = [trainer, size];
  }

  /** The elements of a range, on its owner and on rank 0. */
  async fetch({ arrays, kind, owner, start, end }: Range): Promise<DeviceTensor> {
    const { device, collective } = this.#trainer;
    const type = { dtype: "f32", shape: [end - start] } as const;
    const tensor = owner === collective.rank
      ? device.view(arrays[kind], start - (kind === "values" ? 0 : arrays.slice.start), type)
      : device.view(this.#scratch(), 0, type);
    if (owner !== 0) await collective.broadcast(tensor, owner);
    return tensor;
  }

  #scratch(): DeviceTensor {
    return this.#buffer ??= this.#trainer.device.allocate({ dtype: "f32", shape: [this.#size] });
  }

  /** Returns the buffer; what was fetched may not be read any more. */
  close(): void {
    if (this.#buffer) this.#trainer.device.free?.(this.#buffer);
    this.#buffer = undefined;
  }
}
