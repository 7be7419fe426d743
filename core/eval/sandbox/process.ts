/** One sandbox child as the evaluator sees it: a process that runs one job at a time. */
import { EnvironmentError } from "../../base/errors.ts";
import { childCommand, type Shell } from "./command.ts";
import { type End, type Job, type Results, wallLimit } from "./job.ts";
import { type Answer, answerIn, line, lines, type Request, type Settings } from "./protocol.ts";

/** Seconds a child has to come up, and to answer after its own clocks ran out. */
const PATIENCE = { start: 120, answer: 10 };

/** Characters that one job may answer with in all. */
const JOB_CHARACTERS = 128 * 2 ** 20;

/** Detail of a job whose process died. */
export const LOST = "the sandbox process ended";

/** A job under way. */
interface Running {
  readonly id: number;
  readonly onResults: (results: Results) => boolean;
  readonly end: PromiseWithResolvers<End>;
  characters: number;
}

export class Child {
  readonly #process: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array<ArrayBuffer>>;
  /** Unguessable, new for each process, and never told to a worker. */
  readonly #token = `${crypto.randomUUID()} `;
  readonly #ready = Promise.withResolvers<string>();
  readonly #done: Promise<unknown>;
  #running: Running | undefined;
  #jobs = 0;
  #errors = "";
  /** Takes no further job. */
  dead = false;

  constructor(settings: Omit<Settings, "token">, shell: Shell) {
    this.#process = childCommand(shell, settings.folder).spawn();
    this.#input = this.#process.stdin.getWriter();
    this.#send({ ...settings, token: this.#token });
    this.#ready.promise.catch(() => {}); // its reader gets the failure
    const late = setTimeout(() => this.#kill(), 1000 * PATIENCE.start);
    this.#ready.promise.finally(() => clearTimeout(late)).catch(() => {});
    this.#done = Promise.all([this.#listen(), this.#keepErrors(), this.#process.status]);
  }

  /** The version of its Python, once it is up. */
  get ready(): Promise<string> {
    return this.#ready.promise;
  }

  async run(job: Job, onResults: (results: Results) => boolean): Promise<End> {
    if (this.dead) return { ending: "crashed", detail: LOST };
    const end = Promise.withResolvers<End>();
    const running = { id: this.#jobs++, onResults, end, characters: 0 };
    this.#running = running;
    this.#send({ type: "job", id: running.id, job });
    const late = setTimeout(() => this.#kill(), 1000 * (wallLimit(job) + PATIENCE.answer));
    try {
      return await end.promise;
    } finally {
      clearTimeout(late);
      this.#running = undefined;
    }
  }

  async close(): Promise<void> {
    this.dead = true;
    this.#kill();
    await this.#done;
  }

  #kill(): void {
    try {
      this.#process.kill("SIGKILL");
    } catch {
      // It has ended.
    }
    // bubblewrap that is killed as it starts leaves a process behind, which ends with its input.
    this.#input.abort().catch(() => {});
  }

  #send(message: Request | Settings): void {
    // A child that is gone is noticed at the other end.
    this.#input.write(line(message)).catch(() => {});
  }

  async #listen(): Promise<void> {
    for await (const text of lines(this.#process.stdout)) {
      const answer = answerIn(text, this.#token);
      if (answer) this.#take(answer);
    }
    this.dead = true;
    await this.#input.abort().catch(() => {});
    const said = this.#errors.replace(/\p{Cc}+/gu, " ").trim().slice(0, 300);
    this.#ready.reject(
      new EnvironmentError(`the Python sandbox does not start: ${said || "its process ended"}`, {
        hints: ["`deno install` completes the npm package pyodide"],
      }),
    );
    this.#running?.end.resolve({ ending: "crashed", detail: LOST });
  }

  #take(answer: Answer): void {
    const running = this.#running;
    if (answer.type === "ready") this.#ready.resolve(answer.version);
    else if (answer.type === "broken") {
      this.#errors = `${answer.detail}\n${this.#errors}`;
    } else if (running && answer.id === running.id) {
      if (answer.type === "end") {
        if (answer.last) this.dead = true;
        running.end.resolve({ ending: answer.ending, detail: answer.detail });
        return;
      }
      running.characters += answer.texts.reduce((sum, { length }) => sum + length, 0);
      if (running.characters > JOB_CHARACTERS) {
        this.dead = true;
        this.#kill();
        running.end.resolve({ ending: "refused", detail: "output limit" });
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
