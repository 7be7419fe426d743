/**
 * Kernels as they are needed: compiled, cached on disk, loaded, found by name.
 *
 * Cubins on disk are found by the hash of the compiler's version, the target, and the source with its headers.
 * There is no lock: compiling gives the same bytes every time, and a file appears under its name only when it
 * is complete, so several processes may write it at once.
 */
import { createHash } from "node:crypto";
import { writeFile } from "../../storage/write_file.ts";
import type { Driver } from "./driver/driver.ts";
import { Launch } from "./driver/launch.ts";
import {
  architectureOf,
  compileOptions,
  type CompileTarget,
  type KernelSource,
} from "./driver/nvrtc.ts";
import type { Kernel, Sizes } from "./kernels/define.ts";

/** Compiles kernels to machine code: NVRTC, or its stand-in in tests. */
export interface KernelCompiler {
  /** Part of the key of a cached program. */
  readonly version: string;
  compile(source: KernelSource, target: CompileTarget): { readonly bytes: Uint8Array<ArrayBuffer> };
}

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

/** A compiler that keeps what it makes in a folder; that is made when the first program is written. */
export function withCache(compiler: KernelCompiler, folder: string): KernelCompiler {
  const { version } = compiler;
  return {
    version,
    compile(source, target) {
      const path = `${folder}/${cubinKey(version, source, target)}.cubin`;
      try {
        return { bytes: Deno.readFileSync(path) };
      } catch (error) {
        if (!(error instanceof Deno.errors.NotFound)) throw error;
      }
      const { bytes } = compiler.compile(source, target);
      Deno.mkdirSync(folder, { recursive: true });
      writeFile(path, bytes);
      return { bytes };
    },
  };
}

/** Kernels of one device. */
export class KernelLoader {
  readonly #architecture: string;
  readonly #modules = new Map<string, bigint>();
  readonly #functions = new Map<string, bigint>();

  /** @throws {EnvironmentError} where the device is too old */
  constructor(private readonly driver: Driver, private readonly compiler: KernelCompiler) {
    const { major, minor } = driver.deviceInfo();
    this.#architecture = architectureOf(major, minor);
  }

  /**
   * A launch with everything set but its addresses.
   * @throws {TypeError} when a number is not given
   */
  launch(kernel: Kernel, scalars: Sizes, defines: Sizes): Launch {
    const { entry } = kernel;
    const types = kernel.arguments.map(({ type }) => type);
    const config = kernel.config({ ...defines, ...scalars });
    const launch = new Launch(this.#function(kernel, defines), entry, types, config);
    kernel.arguments.forEach(({ name, type }, i) => {
      if (type === "pointer") return;
      const value = scalars[name];
      if (value === undefined) {
        throw new TypeError(`cannot launch ${entry}: argument "${name}" is not set`);
      }
      launch.set(i, type === "i64" ? BigInt(value) : value);
    });
    return launch;
  }

  close(): void {
    for (const module of this.#modules.values()) this.driver.unloadModule(module);
  }

  #function({ file, entry }: Kernel, defines: Sizes): bigint {
    const driver = this.driver, key = JSON.stringify(defines);
    const module = this.#modules.getOrInsertComputed(`${file.name} ${key}`, () => {
      const target = { architecture: this.#architecture, defines };
      return driver.loadModule(this.compiler.compile(file, target).bytes, file.name);
    });
    return this.#functions.getOrInsertComputed(
      `${entry} ${key}`,
      () => driver.getFunction(module, entry),
    );
  }
}
