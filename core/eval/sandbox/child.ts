/**
 * The process in which model-written code runs: one worker with an interpreter, and a supervisor thread
 * that keeps the limits of time and memory.
 *
 * The evaluator starts it with few permissions (see `command.ts`) and feeds it through stdin. An endless
 * loop cannot stop the supervisor's clock, and no worker is ever terminated: the process exits, which
 * works whatever the worker does. It also exits when stdin ends, so none outlives the evaluator.
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
  type Settings,
  SHARED,
  type WorkerAnswer,
  type WorkerRequest,
} from "./protocol.ts";

/** Interval at which the clocks are checked, in milliseconds. */
const TICK = 20;

/** Share of the memory limit above which a child takes no further job. */
const FULL = 2 / 3;

/** Runs this process as a sandbox child. */
export async function serve(): Promise<void> {
  const input = lines(Deno.stdin.readable, Infinity);
  const settings: Settings = JSON.parse((await input.next()).value ?? "{}");
  for (const name of ["write", "net", "env", "run", "sys", "ffi", "import"] as const) {
    Deno.permissions.revokeSync({ name });
  }
  const supervisor = new Supervisor(settings);
  for await (const text of input) {
    const request: Request = JSON.parse(text);
    if (request.type === "stop") supervisor.stop(request.id);
    else supervisor.start(request.id, request.job);
  }
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
  readonly #worker: Worker;
  /** True if the worker came up, and whether it waits for a job. */
  #ready = false;
  #resting = false;
  #running: Running | undefined;

  constructor(settings: Settings) {
    this.#settings = settings;
    Atomics.store(this.#shared, SHARED.call, CALL.idle);
    this.#worker = new Worker(new URL("./interpreter.ts", import.meta.url), {
      type: "module",
      deno: { permissions: { ...NO_PERMISSIONS, read: [settings.folder] } },
    });
    this.#worker.onmessage = ({ data }: MessageEvent<WorkerAnswer>) => this.#take(data);
    this.#worker.onerror = (event) => {
      event.preventDefault(); // else the runtime ends this process without a word
      this.#lose(event.message);
    };
    const { buffer: shared } = this.#shared;
    this.#post({ type: "open", folder: pathToFileURL(settings.folder).href, shared });
    setInterval(() => this.#watch(), TICK);
  }

  start(id: number, job: Job): void {
    this.#running = { id, job, call: CALL.idle, since: 0, wallBegun: 0 };
    this.#begin();
  }

  stop(id: number): void {
    if (this.#running?.id === id) Atomics.store(this.#shared, SHARED.stop, 1);
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
