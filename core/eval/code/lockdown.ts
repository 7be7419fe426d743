/**
 * Takes away from an interpreter's worker what Python could reach through JavaScript.
 *
 * Permissions are the wall; this is the moat before it. Python objects made of JavaScript ones lead by
 * `constructor` to the function constructor and from there to everything global, so both ends of that
 * path are cut. The files of the interpreter lie in JavaScript memory, which no memory image brings
 * back, so they become read-only.
 */
// deno-lint-ignore-file no-explicit-any

const scope: any = globalThis;

/** Limits what WebAssembly may take; call before the interpreter is loaded. */
export function limitMemory(bytes: number): void {
  const { prototype } = WebAssembly.Memory;
  const grow = prototype.grow;
  prototype.grow = function (this: WebAssembly.Memory, pages: number): number {
    if (this.buffer.byteLength + pages * 65536 > bytes) throw new RangeError("memory limit");
    return grow.call(this, pages);
  };
  Object.freeze(prototype);
}

/**
 * Silences the console and drops finalizers; call before the interpreter is loaded. A finalizer
 * would later release a Python object in a memory that was since replaced.
 */
export function quiet(): void {
  for (const name of Object.keys(console)) scope.console[name] = () => {};
  scope.FinalizationRegistry = class {
    register(): void {}
    unregister(): void {}
  };
}

/** Globals that act on the world or go on after a call; an interpreter at rest needs none. */
const GONE = [
  "eval",
  "Function",
  "Deno",
  "process",
  "require",
  "Worker",
  "fetch",
  "WebSocket",
  "EventSource",
  "XMLHttpRequest",
  "BroadcastChannel",
  "MessageChannel",
  "postMessage",
  "close",
  "importScripts",
  "navigator",
  "caches",
  "localStorage",
  "sessionStorage",
  "setTimeout",
  "setInterval",
  "setImmediate",
  "queueMicrotask",
  "Buffer",
  "global",
];

/** Closes the way out; call once the interpreter is loaded. */
export function closeGlobals(): void {
  // A promise that a program left behind must not end the worker under the next one.
  scope.addEventListener("unhandledrejection", (event: Event) => event.preventDefault());
  const kinds = [function () {}, async function () {}, function* () {}, async function* () {}];
  for (const kind of kinds) {
    Object.defineProperty(Object.getPrototypeOf(kind), "constructor", { value: undefined });
  }
  for (const name of GONE) {
    try {
      Object.defineProperty(scope, name, { value: undefined, configurable: true });
    } catch {
      scope[name] = undefined;
    }
  }
}

/** Makes the file system of the interpreter read-only. */
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
