/**
 * Event files that TensorBoard reads: one scalar per record.
 *
 * Takes a folder, then tag, step and value of each number; returns a file
 * `events.out.tfevents.<seconds>.parscale` of TFRecords, each an `Event` protocol buffer. A record
 * goes to the system in one write, so a run that is killed leaves a file that can be read to its
 * end. TFRecord's checksums are CRC-32C, not the CRC-32 of zip files, rotated and with a constant
 * added, since a checksum of data that holds checksums is a weak one.
 */
import { EnvironmentError } from "../base/errors.ts";
import { Message } from "../base/protobuf.ts";
import { writeAllSync } from "../base/write_all.ts";

/** Source of the time. */
export interface EventWriterOptions {
  /** Milliseconds since 1970, as `Date.now`, which is the default. */
  readonly now?: () => number;
}

/** Writes one event file. */
export class EventWriter implements Disposable {
  /** The file it writes. */
  readonly path: string;
  readonly #file: Deno.FsFile;
  readonly #now: () => number;

  /** Starts a new file in `folder`, which is made when missing. */
  constructor(folder: string, { now = Date.now }: EventWriterOptions = {}) {
    this.#now = now;
    [this.path, this.#file] = createFile(folder, Math.floor(now() / 1000));
    // Readers take a file without this first record for one of an older layout.
    this.#write(this.#event().bytes(FILE_VERSION, "brain.Event:2"));
  }

  /** Adds a value; any float is allowed, and TensorBoard marks those that are not finite. */
  scalar(tag: string, step: number, value: number): void {
    if (!(Number.isSafeInteger(step) && step >= 0)) throw new RangeError(`no step ${step}`);
    const pair = new Message().bytes(TAG, tag).float(SIMPLE_VALUE, value);
    const summary = new Message().bytes(SUMMARY_VALUE, pair);
    this.#write(this.#event().integer(STEP, step).bytes(SUMMARY, summary));
  }

  [Symbol.dispose](): void {
    this.#file.close();
  }

  #event(): Message {
    return new Message().double(WALL_TIME, this.#now() / 1000);
  }

  #write(event: Message): void {
    writeAllSync(this.#file, record(event.finish()));
  }
}

/** A file that did not exist: a restart within a second takes the next second's name. */
function createFile(folder: string, seconds: number): [path: string, file: Deno.FsFile] {
  try {
    Deno.mkdirSync(folder, { recursive: true });
    for (;; seconds++) {
      const path = `${folder}/events.out.tfevents.${seconds}.parscale`;
      try {
        return [path, Deno.openSync(path, { write: true, createNew: true })];
      } catch (error) {
        if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
      }
    }
  } catch (cause) {
    throw new EnvironmentError(`cannot write training events in "${folder}"`, { cause });
  }
}

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
const WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5;
const SUMMARY_VALUE = 1;
const TAG = 1, SIMPLE_VALUE = 2;

/** TFRecord: length (64 bits), its checksum, data, its checksum. */
function record(data: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(8 + 4 + data.length + 4), view = new DataView(bytes.buffer);
  view.setBigUint64(0, BigInt(data.length), true);
  view.setUint32(8, masked(crc32c(bytes.subarray(0, 8))), true);
  bytes.set(data, 12);
  view.setUint32(12 + data.length, masked(crc32c(data)), true);
  return bytes;
}

function masked(crc: number): number {
  return ((crc >>> 15 | crc << 17) + 0xa282ead8) >>> 0;
}

/** CRC-32C by byte: the Castagnoli polynomial, reflected. */
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? byte >>> 1 ^ 0x82f63b78 : byte >>> 1;
  return byte;
});

/** CRC-32C (Castagnoli) of bytes, as an unsigned number. */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 0xff]! ^ crc >>> 8;
  return (crc ^ 0xffffffff) >>> 0;
}
