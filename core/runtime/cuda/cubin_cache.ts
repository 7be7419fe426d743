/**
 * Compiled kernels on disk, found by the hash of everything that went into them.
 *
 * Takes compiler version, source with its headers, target; returns the cubin and its log; where
 * they are known, neither NVRTC nor its 200 MB library is needed. A file is the length of the log
 * (4 bytes, little-endian), the log, the cubin.
 *
 * There is no lock. Compiling gives the same bytes every time, and a file appears under its name
 * only when it is complete, so several processes may write it at once.
 */
import { createHash } from "node:crypto";
import { renameSync } from "../../base/platform/rename.ts";
import { writeAllSync } from "../../base/write_all.ts";
import {
  compileOptions,
  type CompileTarget,
  type Cubin,
  type KernelSource,
} from "./driver/nvrtc.ts";

/** Bytes before the log. */
const HEAD = 4;
/** Holds the version of the compiler that was here last. */
const VERSION_FILE = "compiler-version";

/** What a compiled program is found by. */
export function cubinKey(version: string, source: KernelSource, target: CompileTarget): string {
  const headers = [...source.headers].sort(([a], [b]) => a < b ? -1 : 1).flat();
  return hashOf([version, ...compileOptions(target), source.name, source.text, ...headers]);
}

/** SHA-256 of a list of texts. */
export function hashOf(parts: readonly string[]): string {
  const hash = createHash("sha256");
  // Lengths keep two lists that read the same end to end apart.
  for (const part of parts) hash.update(`${part.length}:${part}`);
  return hash.digest("hex");
}

/** Cubins in one folder. */
export class CubinCache {
  readonly folder: string;

  /** Nothing is made before something is written. */
  constructor(folder: string) {
    this.folder = folder;
  }

  /** A program written before; undefined when there is none or its file is damaged. */
  read(key: string): Cubin | undefined {
    let file: Uint8Array<ArrayBuffer>;
    try {
      file = Deno.readFileSync(this.#path(key));
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return undefined;
      throw error;
    }
    if (file.length < HEAD) return undefined;
    const end = HEAD + new DataView(file.buffer).getUint32(0, true);
    if (end >= file.length) return undefined;
    return { log: new TextDecoder().decode(file.subarray(HEAD, end)), bytes: file.slice(end) };
  }

  /** Keeps a program. */
  write(key: string, { bytes, log }: Cubin): void {
    const text = new TextEncoder().encode(log);
    const file = new Uint8Array(HEAD + text.length + bytes.length);
    new DataView(file.buffer).setUint32(0, text.length, true);
    file.set(text, HEAD);
    file.set(bytes, HEAD + text.length);
    Deno.mkdirSync(this.folder, { recursive: true });
    const temporary = `${this.#path(key)}.${crypto.randomUUID()}`;
    {
      using target = Deno.openSync(temporary, { write: true, createNew: true });
      writeAllSync(target, file);
      target.syncSync();
    }
    renameSync(temporary, this.#path(key));
  }

  /** The program from disk, else compiled and kept. */
  compile(
    version: string,
    source: KernelSource,
    target: CompileTarget,
    compile: () => Cubin,
  ): Cubin {
    const key = cubinKey(version, source, target);
    const known = this.read(key);
    if (known) return known;
    const made = compile();
    this.write(key, made);
    return made;
  }

  /** Notes which compiler the programs come from. */
  keepVersion(version: string): void {
    if (version === this.lastVersion()) return;
    Deno.mkdirSync(this.folder, { recursive: true });
    const temporary = `${this.folder}/${VERSION_FILE}.${crypto.randomUUID()}`;
    Deno.writeTextFileSync(temporary, version);
    renameSync(temporary, `${this.folder}/${VERSION_FILE}`);
  }

  /** The compiler that was here last; undefined when there was none. */
  lastVersion(): string | undefined {
    try {
      return Deno.readTextFileSync(`${this.folder}/${VERSION_FILE}`);
    } catch {
      return undefined; // not written yet, or not to be read: then everything is compiled
    }
  }

  #path(key: string): string {
    return `${this.folder}/${key}.cubin`;
  }
}
