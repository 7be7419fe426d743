/**
 * Compiled kernels on disk, found by the hash of the compiler's version, the target, and the source with
 * its headers.
 *
 * There is no lock: compiling gives the same bytes every time, and a file appears under its name only when
 * it is complete, so several processes may write it at once.
 */
import { createHash } from "node:crypto";
import { renameSync } from "../../base/platform/rename.ts";
import { writeAllSync } from "../../base/write_all.ts";
import { compileOptions, type CompileTarget, type KernelSource } from "./driver/nvrtc.ts";

type Cubin = Uint8Array<ArrayBuffer>;

/** The key of a compiled program. */
export function cubinKey(version: string, source: KernelSource, target: CompileTarget): string {
  const headers = [...source.headers].sort(([a], [b]) => a < b ? -1 : 1).flat();
  const hash = createHash("sha256");
  // Lengths keep two lists apart whose texts are the same end to end.
  for (const part of [version, ...compileOptions(target), source.name, source.text, ...headers]) {
    hash.update(`${part.length}:${part}`);
  }
  return hash.digest("hex");
}

/** Cubins in one folder, which is made when the first is written. */
export class CubinCache {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** The program from disk, else compiled and kept. */
  compile(
    version: string,
    source: KernelSource,
    target: CompileTarget,
    compile: () => Cubin,
  ): Cubin {
    const path = `${this.#folder}/${cubinKey(version, source, target)}.cubin`;
    try {
      return Deno.readFileSync(path);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    const cubin = compile();
    Deno.mkdirSync(this.#folder, { recursive: true });
    const temporary = `${path}.${crypto.randomUUID()}`;
    {
      using target = Deno.openSync(temporary, { write: true, createNew: true });
      writeAllSync(target, cubin);
      target.syncSync();
    }
    renameSync(temporary, path);
    return cubin;
  }
}
