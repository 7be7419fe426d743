/** Search paths of the CUDA libraries, cached kernels, and compiler logs. No GPU. */
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { withScratch } from "../../../scratch.ts";
import { cubinKey, withCache } from "../../../../core/runtime/cuda/kernel_loader.ts";
import { EnvironmentError } from "../../../../core/base/errors.ts";
import {
  type Host,
  type LibraryName,
  libraryPaths,
  openLibrary,
} from "../../../../core/runtime/cuda/driver/libraries.ts";
import {
  architectureOf,
  compileOptions,
  Nvrtc,
} from "../../../../core/runtime/cuda/driver/nvrtc.ts";
import type { NvrtcSymbols, SymbolsOf } from "../../../../core/runtime/cuda/driver/symbols.ts";

/** A machine with these variables and folders, on which only `loads` can be opened. */
function machine(about: {
  env?: Record<string, string>;
  folders?: Record<string, readonly string[]>;
  loads?: readonly string[];
}): Host & { opened: string[] } {
  const opened: string[] = [];
  return {
    opened,
    env: (name) => about.env?.[name],
    list: (folder) => about.folders?.[folder] ?? [],
    open<T extends Deno.ForeignLibraryInterface>(path: string) {
      if (!about.loads?.includes(path)) {
        throw new Error(`Could not open library: ${path}: No such file or directory`);
      }
      opened.push(path);
      return {} as SymbolsOf<T>;
    },
  };
}

const source = { name: "k.cu", text: "x", headers: new Map([["a", "1"]]) };
const target = { architecture: "sm_80", defines: { BF16: 1 } };

Deno.test("loader, toolkit, then wheels, newest first in each", () => {
  const host = machine({
    env: { CUDA_HOME: "/c", VIRTUAL_ENV: "/v" },
    folders: { "/v/lib": ["libx.so", "python3.12"] },
  });
  const paths = libraryPaths("nvrtc", host);
  assertEquals(paths.slice(0, 4), [
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "/c/lib64/libnvrtc.so.13",
    "/c/lib64/libnvrtc.so.12",
  ]);
  const wheels = "/v/lib/python3.12/site-packages/nvidia";
  assertEquals(paths.slice(-4), [
    `${wheels}/cu13/lib/libnvrtc.so.13`,
    `${wheels}/cu13/lib/libnvrtc.so.12`,
    `${wheels}/cuda_nvrtc/lib/libnvrtc.so.13`,
    `${wheels}/cuda_nvrtc/lib/libnvrtc.so.12`,
  ]);
  assertEquals(libraryPaths("nccl", host).at(-1), `${wheels}/nccl/lib/libnccl.so.2`);
});

Deno.test("a variable names the file outright, and the driver's library has its own folders", () => {
  const host = machine({ env: { PARSCALE_NVRTC: "/x/libnvrtc.so.13", CUDA_HOME: "/c" } });
  assertEquals(libraryPaths("nvrtc", host), ["/x/libnvrtc.so.13"]);
  const folders = ["", "/usr/lib/wsl/lib/", "/usr/local/nvidia/lib64/"];
  assertEquals(libraryPaths("libcuda", host), folders.map((folder) => `${folder}libcuda.so.1`));
});

Deno.test("what is newer than the driver is not looked for", () => {
  const paths = libraryPaths("cublasLt", machine({}), 12);
  assert(paths.every((path) => path.endsWith("libcublasLt.so.12")), paths.join());
});

Deno.test("NVRTC found by path gets its builtins first, by name it does not", () => {
  const [path, builtins] = ["/c/lib64/libnvrtc.so.12", "/c/lib64/libnvrtc-builtins.so.12.8"];
  const folders = { "/c/lib64": ["libnvrtc-builtins.so.12.8", "libnvrtc.so.12"] };
  const host = machine({ env: { CUDA_HOME: "/c" }, folders, loads: [path, builtins] });
  assertEquals(openLibrary("nvrtc", {}, { host }).path, path);
  assertEquals(host.opened, [builtins, path]);
  const byName = machine({ loads: ["libnvrtc.so.13"] });
  openLibrary("nvrtc", {}, { host: byName });
  assertEquals(byName.opened, ["libnvrtc.so.13"]);
});

Deno.test("when nothing loads, the error lists what was tried and the remedy", () => {
  const open = () => openLibrary("nvrtc", {}, { host: machine({}), maxMajor: 12 });
  const error = assertThrows(open, EnvironmentError);
  assertStringIncludes(error.message, "cannot load libnvrtc.so: tried ");
  assertStringIncludes(error.message, "libnvrtc.so.12 (not found)");
  assertStringIncludes(error.hints[0]!, "PARSCALE_NVRTC");
});

Deno.test("the package that is named is of a version of CUDA that the driver takes", () => {
  const named = (name: LibraryName, maxMajor?: number) => {
    const open = () => openLibrary(name, {}, { host: machine({}), maxMajor });
    return /`pip install (.*?)`/.exec(assertThrows(open, EnvironmentError).hints[0]!)?.[1];
  };
  const names = ["nvrtc", "cublasLt", "nccl"] as const;
  const packages = [undefined, 13, 12].map((maxMajor) =>
    names.map((name) => named(name, maxMajor))
  );
  const newest = ["nvidia-cuda-nvrtc", "nvidia-cublas", "nvidia-nccl-cu13"];
  const older = ["nvidia-cuda-nvrtc-cu12", "nvidia-cublas-cu12", "nvidia-nccl-cu12"];
  assertEquals(packages, [newest, newest, older]);
});

Deno.test("the architecture follows the capability", () => {
  const of = ([major, minor]: readonly [number, number]) => architectureOf(major, minor);
  const known = [[8, 0], [8, 9], [9, 0], [10, 0], [12, 0]] as const;
  assertEquals(known.map(of), ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"]);
  assertThrows(() => architectureOf(7, 5), EnvironmentError, "has compute capability 7.5");
});

Deno.test("a refused source gives the compiler's words", () => {
  const text = new TextEncoder().encode("k.cu(1): error: no such thing\0");
  const calls: unknown[][] = [];
  const symbols = {
    nvrtcVersion: (major: Int32Array, minor: Int32Array) => (major[0] = 13, minor[0] = 1, 0),
    nvrtcCreateProgram: (...args: unknown[]) => (calls.push(args), 0),
    nvrtcCompileProgram: () => 6,
    nvrtcGetProgramLogSize: (_: bigint, out: BigUint64Array) => (out[0] = BigInt(text.length), 0),
    nvrtcGetProgramLog: (_: bigint, out: Uint8Array) => (out.set(text), 0),
    nvrtcDestroyProgram: () => (calls.push(["destroyed"]), 0),
  } as unknown as NvrtcSymbols;
  const nvrtc = new Nvrtc(symbols);
  assertEquals(nvrtc.version, "13.1");
  const headers = new Map([["a.cuh", "A"], ["b.cuh", "BB"]]);
  const message = "cannot compile k.cu for sm_80:\nk.cu(1): error";
  assertThrows(() => nvrtc.compile({ ...source, headers }, target), EnvironmentError, message);
  assertEquals(calls.at(-1), ["destroyed"]);
  // char**: addresses, then the strings they point to.
  const [, , , count, texts] = calls[0] as [unknown, unknown, unknown, number, Uint8Array];
  assertEquals([count, new TextDecoder().decode(texts.subarray(16))], [2, "A\0BB\0"]);
});

Deno.test("a program is compiled once, and kept under its key", () =>
  withScratch((folder) => {
    let compiled = 0;
    const compile = () => {
      compiled++;
      return { bytes: Uint8Array.of(1, 2, 3) };
    };
    for (let i = 0; i < 2; i++) {
      const cached = withCache({ version: "13.0", compile }, `${folder}/cubin`);
      const { bytes } = cached.compile(source, target);
      assertEquals([[...bytes], compiled], [[1, 2, 3], 1]);
    }
    const names = Array.from(Deno.readDirSync(`${folder}/cubin`), ({ name }) => name);
    assertEquals(names, [`${cubinKey("13.0", source, target)}.cubin`]);
    return Promise.resolve();
  }));

Deno.test("everything that goes into a program is in its key", () => {
  const keys = [
    cubinKey("13.0", source, target),
    cubinKey("13.1", source, target),
    cubinKey("13.0", { ...source, text: "y" }, target),
    cubinKey("13.0", { ...source, name: "l.cu" }, target),
    cubinKey("13.0", { ...source, headers: new Map([["a", "2"]]) }, target),
    cubinKey("13.0", source, { ...target, architecture: "sm_90" }),
    cubinKey("13.0", source, { ...target, defines: { BF16: 0 } }),
  ];
  assertEquals(new Set(keys).size, keys.length);
  const reordered = { architecture: "sm_80", defines: { B: 2, A: 1 } };
  assertEquals(compileOptions(reordered).slice(-2), ["-DA=1", "-DB=2"]);
});
