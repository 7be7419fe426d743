/**
 * A worker that holds one Python interpreter and runs one job at a time. See `child.ts`.
 *
 * After each job its memory is set back to the image taken when it was ready, byte for byte: whatever
 * a program patched, hid or left running in Python is gone, at the price of copying some 30 MB. What
 * lies in JavaScript memory instead (files, open streams) cannot be changed or is put back by hand.
 */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { closeGlobals, freezeFiles, limitMemory, quiet } from "./lockdown.ts";
import { CALL, SHARED, type WorkerAnswer, type WorkerRequest } from "./protocol.ts";
import { RUNNER } from "./runner_text.ts";
import type { Ending, Job } from "./sandbox.ts";

/** Modules that many solutions import: an image that holds them saves their loading each time. */
const USUAL =
  "ast bisect cmath collections copy datetime decimal fractions functools hashlib heapq io itertools " +
  "json math operator random re statistics string sys time tokenize typing";

/** A grown memory is worn: clearing all of it after every job would cost more than a new worker. */
const WORN_BYTES = 192 * 2 ** 20;

/** Results are sent on when they are this many, this long or this old. */
const BATCH = { calls: 256, characters: 1 << 20, milliseconds: 50 };

/** Longer answers are not the runner's, which tells long values by a hash. */
const LONGEST = 1 << 23;

// deno-lint-ignore no-explicit-any
type Pyodide = any;

/** Taken now, while the program is its own. */
const post: (answer: WorkerAnswer) => void = self.postMessage.bind(self);
const now: () => number = performance.now.bind(performance);
const { load: loadAtomic, store: storeAtomic } = Atomics;

/** An interpreter at rest. */
interface Interpreter {
  /** The runner's functions; each returns text. */
  readonly load: (source: string) => string | undefined;
  readonly call: (entry: string, rule: string, text: string) => string;
  /** Goes back to the state of the image; false if the worker should be replaced. */
  readonly restore: () => boolean;
  readonly version: string;
}

async function loadPython(options: Record<string, unknown>): Promise<Pyodide> {
  const { loadPyodide } = await import("pyodide");
  const none = () => {};
  return await loadPyodide({
    // Python sees no JavaScript globals.
    jsglobals: Object.create(null),
    stdout: none,
    stderr: none,
    ...options,
  });
}

function define(python: Pyodide): void {
  python.runPython(`import ${USUAL.replaceAll(" ", ", ")}`);
  python.runPython(RUNNER);
}

async function open(snapshot: Uint8Array | null): Promise<Interpreter> {
  const python = await loadPython(snapshot ? { _loadSnapshot: snapshot } : {});
  if (!snapshot) define(python);
  const [load, call] = ["load", "call"].map((name) => python.globals.get(name));
  const version = String(python.runPython("import sys; sys.version.split()[0]"));
  const swallow = { write: (bytes: Uint8Array) => bytes.length, isatty: false };
  python.setStdin({ error: true });
  python.setStdout(swallow);
  python.setStderr(swallow);
  for (const name of ["js", "pyodide_js"]) {
    python.unregisterJsModule(name);
    python.runPython(`sys.modules.pop("${name}", None)`);
  }
  freezeFiles(python);
  return { load, call, version, restore: restorer(python) };
}

/** Takes the image; what it returns goes back to it. */
function restorer(python: Pyodide): () => boolean {
  const { FS, _module: module } = python;
  const image: Uint8Array = module.HEAPU8.slice();
  const runs = runsOf(image);
  const streams = [...FS.streams];
  const folder = FS.cwd();
  return () => {
    const heap: Uint8Array = module.HEAPU8;
    if (heap.length > WORN_BYTES) return false;
    for (const { start, end, empty } of runs) {
      if (empty) heap.fill(0, start, end);
      else heap.set(image.subarray(start, end), start);
    }
    heap.fill(0, image.length);
    FS.streams.length = 0;
    FS.streams.push(...streams);
    FS.chdir(folder);
    return true;
  };
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
  try {
    storeAtomic(shared, SHARED.call, CALL.loading);
    detail = interpreter.load(job.source);
    ending = detail === undefined ? runCalls(job) : "load";
  } catch (error) {
    // Nothing that Python raises comes here: the interpreter itself has stopped.
    [ending, detail] = ["crashed", String(error).slice(0, 300)];
  }
  storeAtomic(shared, SHARED.call, CALL.idle);
  // The end is told first: the copying then overlaps with the judging.
  post({ type: "end", ending, detail });
  post({ type: "rest", worn: ending === "crashed" || !interpreter.restore() });
}

function runCalls({ entryPoint, inputs, rule }: Job): Ending {
  let texts: string[] = [];
  let seconds: number[] = [];
  let first = 0;
  let characters = 0;
  let sent = now();
  const send = () => {
    if (texts.length > 0) post({ type: "results", first, texts, seconds });
    first += texts.length;
    [texts, seconds, characters, sent] = [[], [], 0, now()];
  };
  for (const [index, input] of inputs.entries()) {
    storeAtomic(shared, SHARED.call, index);
    const begin = now();
    const result: unknown = interpreter.call(entryPoint, rule, input);
    const end = now();
    // A program may have put anything in the place of the runner.
    const text = typeof result === "string" && result.length < LONGEST ? result : "!not an answer";
    texts.push(text);
    seconds.push((end - begin) / 1000);
    characters += text.length;
    const failed = text[0] !== "=";
    if (
      failed || texts.length >= BATCH.calls || characters >= BATCH.characters ||
      end - sent >= BATCH.milliseconds
    ) send();
    if (failed) return "call";
    if (loadAtomic(shared, SHARED.stop) !== 0) return "stopped";
  }
  send();
  return "done";
}

self.onmessage = async ({ data }: MessageEvent<WorkerRequest>) => {
  if (data.type === "job") return runJob(data.job);
  quiet();
  if (data.type === "snapshot") {
    const python = await loadPython({ _makeSnapshot: true });
    define(python);
    post({ type: "snapshot", bytes: python.makeMemorySnapshot() });
    return;
  }
  limitMemory(data.memoryBytes);
  shared = new Int32Array(data.shared);
  interpreter = await open(data.snapshot);
  Deno.permissions.revokeSync({ name: "read" });
  closeGlobals();
  post({ type: "ready", version: interpreter.version });
};
