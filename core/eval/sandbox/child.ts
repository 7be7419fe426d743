/**
 * The process in which model-written code runs: one worker with an interpreter, and a supervisor thread
 * that keeps the limits of time and memory.
 *
 * The evaluator starts it with few permissions (see `command.ts`) and feeds it through stdin. An endless
 * loop cannot stop the supervisor's clock, and no worker is ever terminated: the process exits, which
 * works whatever the worker does. It also exits when stdin ends, so none outlives the evaluator. With a
 * second argument it writes a memory snapshot to that path instead; no model-written code ever runs in
 * a process that may write.
 */
import process from "node:process";
import { pathToFileURL } from "node:url";
import { NO_PERMISSIONS } from "../../base/worker_permissions.ts";
import { type Ending, type Job, wallLimit } from "./job.ts";
import {
  type Answer,
  CALL,
  line,
  lines,
  type Request,
  SANDBOX_ARGUMENT,
  type Settings,
  SHARED,
  type WorkerAnswer,
  type WorkerRequest,
} from "./protocol.ts";

/** Interval at which the clocks are checked, in milliseconds. */
const TICK = 20;

/** Share of the memory limit above which a child takes no further job. */
const FULL = 2 / 3;

/** Runs this process as a sandbox child; `args` are the process's arguments. */
export async function serve(args: readonly string[] = Deno.args): Promise<void> {
  const [folder, snapshot] = args.filter((argument) => argument !== SANDBOX_ARGUMENT);
  if (folder && snapshot) return await writeSnapshot(folder, snapshot);
  const input = lines(Deno.stdin.readable, Infinity);
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
  Deno.exit(0);
}

function newWorker(folder: string): Worker {
  return new Worker(new URL("./interpreter.ts", import.meta.url), {
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
  worker.postMessage(
    { type: "snapshot", folder: pathToFileURL(folder).href } satisfies WorkerRequest,
  );
  const bytes = await made.promise;
  const temporary = `${path}.${crypto.randomUUID()}`;
  {
    using file = await Deno.open(temporary, { write: true, createNew: true });
    for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
    await file.sync();
  }
  await Deno.rename(temporary, path);
  Deno.exit(0);
}

/** Milliseconds by the clock of a job. */
function clockOf({ clock }: Job): number {
  if (clock !== "cpu") return performance.now();
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** A job under way and its clocks. */
interface Running {
  readonly id: number;
  readonly job: Job;
  /** When the worker began, by the job's clock; undefined while the job waits for it. */
  begun?: number;
  /** The same by the clock on the wall. */
  wallBegun: number;
  /** The call it is at, and since when. */
  call: number;
  since: number;
}

/** Keeps one worker and watches the clocks and the memory of its job. */
class Supervisor {
  readonly #settings: Settings;
  readonly #shared = new Int32Array(new SharedArrayBuffer(4 * SHARED.length));
  #snapshot: Uint8Array<ArrayBuffer> | null;
  #worker!: Worker;
  /** True if the worker came up, and whether it waits for a job. */
  #ready = false;
  #resting = false;
  #running: Running | undefined;

  constructor(settings: Settings, snapshot: Uint8Array<ArrayBuffer> | null) {
    this.#settings = settings;
    this.#snapshot = snapshot;
    this.#open();
    setInterval(() => this.#watch(), TICK);
  }

  start(id: number, job: Job): void {
    this.#running = { id, job, call: CALL.idle, since: 0, wallBegun: 0 };
    this.#begin();
  }

  stop(id: number): void {
    if (this.#running?.id === id) Atomics.store(this.#shared, SHARED.stop, 1);
  }

  #open(): void {
    Atomics.store(this.#shared, SHARED.call, CALL.idle);
    const worker = newWorker(this.#settings.folder);
    this.#worker = worker;
    worker.onmessage = ({ data }: MessageEvent<WorkerAnswer>) => this.#take(data);
    worker.onerror = (event) => {
      event.preventDefault(); // else the runtime ends this process without a word
      this.#lose(event.message);
    };
    const { buffer: shared } = this.#shared;
    const folder = pathToFileURL(this.#settings.folder).href;
    this.#post({ type: "open", folder, snapshot: this.#snapshot, shared });
  }

  #take(answer: WorkerAnswer): void {
    const running = this.#running;
    if (answer.type === "ready") {
      Deno.permissions.revokeSync({ name: "read" });
      this.#say({ type: "ready", version: answer.version });
      this.#ready = this.#resting = true;
      this.#begin();
    } else if (answer.type === "results" && running) {
      this.#say({ ...answer, id: running.id });
    } else if (answer.type === "end" && running) {
      // What one job left uncollected must not count as the memory of the next.
      const isFull = Deno.memoryUsage().rss > FULL * this.#settings.residentBytes;
      this.#end(answer.ending, answer.last || isFull, answer.detail);
    } else if (answer.type === "rest") {
      this.#resting = true;
      this.#begin();
    }
  }

  /** Gives the waiting job to the worker, if there is one and it is at rest. */
  #begin(): void {
    if (!this.#running || !this.#resting || this.#running.begun !== undefined) return;
    this.#resting = false;
    this.#running.begun = clockOf(this.#running.job);
    this.#running.wallBegun = performance.now();
    Atomics.store(this.#shared, SHARED.stop, 0);
    this.#post({ type: "job", job: this.#running.job });
  }

  #watch(): void {
    const running = this.#running;
    if (running?.begun === undefined) return;
    if (Deno.memoryUsage().rss > this.#settings.residentBytes) return this.#end("memory", true);
    const now = clockOf(running.job);
    const call = Atomics.load(this.#shared, SHARED.call);
    if (call !== running.call) [running.call, running.since] = [call, now];
    const limit = running.job.limits[call];
    if (limit !== undefined && now - running.since > 1000 * limit) this.#end("input_limit", true);
    else if (now - running.begun > 1000 * running.job.totalLimit) this.#end("killed", true);
    else if (performance.now() - running.wallBegun > 1000 * wallLimit(running.job)) {
      this.#end("killed", true);
    }
  }

  /** The worker died of itself. */
  #lose(detail: string): void {
    if (this.#ready) {
      this.#end("crashed", true, detail);
    } else if (this.#snapshot) {
      // A snapshot of another version, perhaps: the slow way needs none.
      this.#snapshot = null;
      this.#open();
    } else {
      this.#say({ type: "broken", detail });
      Deno.exit(1);
    }
  }

  #end(ending: Ending, last: boolean, detail?: string): void {
    const running = this.#running;
    this.#running = undefined;
    if (running) this.#say({ type: "end", id: running.id, ending, detail, last });
    if (last) Deno.exit(0);
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
