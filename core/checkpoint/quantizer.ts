/**
 * Quantizes the matrices of a checkpoint, a few batches of rows ahead of what writes them.
 *
 * Matrices of a large model are quantized by threads that read the files themselves; the writer only
 * puts their codes together.
 */
import { ELEMENT_BYTES, findNonFinite } from "../base/dtype.ts";
import { joinBytes, openRegularFile, readExactlySync } from "../base/files.ts";
import { usableCores } from "../base/platform/mod.ts";
import { fromRow, packing, type Quantized, type QuantizedFormat, roomFor } from "../quant/codes.ts";
import { quantizeRows, type ReadBytes, readsFrom } from "../quant/stored.ts";
import { Thread } from "../base/thread.ts";
import { elementCount } from "../model/parameters.ts";
import type { StoredTensor } from "./open.ts";
import { partNames, partShapes } from "./quantization.ts";
import { finitePart } from "./read.ts";
import type { ByteGenerator, OutputTensor } from "./write.ts";

/** Elements of a batch: enough that messages between threads cost little beside them. */
const BATCH_ELEMENTS = 1 << 20;

/** Elements read and quantized at a time: few enough for a core's own cache. */
const STEP_ELEMENTS = 1 << 17;

/** Elements below which starting threads would take longer than quantizing. */
const LEAST_ELEMENTS = 1 << 25;

/** Batches under way: while a thread makes one, the next waits for it. */
const BATCHES_PER_THREAD = 3;

/** Some rows of a matrix. */
export interface RowBatch {
  readonly tensor: StoredTensor;
  readonly format: QuantizedFormat;
  readonly first: number;
  readonly count: number;
}

/**
 * Codes and scales of rows.
 * @throws {NumericalError} for a weight that is NaN or infinite
 */
export function quantizeBatch({ tensor, format, first, count }: RowBatch): Quantized {
  const columns = tensor.shape[1]!;
  const shape = [count, columns], packed = packing(shape, format);
  const made = roomFor(shape, format);
  using file = openRegularFile(tensor.path);
  const read = tensor.encoding ? readsFrom(file, tensor.path) : readsAgain(file, tensor.path);
  const step = Math.max(1, Math.floor(STEP_ELEMENTS / columns));
  for (let row = 0; row < count; row += step) {
    const rows = { first: first + row, count: Math.min(step, count - row) };
    quantizeRows(tensor, rows, format, fromRow(made, row, packed), read);
  }
  if (findNonFinite(new Uint8Array(made.scales.buffer), "f32") !== -1) {
    const size = columns * ELEMENT_BYTES[tensor.dtype];
    finitePart(tensor, first * size, count * size); // names the element
  }
  return made;
}

/** Reads into the same memory every time. */
function readsAgain(file: Deno.FsFile, path: string): ReadBytes {
  let memory = new Uint8Array(0);
  return (offset, length) => {
    if (length > memory.length) memory = new Uint8Array(length);
    const bytes = memory.subarray(0, length);
    readExactlySync(file, path, offset, bytes);
    return bytes;
  };
}

/** Codes and scales of matrices as tensors to be written once, in their order; dispose of it after that. */
export class Quantizer implements Disposable {
  readonly tensors: readonly OutputTensor[];
  readonly #batches: Iterator<RowBatch>;
  readonly #isLarge: boolean;
  readonly #made: Promise<Quantized>[] = [];
  #threads: readonly Thread<RowBatch, Quantized>[] = [];

  constructor(matrices: readonly StoredTensor[], format: QuantizedFormat) {
    const elements = matrices.reduce((sum, { shape }) => sum + elementCount(shape), 0);
    this.#isLarge = elements >= LEAST_ELEMENTS;
    this.#batches = batchesOf(matrices, format);
    this.tensors = matrices.flatMap((tensor) => this.#parts(tensor, format));
  }

  [Symbol.dispose](): void {
    for (const thread of this.#threads) thread.end();
  }

  #parts(tensor: StoredTensor, format: QuantizedFormat): OutputTensor[] {
    const names = partNames(tensor.name), shapes = partShapes(tensor.shape, format);
    const scales: Uint8Array[] = [];
    let codes = new Uint8Array(0), whole: Uint8Array<ArrayBuffer> | undefined;
    const nextCodes: ByteGenerator = async (_, length) => {
      const piece = new Uint8Array(length);
      for (let filled = 0; filled < length;) {
        if (codes.length === 0) {
          const batch = await this.#next();
          codes = batch.codes as Uint8Array<ArrayBuffer>;
          scales.push(new Uint8Array(batch.scales.buffer));
        }
        const part = codes.subarray(0, length - filled);
        piece.set(part, filled);
        filled += part.length;
        codes = codes.subarray(part.length);
      }
      return piece;
    };
    const nextScales: ByteGenerator = (start, length) => {
      whole ??= joinBytes(scales.splice(0));
      const piece = whole.subarray(start, start + length);
      if (start + length === whole.length) whole = undefined; // given once
      return piece;
    };
    return [
      {
        name: names.codes,
        dtype: "u8",
        shape: shapes.codes,
        byteLength: elementCount(shapes.codes),
        source: nextCodes,
      },
      {
        name: names.scales,
        dtype: "f32",
        shape: shapes.scales,
        byteLength: 4 * elementCount(shapes.scales),
        source: nextScales,
      },
    ];
  }

  /** The next batch of all, with others begun behind it. */
  #next(): Promise<Quantized> {
    if (this.#isLarge && this.#threads.length === 0) this.#start();
    const ahead = Math.max(1, BATCHES_PER_THREAD * this.#threads.length);
    while (this.#made.length < ahead) {
      const { value, done } = this.#batches.next();
      if (done) break;
      const made = this.#quantize(value);
      made.catch(() => {}); // a failure is told by the batch that the writer comes to first
      this.#made.push(made);
    }
    return this.#made.shift()!;
  }

  #start(): void {
    const worker = new URL("./quantize_worker.ts", import.meta.url);
    this.#threads = Array.from(
      { length: usableCores() },
      () => new Thread<RowBatch, Quantized>(worker, "quantize worker"),
    );
  }

  async #quantize(batch: RowBatch): Promise<Quantized> {
    const [thread] = this.#threads.toSorted((a, b) => a.waiting - b.waiting);
    return thread ? await thread.ask(batch) : quantizeBatch(batch);
  }
}

function* batchesOf(
  matrices: readonly StoredTensor[],
  format: QuantizedFormat,
): Generator<RowBatch, undefined> {
  for (const tensor of matrices) {
    const [rows, columns] = tensor.shape as [number, number];
    const step = Math.max(1, Math.floor(BATCH_ELEMENTS / columns));
    for (let first = 0; first < rows; first += step) {
      yield { tensor, format, first, count: Math.min(step, rows - first) };
    }
  }
}
