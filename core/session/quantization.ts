/** Format of a model's matrices on a device: exact, quantized at opening, or as they are stored. */
import { UsageError } from "../base/errors.ts";
import { DEFAULT_BLOCK, type MatrixFormat } from "../quant/codes.ts";
import type { Checkpoint } from "../checkpoint/open.ts";
import { type DeviceChoice, quantizes } from "../runtime/mod.ts";

/** Bits of the matrices of linear layers; none keeps them exact. */
export type Quantization = "none" | "q8" | "q4";

/** Options that decide how a device keeps matrices. */
export interface MatrixOptions {
  /** Device to compute on; auto is cpu. */
  readonly device?: DeviceChoice;
  /** Bits of matrices on cpu and webgpu: those of the folder, or exact, unless given. */
  readonly quantize?: Quantization | undefined;
  /** Columns that share one scale with `quantize`, a power of two from 16 to 256; 32 unless given. */
  readonly blockSize?: number | undefined;
}

/** @throws {UsageError} unless a block size, where given, is a power of two in range */
export function checkBlockSize(blockSize: number | undefined): void {
  if (blockSize === undefined || [16, 32, 64, 128, 256].includes(blockSize)) return;
  throw new UsageError(
    `invalid value ${blockSize} for \`--block-size\`: must be 16, 32, 64, 128 or 256`,
  );
}

/**
 * Checks what quantization needs: a device that can, and bits for a block size.
 * @throws {UsageError} for options that do not go together
 */
export function checkQuantize(
  { quantize = "none", blockSize, device = "auto" }: MatrixOptions,
): void {
  checkBlockSize(blockSize);
  if (quantize === "none") {
    if (blockSize === undefined) return;
    throw new UsageError("`--block-size` needs `--quantize q8` or `q4`");
  }
  if (quantizes(device)) return;
  throw new UsageError(`the ${device} device cannot run with \`--quantize ${quantize}\``, {
    hints: ["use --device cpu or webgpu, or leave out --quantize"],
  });
}

/**
 * The format in which a device keeps the matrices of a checkpoint: as the options say or, where they are
 * stored in 8 or 4 bits, as they are stored.
 * @throws {UsageError} for a device that cannot use them, or options that ask for another format
 */
export function matrixFormat(
  { quantization, directory }: Checkpoint,
  { quantize = "none", blockSize, device = "auto" }: MatrixOptions,
): MatrixFormat {
  if (!quantization) {
    if (quantize === "none") return { kind: "f32" };
    return { kind: quantize, block: blockSize ?? DEFAULT_BLOCK };
  }
  const { kind, block } = quantization.format;
  const refuse = (what: string, hint: string) =>
    new UsageError(`${what} needs full-precision weights: "${directory}" is ${kind}`, {
      hints: [`${hint}, or use the checkpoint that it was quantized from`],
    });
  if (!quantizes(device)) throw refuse(`the ${device} device`, "use `--device cpu` or `webgpu`");
  if (quantize !== "none" && quantize !== kind) {
    throw refuse(`\`--quantize ${quantize}\``, "leave out `--quantize`");
  }
  if (blockSize !== undefined && blockSize !== block) {
    throw refuse(`\`--block-size ${blockSize}\``, `its block size is ${block}: leave out the flag`);
  }
  return { kind, block };
}
