/** Quantized weights kept between starts, by `--weight-cache` and `--cache-limit`. */
import { cacheFolder } from "../../core/base/cache_folder.ts";
import { EnvironmentError } from "../../core/base/errors.ts";
import type { Checkpoint } from "../../core/checkpoint/open.ts";
import type { Io } from "../output/io.ts";
import type { Progress } from "../output/progress.ts";
import type { MatrixKind } from "../../core/runtime/mod.ts";

/** Folder of the cache. */
export function quantizedFolder(io: Pick<Io, "env">): string {
  return `${cacheFolder((name) => io.env(name))}/weights`;
}

/**
 * The checkpoint with quantized weights of an earlier start, or of this one, which writes them for the
 * next; the checkpoint itself where nothing is quantized or kept.
 */
export async function keepQuantized(
  checkpoint: Checkpoint,
  { matrices, block }: { readonly matrices: MatrixKind; readonly block: number | undefined },
  { weightCache, cacheLimit = Infinity }: {
    readonly weightCache?: boolean;
    readonly cacheLimit?: number;
  },
  io: Io,
): Promise<Checkpoint> {
  if (!weightCache || matrices === "f32" || checkpoint.quantization) return checkpoint;
  const { openFromCache } = await import("../../core/checkpoint/quantized_cache.ts");
  const { DEFAULT_BLOCK } = await import("../../core/base/quantize.ts");
  const { startProgress } = await import("../output/progress.ts");
  const { bytesText } = await import("../output/units.ts");
  let progress: Progress | undefined;
  try {
    const kept = await openFromCache(
      checkpoint,
      { kind: matrices, block: block ?? DEFAULT_BLOCK },
      {
        folder: quantizedFolder(io),
        limitBytes: cacheLimit,
        signal: io.interruption,
        onMake(bytes) {
          io.note(`keeping ${matrices} weights (${bytesText(bytes)}) for the next start`);
          progress = startProgress(io, { label: "Quantizing", unit: "MB", total: bytes / 1e6 });
        },
        onProgress: (done) => progress?.update(done / 1e6),
      },
    );
    return kept ?? checkpoint;
  } catch (error) {
    if (!(error instanceof EnvironmentError)) throw error;
    io.warn(`quantized weights were not kept: ${error.message}`);
    return checkpoint;
  } finally {
    progress?.[Symbol.dispose]();
  }
}
