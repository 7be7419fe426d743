/**
 * NVRTC: compiles CUDA C++ text, with headers from memory, to machine code for one architecture.
 *
 * By default NVRTC also looks for headers in the working directory; that is switched off, so that a
 * file there can never change a kernel.
 */
import { cString } from "../../../base/c_string.ts";
import { EnvironmentError } from "../../../base/errors.ts";
import { checkNvrtc, readNvrtc } from "./errors.ts";
import type { NvrtcSymbols } from "./symbols.ts";

/** Text to compile. */
export interface KernelSource {
  /** As it appears in messages and in the cache, `forward/rms_norm.cu`. */
  readonly name: string;
  readonly text: string;
  /** Headers by the name in their `#include`. */
  readonly headers: ReadonlyMap<string, string>;
}

/** Target of a compilation. */
export interface CompileTarget {
  /** `sm_90` */
  readonly architecture: string;
  /** Values of `-D` defines. */
  readonly defines: Readonly<Record<string, number>>;
}

/** A compiled program. */
export interface Cubin {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly log: string;
}

const COMPILATION_FAILED = 6;

/** Options in the order given to the compiler. */
export function compileOptions({ architecture, defines }: CompileTarget): string[] {
  return [
    `--gpu-architecture=${architecture}`,
    "--std=c++17",
    "--no-source-include",
    "--ptxas-options=-v",
    ...Object.entries(defines).sort().map(([name, value]) => `-D${name}=${value}`),
  ];
}

/** The architecture to compile for. @throws {EnvironmentError} below compute capability 8.0 */
export function architectureOf(major: number, minor: number): string {
  if (major < 8) {
    throw new EnvironmentError(
      `the CUDA device has compute capability ${major}.${minor}, expected at least 8.0`,
      { hints: ["use `--device cpu`"] },
    );
  }
  return `sm_${major}${minor}`;
}

/** The runtime compiler behind its symbol table. */
export class Nvrtc {
  /** `13.0` */
  readonly version: string;
  readonly #nvrtc: NvrtcSymbols;

  /** Asks the library for its version. */
  constructor(symbols: NvrtcSymbols) {
    this.#nvrtc = symbols;
    const major = new Int32Array(1), minor = new Int32Array(1);
    checkNvrtc(symbols.nvrtcVersion(major, minor), "read the version of NVRTC");
    this.version = `${major[0]}.${minor[0]}`;
  }

  /**
   * Compiles one program.
   * @throws {CudaError} when the library fails
   * @throws {EnvironmentError} with the compiler's words when it refuses the text
   */
  compile(source: KernelSource, target: CompileTarget): Cubin {
    const nvrtc = this.#nvrtc;
    const { name, text, headers } = source;
    const doing = `compile ${name} for ${target.architecture}`;
    const texts = stringArray([...headers.values()]), names = stringArray([...headers.keys()]);
    const create = nvrtc.nvrtcCreateProgram;
    const program = readNvrtc(
      doing,
      (out) => create(out, cString(text), cString(name), headers.size, texts, names),
    );
    type Get = NvrtcSymbols["nvrtcGetCUBIN"];
    const read = (sizeOf: Get, copy: Get) => {
      const size = readNvrtc(doing, (out) => sizeOf(program, out));
      const bytes = new Uint8Array(Number(size));
      checkNvrtc(copy(program, bytes), doing);
      return bytes;
    };
    try {
      const options = compileOptions(target);
      const code = nvrtc.nvrtcCompileProgram(program, options.length, stringArray(options));
      const text = read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog);
      const log = new TextDecoder().decode(text.subarray(0, -1)); // without the closing zero
      if (code === COMPILATION_FAILED) {
        throw new EnvironmentError(`cannot ${doing}:\n${log}`, {
          hints: [`NVRTC ${this.version} may be too old for this device, or please report this`],
        });
      }
      checkNvrtc(code, doing);
      return { bytes: read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN), log };
    } finally {
      nvrtc.nvrtcDestroyProgram(BigUint64Array.of(program));
    }
  }
}

/** `char**`: the addresses of the strings and, after them in the same buffer, the strings. */
function stringArray(strings: readonly string[]): Uint8Array<ArrayBuffer> {
  const encoded = strings.map(cString);
  const bytes = encoded.reduce((sum, each) => sum + each.length, 8 * strings.length);
  const all = new Uint8Array(bytes);
  const base = Deno.UnsafePointer.value(Deno.UnsafePointer.of(all));
  const addresses = new DataView(all.buffer);
  let at = 8 * strings.length;
  encoded.forEach((each, i) => {
    addresses.setBigUint64(8 * i, base + BigInt(at), true);
    all.set(each, at);
    at += each.length;
  });
  return all;
}
