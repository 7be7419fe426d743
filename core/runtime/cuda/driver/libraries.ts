/**
 * Finds and opens libcuda, NVRTC, cuBLASLt and NCCL of a driver, a toolkit or a Python wheel.
 *
 * NVRTC loads its builtins library by bare name and does not look beside itself, so when it was found by
 * path the builtins are opened first; else every compilation fails.
 */
import { loaderReason } from "../../../base/c_string.ts";
import { EnvironmentError } from "../../../base/errors.ts";
import type { SymbolsOf } from "./symbols.ts";

/** Libraries that can be asked for. */
export type LibraryName = "libcuda" | "nvrtc" | "cublasLt" | "nccl";

/** The machine as far as the search sees it; a test puts its own in place. */
export interface Host {
  env(name: string): string | undefined;
  /** Names in a folder; empty when there is no such folder. */
  list(folder: string): readonly string[];
  /** Opens a library. Throws an `Error` with the loader's words. */
  open<T extends Deno.ForeignLibraryInterface>(path: string, symbols: T): SymbolsOf<T>;
}

interface Library {
  /** Environment variable that names the file outright. */
  readonly variable: string;
  /** Versions by which the loader may know it, newest first. */
  readonly versions: readonly number[];
  /** Folder of its wheel for CUDA 12; those for CUDA 13 share one. */
  readonly wheel?: string;
}

const LIBRARIES: Readonly<Record<LibraryName, Library>> = {
  libcuda: { variable: "PARSCALE_LIBCUDA", versions: [1] },
  nvrtc: { variable: "PARSCALE_NVRTC", versions: [13, 12], wheel: "cuda_nvrtc" },
  cublasLt: { variable: "PARSCALE_CUBLASLT", versions: [13, 12], wheel: "cublas" },
  nccl: { variable: "PARSCALE_NCCL", versions: [2], wheel: "nccl" },
};

/** Its file without version, `libnvrtc.so`. */
const fileOf = (name: LibraryName) => `lib${name.replace("lib", "")}.so`;

/** Folders of the driver's library under WSL and container runtimes. */
const DRIVER_FOLDERS = ["/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"];

/** Default folder of a toolkit. */
const TOOLKIT = "/usr/local/cuda";

/** The real machine. */
export const SYSTEM: Host = {
  env: (name) => Deno.env.get(name),
  list(folder) {
    try {
      return Array.from(Deno.readDirSync(folder), ({ name }) => name).sort();
    } catch {
      return []; // not there or not to be read: nothing to be found in it
    }
  },
  open: (path, symbols) => Deno.dlopen(path, symbols).symbols,
};

/**
 * Paths at which a library may be, best first. `maxMajor` leaves out toolkits newer than the driver
 * understands: it may refuse what they compile.
 */
export function libraryPaths(name: LibraryName, host: Host, maxMajor = Infinity): string[] {
  const { variable, versions } = LIBRARIES[name];
  const explicit = host.env(variable);
  if (explicit) return [explicit];
  const follows = name === "nvrtc" || name === "cublasLt";
  const files = versions.filter((version) => !follows || version <= maxMajor)
    .map((version) => `${fileOf(name)}.${version}`);
  const folders = name === "libcuda"
    ? DRIVER_FOLDERS
    : [...toolkitFolders(host), ...wheelFolders(name, host)];
  return [...files, ...folders.flatMap((folder) => files.map((each) => `${folder}/${each}`))];
}

function toolkitFolders(host: Host): string[] {
  const roots = [host.env("CUDA_HOME"), host.env("CUDA_PATH"), TOOLKIT].filter((root) => root);
  const platform = Deno.build.arch === "aarch64" ? "sbsa-linux" : "x86_64-linux";
  const inside = ["lib64", "lib", `targets/${platform}/lib`];
  return [...new Set(roots)].flatMap((root) => inside.map((folder) => `${root}/${folder}`));
}

/** Wheels of CUDA 13 share one folder; before, each component had its own. */
function wheelFolders(name: LibraryName, host: Host): string[] {
  const component = `${LIBRARIES[name].wheel}/lib`;
  const inside = name === "nccl" ? [component] : ["cu13/lib", component];
  const roots = [host.env("VIRTUAL_ENV"), host.env("CONDA_PREFIX")].filter((root) => root);
  return roots.flatMap((root) =>
    host.list(`${root}/lib`).filter((entry) => /^python3/.test(entry)).flatMap((python) =>
      inside.map((folder) => `${root}/lib/${python}/site-packages/nvidia/${folder}`)
    )
  );
}

/**
 * Opens the first library that loads. It stays loaded until the process ends.
 * @throws {EnvironmentError} with everything that was tried
 */
export function openLibrary<T extends Deno.ForeignLibraryInterface>(
  name: LibraryName,
  symbols: T,
  { host = SYSTEM, maxMajor = Infinity }: { host?: Host; maxMajor?: number | undefined } = {},
): { readonly path: string; readonly symbols: SymbolsOf<T> } {
  const tried: string[] = [];
  for (const path of libraryPaths(name, host, maxMajor)) {
    try {
      if (name === "nvrtc") openBuiltins(path, host);
      return { path, symbols: host.open(path, symbols) };
    } catch (error) {
      tried.push(`${path} (${loaderReason(path, error)})`);
    }
  }
  const { wheel, variable } = LIBRARIES[name];
  const suffix = maxMajor < 13 ? "-cu12" : name === "nccl" ? "-cu13" : "";
  const remedy = wheel
    ? `run \`pip install nvidia-${
      wheel.replace("_", "-")
    }${suffix}\` in a virtual environment and activate it`
    : "install an NVIDIA driver for CUDA 12.0 or later";
  throw new EnvironmentError(
    `cannot load ${fileOf(name)}: tried ${tried.join(", ") || "nothing"}`,
    {
      hints: [`${remedy}, or name the library in ${variable}`],
    },
  );
}

/** Loads what NVRTC will ask for by bare name, `libnvrtc-builtins.so.13.0`. */
function openBuiltins(path: string, host: Host): void {
  const slash = path.lastIndexOf("/");
  if (slash < 0) return; // the loader's own search finds both
  const folder = path.slice(0, slash);
  const major = /\.so\.(\d+)/.exec(path.slice(slash))?.[1] ?? "";
  const file = host.list(folder).find((each) => each.startsWith(`libnvrtc-builtins.so.${major}`));
  if (file) host.open(`${folder}/${file}`, {});
}
