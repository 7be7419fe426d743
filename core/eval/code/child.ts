/**
 * The process in which model-written code runs: one supervised worker, fed through stdin.
 *
 * Comes in: settings, then jobs, as JSON lines. Goes out: results and ends, as lines with a token. The
 * supervisor shares no thread with the interpreter, so an endless loop cannot stop its clock; the
 * process shares no memory with the evaluator, so a memory bomb takes only this process along.
 *
 * The evaluator starts it with `Deno.execPath()`: this file with few permissions, or, in a compiled
 * program, the program itself with `SANDBOX_ARGUMENT` first, and then the permissions are given up
 * here. With a path as the second argument it writes a memory snapshot there instead; no
 * model-written code ever runs in a process that may write.
 */
import { SANDBOX_ARGUMENT } from "./argument.ts";
import {
  type Answer,
  CALL,
  line,
  lines,
  type Request,
  type Settings,
  SHARED,
  type WorkerAnswer,
  type WorkerRequest,
} from "./protocol.ts";
import type { Ending, Job } from "./sandbox.ts";
import { NO_PERMISSIONS } from "../../worker_permissions.ts";

export { SANDBOX_ARGUMENT };

/** How often the clocks are looked at, in milliseconds. */
const TICK = 20;

/** Runs this process as a sandbox child until stdin ends; `args` are the process's arguments. */
export async function serve(args: readonly string[] = Deno.args): Promise<void> {
  const [folder, snapshot] = args.filter((argument) => argument !== SANDBOX_ARGUMENT);
  if (folder && snapshot) return await writeSnapshot(folder, snapshot);
  const input = lines(Deno.stdin.readable);
  const settings: Settings = JSON.parse((await input.next()).value ?? "{}");
  const image = settings.snapshot === null ? null : await Deno.readFile(settings.snapshot);
  for (const name of ["write", "net", "env", "run", "sys", "ffi", "import"] as const) {
    Deno.permissions.revokeSync({ name });
  }
  const supervisor = new Supervisor(settings, image);
  for await (const text of input) {
    const request: Request = JSON.parse(text);
    if (request.type === "stop") supervisor.stop(request.id);
    else supervisor.start(request.id, request.job);
  }
  supervisor.close();
}

function newWorker(folder: string): Worker {
  return new Worker(new URL("./worker.ts", import.meta.url), {
    type: "module",
    deno: { permissions: { ...NO_PERMISSIONS, read: [folder] } },
  });
}

/** Loads an interpreter the slow way and writes its memory, complete or not at all. */
async function writeSnapshot(folder: string, path: string): Promise<void> {
  const worker = newWorker(folder);
  const made = Promise.withResolvers<Uint8Array<ArrayBuffer>>();
  worker.onmessage = ({ data }: MessageEvent<WorkerAnswer>) => {
    if (data.type === "snapshot") made.resolve(data.bytes);
  };
  worker.onerror = (event) => {
    event.preventDefault();
    made.reject(new Error(event.message));
  };
  worker.postMessage({ type: "snapshot" } satisfies WorkerRequest);
  const bytes = await made.promise;
  worker.terminate();
  const temporary = `${path}.${crypto.randomUUID()}`;
  {
    using file = await Deno.open(temporary, { write: true, createNew: true });
    for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
    await file.sync();
  }
  await Deno.rename(temporary, path);
}

/** Workers that a job is given to before its own end is believed. */
const TRIES = 3;

/** A job under way and its clocks. */
interface Running {
  readonly id: number;
  readonly job: Job;
  /** When the worker began, in milliseconds; undefined while the job waits for it. */
  begun?: number;
  /** How many workers it was given to. */
  tries: number;
  /** The call it is at, and since when. */
  call: number;
  since: number;
}

/** Keeps one worker, replaces it when it has to be ended, and watches the clocks of its job. */
class Supervisor {
  readonly #settings: Settings;
  #snapshot: Uint8Array<ArrayBuffer> | null;
  #shared!: Int32Array<SharedArrayBuffer>;
  #worker!: Worker;
  /** Whether this worker ever came up, and whether it waits for a job. */
  #ready = false;
  #resting = false;
  #running: Running | undefined;
  #kills = 0;
  readonly #clock = setInterval(() => this.#watch(), TICK);

  constructor(settings: Settings, snapshot: Uint8Array<ArrayBuffer> | null) {
    this.#settings = settings;
    this.#snapshot = snapshot;
    this.#open();
  }

  start(id: number, job: Job): void {
    this.#running = { id, job, tries: 0, call: CALL.idle, since: 0 };
    this.#begin();
  }

  stop(id: number): void {
    if (this.#running?.id === id) Atomics.store(this.#shared, SHARED.stop, 1);
  }

  close(): void {
    clearInterval(this.#clock);
    this.#worker.terminate();
  }

  #open(): void {
    this.#ready = this.#resting = false;
    const shared = new SharedArrayBuffer(4 * SHARED.length);
    this.#shared = new Int32Array(shared);
    Atomics.store(this.#shared, SHARED.call, CALL.idle);
    const worker = newWorker(this.#settings.folder);
    this.#worker = worker;
    worker.onmessage = ({ data }: MessageEvent<WorkerAnswer>) => {
      // What a worker said before its end may arrive after it.
      if (worker === this.#worker) this.#hear(data);
    };
    worker.onerror = (event) => {
      event.preventDefault(); // else the runtime ends this process
      if (worker === this.#worker) this.#lose(event.message);
    };
    const { memoryBytes } = this.#settings;
    this.#post({ type: "open", snapshot: this.#snapshot, memoryBytes, shared });
  }

  #hear(answer: WorkerAnswer): void {
    const running = this.#running;
    if (answer.type === "ready") {
      this.#say({ type: "ready", version: answer.version });
      this.#ready = this.#resting = true;
      this.#begin();
    } else if (answer.type === "results" && running) {
      this.#say({ ...answer, id: running.id });
    } else if (answer.type === "end" && running) {
      this.#end(answer.ending, answer.detail);
    } else if (answer.type === "rest") {
      if (answer.worn) this.#replace();
      else this.#resting = true;
      this.#begin();
    }
  }

  /** Gives the waiting job to the worker, if there is one and it is at rest. */
  #begin(): void {
    if (!this.#running || !this.#resting || this.#running.begun !== undefined) return;
    this.#resting = false;
    this.#running.begun = performance.now();
    this.#running.tries++;
    Atomics.store(this.#shared, SHARED.stop, 0);
    this.#post({ type: "job", job: this.#running.job });
  }

  #watch(): void {
    const running = this.#running;
    if (running?.begun === undefined) return;
    const now = performance.now();
    const call = Atomics.load(this.#shared, SHARED.call);
    if (call !== running.call) [running.call, running.since] = [call, now];
    const limit = running.job.limits[call];
    if (limit !== undefined && now - running.since > 1000 * limit) this.#kill("input_limit");
    else if (now - running.begun > 1000 * running.job.totalLimit) this.#kill("killed");
  }

  #kill(ending: Ending): void {
    this.#replace();
    this.#end(ending);
  }

  /** The worker died of itself. */
  #lose(detail: string): void {
    if (this.#ready) {
      const call = Atomics.load(this.#shared, SHARED.call);
      this.#replace();
      if (!this.#running) return;
      // A job that had not begun died of what an earlier one left; it gets another worker.
      if (call === CALL.idle && this.#running.tries < TRIES) this.#running.begun = undefined;
      else this.#end("crashed", detail);
    } else if (this.#snapshot) {
      // A snapshot of another version, perhaps: the slow way needs none.
      this.#snapshot = null;
      this.#open();
    } else {
      this.#say({ type: "broken", detail });
    }
  }

  #replace(): void {
    this.#kills++;
    this.#worker.terminate();
    this.#open();
  }

  #end(ending: Ending, detail?: string): void {
    const running = this.#running;
    this.#running = undefined;
    if (running) this.#say({ type: "end", id: running.id, ending, detail, kills: this.#kills });
  }

  #post(request: WorkerRequest): void {
    this.#worker.postMessage(request);
  }

  #say(answer: Answer): void {
    const bytes = line(answer, this.#settings.token);
    for (let done = 0; done < bytes.length;) done += Deno.stdout.writeSync(bytes.subarray(done));
  }
}

if (import.meta.main) await serve();
