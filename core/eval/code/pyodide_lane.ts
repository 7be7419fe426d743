/**
 * The lane that every machine has: CPython compiled to WebAssembly, in child processes.
 *
 * Comes in: jobs, as many at once as the caller likes. Goes out: their results. Each child holds one
 * interpreter and gets one job at a time, so whatever a program destroys, it was its own. A child is
 * replaced when it dies and after some workers had to be ended in it, since those leave memory behind.
 */
import { EnvironmentError } from "../../errors.ts";
import { SANDBOX_ARGUMENT } from "./argument.ts";
import { type Answer, answerIn, line, lines, type Request, type Settings } from "./protocol.ts";
import { type End, endProcess, type Job, type Results, type Sandbox } from "./sandbox.ts";
import { ensureSnapshot } from "./snapshot.ts";

/** Workers ended by force before their process is replaced. */
const KILLS_PER_CHILD = 6;

/** Seconds a child has to come up, and to answer after its own clocks ran out. */
const PATIENCE = { start: 120, answer: 30 };

/** What is said of a job whose process died. */
const LOST = "the sandbox process ended";

/** What the lane needs to know. */
export interface PyodideOptions {
  /** Interpreters at once. */
  readonly workers: number;
  /** Limit of each interpreter's memory. */
  readonly memoryBytes: number;
  /** Where memory snapshots are kept. */
  readonly cacheFolder: string;
}

/** Opens the lane and one interpreter. */
export async function openPyodide(options: PyodideOptions): Promise<Sandbox> {
  const folder = pathOf(new URL(".", import.meta.resolve("pyodide")));
  const snapshot = await ensureSnapshot(options.cacheFolder, folder, childCommand);
  const lane = new PyodideLane(options.workers, {
    snapshot,
    folder,
    memoryBytes: options.memoryBytes,
  });
  await lane.open();
  return lane;
}

function pathOf(url: URL): string {
  return decodeURIComponent(url.pathname);
}

/** Starts a child with these permissions beyond reading the interpreter; `args` are its own. */
export function childCommand(
  read: readonly string[],
  write: readonly string[],
  args: string[],
): Deno.Command {
  const env = Object.fromEntries(
    ["PATH", "HOME", "DENO_DIR", "XDG_CACHE_HOME"].map((name) => [name, Deno.env.get(name) ?? ""])
      .filter(([, value]) => value !== ""),
  );
  const entry = new URL("./child.ts", import.meta.url);
  const permissions = [
    `--allow-read=${[pathOf(new URL(".", entry)), ...read].join(",")}`,
    ...(write.length > 0 ? [`--allow-write=${write.join(",")}`] : []),
  ];
  const run = ["run", "--quiet", "--no-prompt", "--no-check", "--cached-only", "--no-remote"];
  return new Deno.Command(Deno.execPath(), {
    args: Deno.build.standalone
      ? [SANDBOX_ARGUMENT, ...args]
      : [...run, "--unstable-worker-options", ...permissions, entry.href, ...args],
    clearEnv: true,
    env: { ...env, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  });
}

class PyodideLane implements Sandbox {
  readonly lane = "pyodide";
  pythonVersion = "";
  readonly #settings: Omit<Settings, "token">;
  readonly #workers: number;
  readonly #children = new Set<Child>();
  readonly #idle: Child[] = [];
  readonly #waiting: PromiseWithResolvers<Child>[] = [];
  #closed = false;

  constructor(workers: number, settings: Omit<Settings, "token">) {
    this.#workers = workers;
    this.#settings = settings;
  }

  async open(): Promise<void> {
    const child = this.#start();
    this.pythonVersion = await child.ready;
    this.#release(child);
  }

  async run(job: Job, onResults: (results: Results) => boolean): Promise<End> {
    let silent = true;
    const listen = (results: Results) => {
      silent = false;
      return onResults(results);
    };
    const end = await this.#try(job, listen).catch((error): End => {
      if (!(error instanceof EnvironmentError)) throw error;
      return { ending: "crashed", detail: LOST };
    });
    // The process may have died before it began, or of something outside: once more, in another.
    return end.ending === "crashed" && end.detail === LOST && silent
      ? await this.#try(job, listen)
      : end;
  }

  async #try(job: Job, onResults: (results: Results) => boolean): Promise<End> {
    const child = await this.#acquire();
    try {
      await child.ready;
      return await child.run(job, onResults);
    } finally {
      this.#release(child);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#children].map((child) => child.close()));
  }

  #start(): Child {
    const child = new Child(this.#settings);
    this.#children.add(child);
    return child;
  }

  #acquire(): Promise<Child> {
    const idle = this.#idle.pop();
    if (idle) return Promise.resolve(idle);
    if (this.#children.size < this.#workers) return Promise.resolve(this.#start());
    const waiting = Promise.withResolvers<Child>();
    this.#waiting.push(waiting);
    return waiting.promise;
  }

  #release(child: Child): void {
    let free = child;
    if (child.dead || child.kills >= KILLS_PER_CHILD) {
      this.#children.delete(child);
      child.close();
      if (this.#closed || this.#waiting.length === 0) return;
      free = this.#start();
    }
    const waiting = this.#waiting.shift();
    if (waiting) waiting.resolve(free);
    else this.#idle.push(free);
  }
}

/** A job under way in a child. */
interface Running {
  readonly id: number;
  readonly onResults: (results: Results) => boolean;
  readonly end: PromiseWithResolvers<End>;
}

/** One child process. */
class Child {
  readonly #process: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array<ArrayBuffer>>;
  /** Unguessable, new for each process, and never told to a worker. */
  readonly #token = `${crypto.randomUUID()} `;
  readonly #ready = Promise.withResolvers<string>();
  readonly #done: Promise<unknown>;
  #running: Running | undefined;
  #jobs = 0;
  #errors = "";
  kills = 0;
  dead = false;

  constructor(settings: Omit<Settings, "token">) {
    const { folder, snapshot } = settings;
    this.#process = childCommand(snapshot ? [folder, snapshot] : [folder], [], []).spawn();
    this.#input = this.#process.stdin.getWriter();
    this.#send({ ...settings, token: this.#token });
    this.#ready.promise.catch(() => {}); // whoever needs it sees it
    const late = setTimeout(() => endProcess(this.#process), 1000 * PATIENCE.start);
    this.#ready.promise.finally(() => clearTimeout(late)).catch(() => {});
    this.#done = Promise.all([this.#listen(), this.#keepErrors(), this.#process.status]);
  }

  /** The version of its Python, once it is up. */
  get ready(): Promise<string> {
    return this.#ready.promise;
  }

  async run(job: Job, onResults: (results: Results) => boolean): Promise<End> {
    if (this.dead) return { ending: "crashed", detail: LOST };
    const running = { id: this.#jobs++, onResults, end: Promise.withResolvers<End>() };
    this.#running = running;
    this.#send({ type: "job", id: running.id, job });
    const late = setTimeout(
      () => endProcess(this.#process),
      1000 * (job.totalLimit + PATIENCE.answer),
    );
    try {
      return await running.end.promise;
    } finally {
      clearTimeout(late);
      this.#running = undefined;
    }
  }

  async close(): Promise<void> {
    if (!this.dead) endProcess(this.#process);
    this.dead = true;
    await this.#done;
  }

  #send(message: Request | Settings): void {
    // A child that is gone is noticed at the other end.
    this.#input.write(line(message)).catch(() => {});
  }

  async #listen(): Promise<void> {
    for await (const text of lines(this.#process.stdout)) {
      const answer = answerIn(text, this.#token);
      if (answer) this.#hear(answer);
    }
    this.dead = true;
    await this.#input.abort().catch(() => {});
    const said = this.#errors.trim().split("\n")[0];
    this.#ready.reject(
      new EnvironmentError(`Cannot start the Python sandbox: ${said || "its process ended"}`, {
        hints: ["Run `deno install` to complete the npm package pyodide."],
      }),
    );
    this.#running?.end.resolve({ ending: "crashed", detail: LOST });
  }

  #hear(answer: Answer): void {
    const running = this.#running;
    if (answer.type === "ready") this.#ready.resolve(answer.version);
    else if (answer.type === "broken") {
      this.#errors = `${answer.detail}\n${this.#errors}`;
      endProcess(this.#process);
    } else if (running && answer.id === running.id) {
      if (answer.type === "end") {
        this.kills = answer.kills;
        running.end.resolve({ ending: answer.ending, detail: answer.detail });
      } else if (!running.onResults(answer)) {
        this.#send({ type: "stop", id: running.id });
      }
    }
  }

  async #keepErrors(): Promise<void> {
    for await (const text of this.#process.stderr.pipeThrough(new TextDecoderStream())) {
      this.#errors = (this.#errors + text).slice(0, 4000);
    }
  }
}
