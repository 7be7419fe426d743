/**
 * Moves inside the GPU's memory: zeros into a tensor, and rectangles from one tensor to another.
 *
 * The provider copies whole tensors only, so both are small models. A rectangle is a list of runs of
 * elements, as long as its sizes allow, gathered from one tensor and scattered into the other.
 */
import { elementCount } from "../../../graph/types.ts";
import type { CopyRegion } from "../../device.ts";
import type { Handle } from "../capi/table.ts";
import { ONNX_TYPE, type OnnxType } from "../element_types.ts";
import { OnnxModel } from "../lowering/model.ts";
import type { Session } from "../session/session.ts";
import { type Gpu, RESULT } from "./gpu.ts";
import type { GpuTensor } from "./tensor.ts";

export class Moves {
  readonly #sessions = new Map<string, Session>();

  /** Makes models when they are first needed. */
  constructor(private readonly gpu: Gpu) {
  }

  /** Overwrites a tensor by zeros. */
  clear(target: GpuTensor): void {
    const count = elementCount(target.shape);
    const sizes = BigInt64Array.of(1n, BigInt(count));
    const inputs = { sizes: this.gpu.hostTensor(sizes, { dtype: "i64", shape: [2] }) };
    this.gpu.run(this.#session("clear", target, clearModel), inputs, this.#rows(target, count));
    target.changed();
  }

  /** Copies a rectangle of elements between two tensors of one type, or inside one. */
  copy(source: GpuTensor, target: GpuTensor, region: CopyRegion): void {
    const { sourceOffset, sourceStride, targetOffset, targetStride, width, height } = region;
    if (width === 0 || height === 0) return;
    const sizes = [source, target].map(({ shape }) => elementCount(shape));
    const run = [sourceOffset, sourceStride, targetOffset, targetStride, ...sizes]
      .reduce(greatestCommonDivisor, width);
    const from = Int32Array.from(startsOf(sourceOffset, sourceStride));
    const to = BigInt64Array.from(startsOf(targetOffset, targetStride), BigInt);
    const inputs = {
      source: this.#rows(source, run),
      target: this.#rows(target, run),
      from: this.gpu.hostTensor(from, { dtype: "i32", shape: [from.length] }),
      to: this.gpu.hostTensor(to, { dtype: "i64", shape: [to.length, 1] }),
    };
    this.gpu.run(this.#session("copy", target, copyModel), inputs, this.#rows(target, run));
    target.changed();

    /** Returns the start of each run of the rectangle, in runs. */
    function startsOf(offset: number, stride: number): number[] {
      const perRow = width / run;
      return Array.from(
        { length: height * perRow },
        (_, i) => (offset + Math.floor(i / perRow) * stride) / run + i % perRow,
      );
    }
  }

  /** Frees the models. */
  close(): void {
    for (const session of this.#sessions.values()) session.close();
  }

  /** A tensor's elements as rows of `width` each. */
  #rows({ buffer, byteLength, dtype, shape }: GpuTensor, width: number): Handle {
    const rows = [elementCount(shape) / width, width];
    return this.gpu.tensor(buffer, byteLength, rows, dtype as OnnxType);
  }

  #session(
    name: string,
    { dtype }: GpuTensor,
    build: (model: OnnxModel, type: OnnxType) => void,
  ): Session {
    return this.#sessions.getOrInsertComputed(`${name} ${dtype}`, () => {
      const model = new OnnxModel();
      build(model, dtype as OnnxType);
      model.output(RESULT, dtype as OnnxType, [undefined, undefined]);
      return this.gpu.session(model);
    });
  }
}

function clearModel(model: OnnxModel, type: OnnxType): void {
  model.input("sizes", "i64", [undefined]);
  model.constant("zero", "f32", [1, 1], new Float32Array(1));
  const zero = model.node("Cast", ["zero"], { to: ONNX_TYPE[type] });
  model.node("Expand", [zero, "sizes"], {}, { output: RESULT });
}

/** Its output is bound to the memory of `target`, so that only the rows in `to` change. */
function copyModel(model: OnnxModel, type: OnnxType): void {
  model.input("source", type, [undefined, undefined]);
  model.input("target", type, [undefined, undefined]);
  model.input("from", "i32", [undefined]);
  model.input("to", "i64", [undefined, 1]);
  const picked = model.node("Gather", ["source", "from"], { axis: 0 });
  model.node("ScatterND", ["target", "to", picked], {}, { output: RESULT });
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
