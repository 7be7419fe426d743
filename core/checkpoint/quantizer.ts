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
import { type MatrixPart, partsOf } from "./quantization.ts";
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

/** A matrix and the format that it is to have. */
export interface Matrix {
  readonly tensor: StoredTensor;
  readonly format: QuantizedFormat;
}

/** Makes room for codes of a shape and format. */
export type Rooms = typeof roomFor;

/** Some rows of a matrix. */
export interface RowBatch extends Matrix {
  readonly first: number;
  readonly count: number;
}

/**
 * Codes and scales of rows, in the memory that `room` returns.
 * @throws {NumericalError} for a weight that is NaN or infinite
 */
export function quantizeBatch(
  { tensor, format, first, count }: RowBatch,
  room: Rooms = roomFor,
): Quantized {
  const columns = tensor.shape[1]!;
  const shape = [count, columns], packed = packing(shape, format);
  const made = room(shape, format);
  using file = openRegularFile(tensor.path);
  // Rows of interleaved halves are joined of several reads.
  const reads = tensor.encoding?.headDim === undefined ? readsAgain : readsFrom;
  const read = reads(file, tensor.path);
  const step = Math.max(1, Math.floor(STEP_ELEMENTS / columns));
  for (let row = 0; row < count; row += step) {
    const rows = { first: first + row, count: Math.min(step, count - row) };
    quantizeRows(tensor, rows, format, fromRow(made, row, packed), read);
  }
  const { scales, offsets = scales } = made;
  if ([scales, offsets].some(({ buffer }) => findNonFinite(new Uint8Array(buffer), "f32") !== -1)) {
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

/** Codes, scales and offsets of matrices as tensors to be written once, in their order; dispose of it after that. */
export class Quantizer implements Disposable {
  readonly tensors: readonly OutputTensor[];
  readonly #batches: Iterator<RowBatch>;
  readonly #made: Promise<Quantized>[] = [];
  #threads: readonly Thread<RowBatch, Quantized>[] | undefined;

  constructor(private readonly matrices: readonly Matrix[]) {
    this.#batches = batchesOf(matrices);
    this.tensors = matrices.flatMap((matrix) => this.#parts(matrix));
  }

  [Symbol.dispose](): void {
    for (const thread of this.#threads ?? []) thread.end();
  }

  #parts({ tensor, format }: Matrix): OutputTensor[] {
    const numbers = { scales: [] as Uint8Array[], offsets: [] as Uint8Array[] };
    let codes = new Uint8Array(0);
    const nextCodes: ByteGenerator = async (_, length) => {
      const piece = new Uint8Array(length);
      for (let filled = 0; filled < length;) {
        if (codes.length === 0) {
          const { scales, offsets, ...batch } = await this.#next();
          codes = batch.codes as Uint8Array<ArrayBuffer>;
          numbers.scales.push(new Uint8Array(scales.buffer));
          if (offsets) numbers.offsets.push(new Uint8Array(offsets.buffer));
        }
        const part = codes.subarray(0, length - filled);
        piece.set(part, filled);
        filled += part.length;
        codes = codes.subarray(part.length);
      }
      return piece;
    };
    const sourceOf = ({ kind }: MatrixPart) =>
      kind === "codes" ? nextCodes : givenOnce(numbers[kind]);
    return partsOf({ ...tensor, format }).map((part) => ({ ...part, source: sourceOf(part) }));
  }

  /** The next batch of all, with others begun after it. */
  #next(): Promise<Quantized> {
    this.#threads ??= startThreads(this.matrices);
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

  async #quantize(batch: RowBatch): Promise<Quantized> {
    const [thread] = this.#threads!.toSorted((a, b) => a.waiting - b.waiting);
    return thread ? await thread.ask(batch) : quantizeBatch(batch);
  }
}

/** Threads for the batches of matrices, which may write into a folder; none where there is little to do. */
export function startThreads<Answer>(
  matrices: readonly Matrix[],
  folder?: string,
): Thread<RowBatch, Answer>[] {
  const elements = matrices.reduce((sum, { tensor }) => sum + elementCount(tensor.shape), 0);
  const worker = new URL("./quantize_worker.ts", import.meta.url);
  const length = elements < LEAST_ELEMENTS ? 0 : usableCores();
  return Array.from({ length }, () => new Thread(worker, "quantize worker", folder));
}

/** The bytes of some arrays, joined when they are asked for and forgotten after the last. */
function givenOnce(arrays: Uint8Array[]): ByteGenerator {
  let whole: Uint8Array<ArrayBuffer> | undefined;
  return (start, length) => {
    whole ??= joinBytes(arrays.splice(0));
    const piece = whole.subarray(start, start + length);
    if (start + length === whole.length) whole = undefined;
    return piece;
  };
}

/** The rows of matrices in order, in batches of at most `elements` elements (at least one row). */
export function* batchesOf(
  matrices: readonly Matrix[],
  elements = BATCH_ELEMENTS,
): Generator<RowBatch, undefined> {
  for (const { tensor, format } of matrices) {
    const [rows, columns] = tensor.shape as [number, number];
    const step = Math.max(1, Math.floor(elements / columns));
    for (let first = 0; first < rows; first += step) {
      yield { tensor, format, first, count: Math.min(step, rows - first) };
    }
  }
}
