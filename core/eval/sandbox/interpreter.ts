/**
 * A worker that holds one Python interpreter and runs one job at a time; see `child.ts`.
 *
 * Each step (loading the program, each call) enters WebAssembly once and crosses back only through the
 * request on file descriptor 0 and the answer on 1, with the guard locked. After a job that stayed within
 * its bounds, the memory is set back to the image taken at the start, byte for byte; after any other the
 * process ends.
 */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
// deno-lint-ignore-file no-explicit-any
import { Buffer } from "node:buffer";
import { freezeFiles, guardWebAssembly, hideRuntime, silence } from "./guard.ts";
import type { Ending, Job } from "./job.ts";
import { CALL, SHARED, type WorkerAnswer, type WorkerRequest } from "./protocol.ts";
import { RUNNER } from "./runner_text.ts";

/** Modules that many solutions import: an image that holds them saves their loading each time. */
const USUAL =
  "ast bisect cmath collections copy ctypes datetime decimal fractions functools hashlib " +
  "heapq io itertools json math operator random re statistics string sys time tokenize typing";

/** Drops the last objects of JavaScript, and the hook that words the error of a missing module anew. */
const LEAVE_PYODIDE = `
import importlib, pyodide
del pyodide.webloop.setTimeout, pyodide._package_loader.loadedPackages
hook = sys.modules["_pyodide._importhook"]
importlib._bootstrap._get_module_not_found_error = hook.orig_get_module_not_found_error
del importlib, pyodide, hook
`;

/** A larger heap is not set back: that would cost more than a new process. */
const REUSABLE_BYTES = 192 * 2 ** 20;

/** Results are sent on when they are this many, this long or this old. */
const BATCH = { calls: 256, characters: 1 << 20, milliseconds: 50 };

/** Bytes of one answer; the runner writes a hash in place of a longer value. */
const ANSWER_BYTES = (1 << 20) + 8192;
/** Bytes that one job may write in all. */
const JOB_BYTES = 64 * 2 ** 20;

const post: (answer: WorkerAnswer) => void = self.postMessage.bind(self);

/** The bytes that cross between this thread and Python. */
class Channel {
  #request = new Uint8Array();
  #answer: Uint8Array[] = [];
  #answerBytes = 0;
  #jobBytes = 0;

  constructor(readonly refuse: (name: string) => never) {}

  beginJob(): void {
    this.#jobBytes = 0;
  }

  beginStep(request: unknown): void {
    this.#request = new TextEncoder().encode(JSON.stringify(request));
    [this.#answer, this.#answerBytes] = [[], 0];
  }

  /** The step's answer; undefined unless it is exactly one line. */
  endStep(): string | undefined {
    const text = new TextDecoder().decode(Buffer.concat(this.#answer));
    return text.indexOf("\n") === text.length - 1 ? text.slice(0, -1) : undefined;
  }

  readonly read = (buffer: Uint8Array): number => {
    const part = this.#request.subarray(0, buffer.length);
    buffer.set(part);
    this.#request = this.#request.subarray(part.length);
    return part.length;
  };

  readonly write = (bytes: Uint8Array): number => {
    this.#answerBytes += bytes.length;
    this.#jobBytes += bytes.length;
    if (this.#answerBytes > ANSWER_BYTES || this.#jobBytes > JOB_BYTES) {
      [this.#answer, this.#answerBytes] = [[], 0];
      this.refuse("output limit");
    }
    this.#answer.push(bytes.slice());
    return bytes.length;
  };
}

/** An interpreter at rest. */
interface Interpreter {
  readonly version: string;
  readonly channel: Channel;
  /** Serves one request; undefined where the answer is not one line. Traps throw. */
  step(request: unknown): string | undefined;
  /** Returns whether nothing is left of a job but heap bytes, which `restore` sets back. */
  isReusable(): boolean;
  restore(): void;
}

const { permissions } = Deno;
const guard = guardWebAssembly();

async function loadPython(folder: string): Promise<any> {
  // As a file of an npm package it would be CommonJS to a compiled program.
  const glue = await (await fetch(new URL("pyodide.asm.js", folder))).bytes();
  await import(`data:text/javascript;base64,${glue.toBase64()}`);
  const { loadPyodide } = await import(new URL("pyodide.mjs", folder).href);
  const none = () => {};
  const python = await loadPyodide({
    // Python sees no JavaScript globals; its event loop imports this one.
    jsglobals: { setTimeout: none },
    indexURL: folder,
    stdout: none,
    stderr: none,
  });
  python.runPython(`import ${USUAL.replaceAll(" ", ", ")}`);
  python.runPython(RUNNER);
  return python;
}

async function open(folder: string): Promise<Interpreter> {
  const python = await loadPython(folder);
  const version = String(python.runPython("import sys; sys.version.split()[0]"));
  const channel = new Channel(guard.refuse);
  python.setStdin({ read: channel.read, isatty: false });
  python.setStdout({ write: channel.write, isatty: false });
  python.setStderr({ write: (bytes: Uint8Array) => bytes.length, isatty: false });
  for (const name of ["js", "pyodide_js"]) {
    python.unregisterJsModule(name);
    python.runPython(`sys.modules.pop("${name}", None)`);
  }
  python.runPython(LEAVE_PYODIDE);
  freezeFiles(python);
  const { FS, _module: module } = python;
  const door = module.stringToNewUTF8("_step()");
  const { PyRun_SimpleString: run } = guard.main;
  const image = takeImage(module, FS);
  return {
    version,
    channel,
    step(request) {
      channel.beginStep(request);
      run(door);
      return channel.endStep();
    },
    ...image,
  };
}

/** Takes the image of the memory, the globals and the open streams. */
function takeImage(module: any, FS: any): Pick<Interpreter, "isReusable" | "restore"> {
  const image: Uint8Array = module.HEAPU8.slice();
  const runs = runsOf(image);
  const streams = [...FS.streams];
  const folder = FS.cwd();
  const tables: [WebAssembly.Table, unknown[]][] = [];
  const globals: [WebAssembly.Global, unknown][] = [];
  for (const value of Object.values(guard.main)) {
    if (value instanceof WebAssembly.Table) tables.push([value, entriesOf(value)]);
    else if (value instanceof WebAssembly.Global) globals.push([value, value.value]);
  }
  const standard = streams.slice(0, 3);
  return {
    isReusable: () =>
      module.HEAPU8.length <= REUSABLE_BYTES &&
      standard.every((stream, index) => FS.streams[index] === stream && stream.fd === index) &&
      tables.every(([table, entries]) =>
        table.length === entries.length && entries.every((entry, at) => table.get(at) === entry)
      ),
    restore() {
      const heap: Uint8Array = module.HEAPU8;
      for (const { start, end, empty } of runs) {
        if (empty) heap.fill(0, start, end);
        else heap.set(image.subarray(start, end), start);
      }
      heap.fill(0, image.length);
      for (const [global, value] of globals) {
        // Constants cannot differ and refuse to be set.
        if (global.value !== value) global.value = value;
      }
      FS.streams.length = 0;
      FS.streams.push(...streams);
      FS.chdir(folder);
    },
  };
}

function entriesOf(table: WebAssembly.Table): unknown[] {
  return Array.from({ length: table.length }, (_, at) => table.get(at));
}

/** A stretch of the image; half of it is empty, and clearing is twice as fast as copying. */
interface Run {
  readonly start: number;
  end: number;
  readonly empty: boolean;
}

function runsOf(image: Uint8Array): Run[] {
  const size = 1 << 16;
  const runs: Run[] = [];
  for (let start = 0; start < image.length; start += size) {
    const end = Math.min(start + size, image.length);
    const empty = image.subarray(start, end).every((byte) => byte === 0);
    const last = runs.at(-1);
    if (last?.empty === empty) last.end = end;
    else runs.push({ start, end, empty });
  }
  return runs;
}

let interpreter: Interpreter;
let shared: Int32Array;

function runJob(job: Job): void {
  let ending: Ending = "done";
  let detail: string | undefined;
  interpreter.channel.beginJob();
  guard.lock();
  try {
    Atomics.store(shared, SHARED.call, CALL.loading);
    const loaded = interpreter.step(["load", job.source]) ?? "!not an answer";
    if (loaded === "=") ending = runCalls(job);
    else [ending, detail] = ["load", loaded.slice(0, 300)];
  } catch (error) {
    // Python raises nothing out of a step: the interpreter itself has stopped.
    [ending, detail] = ["crashed", String(error).slice(0, 300)];
  }
  Atomics.store(shared, SHARED.call, CALL.idle);
  guard.unlock();
  // A refusal fails the job even where the program continued after it.
  if (guard.refused !== undefined) [ending, detail] = ["refused", guard.refused];
  const last = ending === "crashed" || ending === "refused" || !interpreter.isReusable();
  // The end is told first: setting the memory back then overlaps with the grading.
  post({ type: "end", ending, detail, last });
  if (last) return;
  interpreter.restore();
  post({ type: "rest" });
}

function runCalls({ entryPoint, inputs, rule }: Job): Ending {
  let texts: string[] = [];
  let seconds: number[] = [];
  let first = 0;
  let characters = 0;
  let sent = performance.now();
  const send = () => {
    if (texts.length > 0) post({ type: "results", first, texts, seconds });
    first += texts.length;
    [texts, seconds, characters, sent] = [[], [], 0, performance.now()];
  };
  for (const [index, input] of inputs.entries()) {
    Atomics.store(shared, SHARED.call, index);
    const begin = performance.now();
    const text = interpreter.step(["call", entryPoint, rule, input]) ?? "!not an answer";
    const end = performance.now();
    texts.push(text);
    seconds.push((end - begin) / 1000);
    characters += text.length;
    const failed = text[0] !== "=";
    if (
      failed || texts.length >= BATCH.calls || characters >= BATCH.characters ||
      end - sent >= BATCH.milliseconds
    ) send();
    if (failed) return "call";
    if (Atomics.load(shared, SHARED.stop) !== 0) return "stopped";
  }
  send();
  return "done";
}

self.onmessage = async ({ data }: MessageEvent<WorkerRequest>) => {
  if (data.type === "job") return runJob(data.job);
  silence();
  hideRuntime();
  shared = new Int32Array(data.shared);
  interpreter = await open(data.folder);
  permissions.revokeSync({ name: "read" });
  post({ type: "ready", version: interpreter.version });
};
