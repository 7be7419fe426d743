/**
 * Programs as ONNX files that run without parscale, sharing one file of weights.
 *
 * Takes programs of fixed sizes and the weights of a model; returns one `.onnx` file each, and one
 * file that holds every weight once, in the form in which a program wants it.
 *
 * New contents of a state leave a program under a name of their own, `new.keys.0` for `keys.0`;
 * the caller passes them in again at the next step.
 */
import { writeAll } from "../../base/write_all.ts";
import { prepare } from "../../graph/rewrite.ts";
import type { Program } from "../../graph/program.ts";
import type { Weights } from "../device.ts";
import { lower, lowers, updateName, type WeightUse } from "./lowering/lower.ts";
import type { MatrixFormat } from "../../quant/codes.ts";
import { weightBytes } from "./session/session.ts";
import { CPU_TARGET } from "./lowering/rules.ts";
import { type Elements, webGpuTarget } from "./lowering/webgpu_rules.ts";
import { WeightContents } from "./session/weight_contents.ts";

/** Input or output of a program. */
export interface ExportedTensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  /** For a state: the output whose value is handed in at the next step. */
  readonly next?: string;
}

/** One exported program. */
export interface ExportedProgram {
  readonly file: string;
  readonly inputs: readonly ExportedTensor[];
  readonly outputs: readonly ExportedTensor[];
}

/** File of the weights, beside the programs. */
export const WEIGHTS_FILE = "weights.bin";

/** Weights begin at multiples of this, so that they can be mapped. */
const ALIGNMENT = 4096;

/**
 * Writes programs into a folder that exists; `onProgress` is told bytes of weights written so far.
 * @returns the programs by name, and the bytes of the weights
 */
export async function exportPrograms(
  folder: string,
  programs: ReadonlyMap<string, Program>,
  weights: Weights,
  { matrices, webGpu, onProgress = () => {} }: {
    matrices: MatrixFormat;
    /** Compute type of files for WebGPU; those for the processor have none. */
    webGpu?: Elements | undefined;
    onProgress?: (written: number, total: number) => void;
  },
): Promise<{ programs: Record<string, ExportedProgram>; weightBytes: number }> {
  const contents = new WeightContents(weights, matrices);
  const target = webGpu === undefined ? CPU_TARGET : webGpuTarget(webGpu);
  const places = new Map<string, { use: WeightUse; offset: number; length: number }>();
  let end = 0;
  const place = (use: WeightUse) => {
    const { offset, length } = places.getOrInsertComputed(contents.place(use), () => {
      const found = { use, offset: end, length: weightBytes(use) };
      end = Math.ceil((end + found.length) / ALIGNMENT) * ALIGNMENT;
      return found;
    });
    return { at: { location: WEIGHTS_FILE, offset, length }, type: use.type };
  };
  const exported: Record<string, ExportedProgram> = {};
  for (const [name, program] of programs) {
    const prepared = prepare(program, (op) => lowers(op, target));
    const options = { weights, matrices, target, place, fixedSizes: true, sorted: true };
    const { bytes } = lower(prepared, options);
    await writeWhole(`${folder}/${name}.onnx`, [bytes]);
    exported[name] = describe(`${name}.onnx`, program);
  }
  const total = end;
  await writeWhole(`${folder}/${WEIGHTS_FILE}`, weightParts());
  return { programs: exported, weightBytes: total };

  function* weightParts(): Generator<Uint8Array> {
    let at = 0;
    for (const { use, offset, length } of places.values()) {
      if (offset > at) yield new Uint8Array(offset - at);
      yield contents.bytes(use);
      at = offset + length;
      onProgress(at, total);
    }
  }
}

function describe(file: string, { inputs, state, outputs, updates }: Program): ExportedProgram {
  const tensor = (name: string, { dtype, shape }: { dtype: string; shape: readonly number[] }) => ({
    name,
    dtype,
    shape,
  });
  return {
    file,
    inputs: [
      ...[...inputs].map(([name, type]) => tensor(name, type)),
      ...[...state].map(([name, type]) => ({ ...tensor(name, type), next: updateName(name) })),
    ],
    outputs: [
      ...[...outputs].map(([name, type]) => tensor(name, type)),
      ...[...updates].map(([name, type]) => tensor(updateName(name), type)),
    ],
  };
}

async function writeWhole(path: string, parts: Iterable<Uint8Array>): Promise<void> {
  using file = await Deno.open(path, { write: true, createNew: true });
  for (const part of parts) await writeAll(file, part);
  await file.sync();
}
