/**
 * Kernel files as shared libraries of this machine, made with g++.
 *
 * Takes what NVRTC would be given; returns the bytes of a library in place of a cubin. `common/ptx.cuh` is
 * replaced by that of this folder; everything else is compiled as it is, behind `cuda.hpp` and in front of
 * a table of the kernels.
 *
 * G++ takes a second for a file, so libraries are kept in the folder for temporary files, by the
 * hash of all that went into them. They are written under another name and renamed: tests run in
 * parallel.
 */
import { createHash } from "node:crypto";
import { EnvironmentError } from "../../core/base/errors.ts";
import type { KernelCompiler } from "../../core/runtime/cuda/kernel_loader.ts";
import context from "./context.hpp" with { type: "text" };
import cuda from "./cuda.hpp" with { type: "text" };
import entries from "./entries.hpp" with { type: "text" };
import fibers from "./fibers.hpp" with { type: "text" };
import machineCode from "./machine.cpp" with { type: "text" };
import machineHeader from "./machine.hpp" with { type: "text" };
import productCode from "./product.cpp" with { type: "text" };
import ptx from "./ptx.cuh" with { type: "text" };
import threads from "./threads.hpp" with { type: "text" };

const COMMON = ["-std=c++17", "-fPIC", "-shared", "-march=native", "-fvisibility=hidden"];
/** Without unique symbols: each loaded copy of a library is a world of its own. */
const APART = ["-fno-gnu-unique", "-Wl,-Bsymbolic", "-w"];
/** Misaligned accesses and indices outside an array stop the kernel. */
const CHECKS = ["-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error"];
const KERNEL_OPTIONS = ["-O2", "-fno-strict-aliasing", "-fno-exceptions", ...CHECKS];
const MACHINE_OPTIONS = ["-O3", "-fno-strict-aliasing", "-Wl,-z,nodelete"];

/** A kernel of a source text and the argument of its `__launch_bounds__`. */
const KERNEL =
  /extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\(((?:[^()]|\([^()]*\))*)\)\s*)?(\w+)\s*\(/g;

const decoder = new TextDecoder();

function folder(): string {
  const temporary = Deno.env.get("TMPDIR") || "/tmp";
  return `${temporary}/parscale-emulator-${Deno.uid()}`;
}

function runCompiler(args: string[], cwd: string): { success: boolean; text: string } {
  const { success, stdout, stderr } = new Deno.Command("g++", { args, cwd }).outputSync();
  return { success, text: decoder.decode(success ? stdout : stderr) };
}

let version: string | undefined;

/** First line of `g++ --version`; empty where there is none. */
export function compilerVersion(): string {
  if (version !== undefined) return version;
  try {
    version = runCompiler(["--version"], "/").text.split("\n")[0]!;
  } catch {
    version = "";
  }
  return version;
}

/** Returns the processor, on which `-march=native` depends. */
function processor(): string {
  try {
    return /^(flags|Features)\s*:.*$/m.exec(Deno.readTextFileSync("/proc/cpuinfo"))?.[0] ?? "";
  } catch {
    return "";
  }
}

/** Builds a library from files by name, of which `main` are compiled; known ones are not built. */
function build(
  files: ReadonlyMap<string, string>,
  main: readonly string[],
  options: readonly string[],
): Uint8Array<ArrayBuffer> {
  const args = [...COMMON, ...APART, ...options];
  const hash = createHash("sha256");
  for (const part of [compilerVersion(), processor(), ...args, ...main, ...[...files].flat()]) {
    hash.update(`${part.length}:${part}`);
  }
  const cached = `${folder()}/${hash.digest("hex")}.so`;
  try {
    return Deno.readFileSync(cached);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  const place = Deno.makeTempDirSync({ prefix: "parscale-emulator-" });
  try {
    for (const [name, text] of files) {
      const slash = name.lastIndexOf("/");
      if (slash > 0) Deno.mkdirSync(`${place}/${name.slice(0, slash)}`, { recursive: true });
      Deno.writeTextFileSync(`${place}/${name}`, text);
    }
    const { success, text } = runCompiler(
      [...args, "-I.", "-o", "out.so", "-x", "c++", ...main],
      place,
    );
    if (!success) {
      throw new EnvironmentError(`Cannot emulate ${main.join()}: found errors\n${text}`);
    }
    const bytes = Deno.readFileSync(`${place}/out.so`);
    Deno.mkdirSync(folder(), { recursive: true, mode: 0o700 });
    const complete = `${cached}.${crypto.randomUUID()}`;
    Deno.writeFileSync(complete, bytes);
    Deno.renameSync(complete, cached);
    return bytes;
  } finally {
    Deno.removeSync(place, { recursive: true });
  }
}

/** The library with the memory and the products of a machine. */
export function compileMachine(): Uint8Array<ArrayBuffer> {
  const files = new Map([
    ["emulator/machine.hpp", machineHeader],
    ["machine.cpp", machineCode],
    ["product.cpp", productCode],
  ]);
  return build(files, ["machine.cpp", "product.cpp"], MACHINE_OPTIONS);
}

/**
 * Compiles one file, as `Nvrtc.compile` does.
 * @throws {EnvironmentError} with the compiler's words when it refuses the text
 */
export const compile: KernelCompiler["compile"] = (source, { architecture, defines }) => {
  const table = [...source.text.matchAll(KERNEL)].map(([, bounds, name]) =>
    `EMULATED_KERNEL(${name}, ${bounds ?? "emulator::MAX_THREADS"})`
  );
  const main = source.name.replace(/\.cu$/, "") + ".cpp";
  // Without a name, so that inline functions are this file's own and may have __shared__ variables.
  const text = [
    `#include "emulator/cuda.hpp"`,
    `#include "common/ptx.cuh"`,
    "namespace {",
    `#line 1 "${source.name}"`,
    source.text,
    `#line 1 "kernels of ${source.name}"`,
    `const emulator::Kernel emulatedKernels[] = {${table.join(" ")}};`,
    "}  // namespace",
    `#include "emulator/entries.hpp"`,
    "",
  ].join("\n");
  const files = new Map([
    ...source.headers,
    ["common/ptx.cuh", ptx],
    ["emulator/context.hpp", context],
    ["emulator/cuda.hpp", cuda],
    ["emulator/entries.hpp", entries],
    ["emulator/fibers.hpp", fibers],
    ["emulator/machine.hpp", machineHeader],
    ["emulator/threads.hpp", threads],
    [main, text],
  ]);
  const flags = Object.entries(defines).sort().map(([name, value]) => `-D${name}=${value}`);
  const capability = Number(/^sm_(\d+)/.exec(architecture)?.[1]);
  const arch = `-D__CUDA_ARCH__=${10 * capability}`;
  return { bytes: build(files, [main], [...KERNEL_OPTIONS, arch, ...flags]) };
};
