/**
 * Kernels as they are needed: compiled, cached on disk, loaded, found by name.
 *
 * Takes a kernel and the macros of its file; returns a launch site, with grid and
 * numbers set and addresses still to be set. From compute capability 9.0 on a launch may start
 * before the one before it has ended (programmatic dependent launch): its blocks are in place when
 * that one ends. Every kernel waits for it before it reads or writes anything; what it may do
 * earlier is to fetch weights into the cache.
 */
import { type CubinCache } from "./cubin_cache.ts";
import type { Driver } from "./driver/driver.ts";
import type { Kernel, KernelFile, Sizes } from "./kernels/define.ts";
import { LaunchSite } from "./driver/launch.ts";
import type { CompileTarget, Cubin, KernelSource } from "./driver/nvrtc.ts";

/** What turns kernels into programs of the device: NVRTC, or what stands in for it in a test. */
export interface KernelCompiler {
  /** Goes into the name under which a compiled program is kept. */
  readonly version: string;
  compile(source: KernelSource, target: CompileTarget): Cubin;
}

/** Kernels of one device. */
export class KernelLoader {
  readonly #driver: Driver;
  readonly #compiler: KernelCompiler;
  readonly #architecture: string;
  readonly #cache: CubinCache | undefined;
  readonly #early: boolean;
  readonly #modules = new Map<string, bigint>();
  readonly #functions = new Map<string, bigint>();

  /** Without a cache everything is compiled anew. */
  constructor(
    driver: Driver,
    { compiler, architecture, cache }: {
      compiler: KernelCompiler;
      architecture: string;
      cache?: CubinCache | undefined;
    },
  ) {
    [this.#driver, this.#compiler] = [driver, compiler];
    [this.#architecture, this.#cache] = [architecture, cache];
    this.#early = startsEarly(architecture, driver.version);
  }

  /**
   * A launch with everything set but its addresses.
   * @throws {TypeError} when a number is not given
   */
  site(kernel: Kernel, numbers: Sizes, macros: Sizes): LaunchSite {
    const { entry } = kernel;
    const loaded = this.#function(kernel, macros);
    const site = new LaunchSite(loaded, entry, kernel.arguments.map(({ type }) => type));
    const geometry = kernel.geometry({ ...macros, ...numbers });
    site.setGeometry({ ...geometry, early: this.#early });
    this.#driver.allowShared(loaded, geometry.shared ?? 0);
    kernel.arguments.forEach(({ name, type }, i) => {
      if (type === "pointer" || type === "map") return;
      const value = numbers[name];
      if (value === undefined) {
        throw new TypeError(`cannot launch ${entry}: argument "${name}" is not set`);
      }
      site.set(i, type === "i64" ? BigInt(value) : value);
    });
    return site;
  }

  /** Unloads everything. */
  close(): void {
    for (const module of this.#modules.values()) this.#driver.unloadModule(module);
    this.#modules.clear();
    this.#functions.clear();
  }

  #function({ file, entry }: Kernel, macros: Sizes): bigint {
    const key = `${entry} ${JSON.stringify(macros)}`;
    const known = this.#functions.get(key);
    if (known !== undefined) return known;
    const found = this.#driver.getFunction(this.#module(file, macros), entry);
    this.#functions.set(key, found);
    return found;
  }

  #module(file: KernelFile, macros: Sizes): bigint {
    const key = `${file.name} ${JSON.stringify(macros)}`;
    const known = this.#modules.get(key);
    if (known !== undefined) return known;
    const target = { architecture: this.#architecture, defines: macros };
    const compile = () => this.#compiler.compile(file, target);
    const { version } = this.#compiler;
    const cubin = this.#cache ? this.#cache.compile(version, file, target, compile) : compile();
    const module = this.#driver.loadModule(cubin.bytes, file.name);
    this.#modules.set(key, module);
    return module;
  }
}

/** Whether launches may start early, also inside a graph: that takes a newer driver. */
export function startsEarly(architecture: string, driverVersion: number): boolean {
  return Number(/\d+/.exec(architecture)![0]) >= 90 && driverVersion >= 12030;
}
