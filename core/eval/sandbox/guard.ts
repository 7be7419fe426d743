/**
 * Guards every function that WebAssembly imports, so that Python can reach no JavaScript while a program
 * runs.
 *
 * WebAssembly reaches JavaScript only through imported functions, memories, tables and globals. While
 * the guard is locked, an imported function outside `OPEN` notes its name and traps: Python and
 * `catch_all` cannot catch a trap, as they could a JavaScript exception. Install the guard before the
 * interpreter is loaded.
 */
// deno-lint-ignore-file no-explicit-any

/**
 * Imports that honest programs need: clocks and dates, random numbers, reading files, growing and copying
 * in the heap, and calls of functions in WebAssembly's own table.
 */
const OPEN = new Set(
  ("emscripten_get_now emscripten_get_now_res _emscripten_get_now_is_monotonic " +
    "emscripten_date_now getentropy environ_sizes_get environ_get fd_close fd_read fd_write " +
    "fd_seek fd_fdstat_get fd_pread __syscall_fstat64 __syscall_stat64 __syscall_newfstatat " +
    "__syscall_lstat64 __syscall_getcwd __syscall_openat __syscall_ioctl __syscall_fcntl64 " +
    "__syscall_getdents64 __syscall_faccessat __syscall_readlinkat _tzset_js _timegm_js " +
    "_mktime_js _localtime_js _gmtime_js strftime strftime_l emscripten_memcpy_js " +
    "emscripten_resize_heap emscripten_get_heap_max _Py_CheckEmscriptenSignals_Helper " +
    "_Py_emscripten_runtime _PyEM_TrampolineCall_JS _PyImport_InitFunc_TrampolineCall").split(" "),
);

/** A module of one exported function, `trap`, whose body is `unreachable`. */
const TRAP_MODULE = new Uint8Array(
  [0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 7, 8, 1, 4]
    .concat([...new TextEncoder().encode("trap")], [0, 0, 10, 5, 1, 3, 0, 0, 11]),
);

/** The guard of this thread. */
export interface Guard {
  /** From here on refuses calls out of WebAssembly. */
  lock(): void;
  unlock(): void;
  /** The first import refused since the last `lock`. */
  readonly refused: string | undefined;
  /** Notes `name` as refused and traps; for limits that a JavaScript part of an open import holds. */
  refuse(name: string): never;
  /** Exports of the interpreter's main module, once it is loaded. */
  readonly main: Record<string, any>;
}

/** Installs the guard. */
export function guardWebAssembly(): Guard {
  const { Module, Instance, compile } = WebAssembly;
  const trap = new Instance(new Module(TRAP_MODULE)).exports.trap as () => never;
  let locked = false;
  let refused: string | undefined;
  let main: Record<string, any> = {};

  const refuse = (name: string): never => {
    refused ??= name;
    return trap();
  };
  const guarded = (name: string, call: (...args: any[]) => any) => {
    // Exported functions of other modules are WebAssembly too; their name is their number.
    if (OPEN.has(name) || /^\d+$/.test(call.name)) return call;
    const wrapper = (...args: any[]) =>
      locked ? refuse(name === "f" ? call.name || name : name) : call(...args);
    return Object.assign(wrapper, call);
  };
  const guardImports = (module: WebAssembly.Module, imports: any) => {
    const own: any = {};
    for (const { module: space, name } of Module.imports(module)) {
      // Some import objects make their entries when they are asked for.
      const value = imports[space][name];
      (own[space] ??= {})[name] = typeof value === "function" ? guarded(name, value) : value;
    }
    return own;
  };
  const instantiate = (module: WebAssembly.Module, imports?: any) => {
    const instance = new Instance(module, guardImports(module, imports));
    if ("PyRun_SimpleString" in instance.exports) main = instance.exports;
    return instance;
  };

  const scope: any = WebAssembly;
  scope.instantiate = async (source: BufferSource | WebAssembly.Module, imports?: any) => {
    if (source instanceof Module) return instantiate(source, imports);
    const module = await compile(source);
    return { module, instance: instantiate(module, imports) };
  };
  scope.Instance = function (module: WebAssembly.Module, imports?: any) {
    return instantiate(module, imports);
  };
  scope.instantiateStreaming = async (response: Promise<Response>, imports?: any) =>
    scope.instantiate(await (await response).arrayBuffer(), imports);
  delete scope.Suspending;
  delete scope.promising;

  return {
    lock() {
      [locked, refused] = [true, undefined];
    },
    unlock() {
      locked = false;
    },
    get refused() {
      return refused;
    },
    refuse,
    get main() {
      return main;
    },
  };
}

/**
 * Silences the console and drops finalizers; call before the interpreter is loaded. A finalizer would
 * later release a Python object in memory that has been set back since.
 */
export function silence(): void {
  const scope: any = globalThis;
  for (const name of Object.keys(console)) scope.console[name] = () => {};
  scope.FinalizationRegistry = class {
    register(): void {}
    unregister(): void {}
  };
}

/**
 * Makes this worker look like one of a browser; call before the interpreter is loaded. Pyodide of this age
 * otherwise takes Deno for Node, whose modules it looks for.
 */
export function hideRuntime(): void {
  const scope: any = globalThis;
  delete scope.Deno;
  delete scope.process;
  scope.importScripts = () => {}; // is only looked for
}

/** Makes the file system of the interpreter read-only. It lies in JavaScript memory. */
export function freezeFiles(pyodide: any): void {
  const { FS } = pyodide;
  const refuse = () => {
    throw new FS.ErrnoError(69); // EROFS
  };
  const table = FS.filesystems.MEMFS.ops_table;
  for (const name of ["mknod", "rename", "unlink", "rmdir", "symlink", "setattr"]) {
    for (const kind of Object.values<any>(table)) {
      if (name in kind.node) kind.node[name] = refuse;
    }
  }
  for (const name of ["write", "allocate", "msync"]) {
    if (name in table.file.stream) table.file.stream[name] = refuse;
  }
  for (const kind of Object.values<any>(table)) {
    Object.freeze(kind.node);
    Object.freeze(kind.stream);
  }
  // Mounting would bring a writable one.
  for (const name of ["mount", "unmount", "createDevice", "mkdev"]) FS[name] = refuse;
}
