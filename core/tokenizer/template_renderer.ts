/**
 * Renders chat templates, which come with a checkpoint and are not trusted: in a worker without any
 * permission, for a limited time, with limited memory and output.
 *
 * One worker serves all requests of a thread. It starts with the first and ends when none has come for
 * a while, since it would keep a program alive. The worker limits itself; one that fails to is terminated.
 */
import { DataError } from "../base/errors.ts";
import { NO_PERMISSIONS } from "../base/worker_permissions.ts";

/** Request to render a template. */
export interface RenderRequest {
  readonly template: string;
  readonly variables: Readonly<Record<string, unknown>>;
}

/** Request to the worker: `looks[0]` counts how often it has checked its own limits. */
export type CountedRequest = RenderRequest & { readonly looks: Int32Array<SharedArrayBuffer> };

/** The text, or why there is none. */
export type RenderResult = { readonly text: string } | { readonly error: string };

/** Answer of the worker; one whose memory is full of garbage is not asked again. */
export type RenderAnswer = RenderResult & { readonly isWornOut: boolean };

/**
 * Limits of a template: honest ones take a millisecond. The memory is that of the whole process, which
 * other threads fill too, so it counts only from the last time the worker checked its own.
 */
const MAX_MS = 10_000, MAX_GROWTH_BYTES = 512 << 20;

/** A look at the clock and the memory of the process; the first comes after honest ones have ended. */
const LOOK_MS = 25;

const IDLE_MS = 500;

let running: TemplateWorker | undefined;

/** Renders a template, one at a time. Fails with what the template says, or with the limit it broke. */
export async function renderTemplate(request: RenderRequest): Promise<string> {
  running ??= new TemplateWorker(() => running = undefined);
  const answer = await running.render(request);
  if ("text" in answer) return answer.text;
  throw new DataError(answer.error);
}

class TemplateWorker {
  #worker: Worker;
  readonly #onEnd: () => void;
  readonly #waiting: (PromiseWithResolvers<RenderResult> & { readonly request: RenderRequest })[] =
    [];
  #watch: ReturnType<typeof setInterval> | undefined;
  #idle: ReturnType<typeof setTimeout> | undefined;
  readonly #looks = new Int32Array(new SharedArrayBuffer(4));
  #began = 0;
  #seenLooks = -1;
  #memory = 0;

  constructor(onEnd: () => void) {
    this.#onEnd = onEnd;
    this.#worker = this.#start();
  }

  #start(): Worker {
    const worker = new Worker(new URL("./template_worker.ts", import.meta.url), {
      type: "module",
      deno: { permissions: { ...NO_PERMISSIONS, read: false } },
    });
    worker.onmessage = ({ data }: MessageEvent<RenderAnswer>) => {
      this.#waiting.shift()!.resolve(data);
      if (data.isWornOut) {
        worker.terminate();
        this.#worker = this.#start();
      }
      this.#begin();
    };
    worker.onerror = (event) => {
      event.preventDefault(); // else the runtime ends the program
      this.#end(event.message);
    };
    return worker;
  }

  render(request: RenderRequest): Promise<RenderResult> {
    const pending = Promise.withResolvers<RenderResult>();
    this.#waiting.push({ ...pending, request });
    if (this.#waiting.length === 1) this.#begin();
    return pending.promise;
  }

  /** Sends the first request that waits and starts its clock, or that of idleness. */
  #begin(): void {
    clearInterval(this.#watch);
    clearTimeout(this.#idle);
    if (this.#waiting.length === 0) {
      this.#idle = setTimeout(() => this.#end("idle"), IDLE_MS);
      Deno.unrefTimer(this.#idle as unknown as number);
      return;
    }
    this.#began = performance.now();
    this.#seenLooks = -1;
    this.#watch = setInterval(() => this.#look(), LOOK_MS);
    try {
      const { request } = this.#waiting[0]!;
      this.#worker.postMessage({ ...request, looks: this.#looks } satisfies CountedRequest);
    } catch (error) { // a variable that is no data, such as a function
      this.#waiting.shift()!.resolve({ error: (error as Error).message });
      this.#begin();
    }
  }

  #look(): void {
    const { rss } = Deno.memoryUsage(), looks = Atomics.load(this.#looks, 0);
    if (looks !== this.#seenLooks) [this.#seenLooks, this.#memory] = [looks, rss];
    if (performance.now() - this.#began > MAX_MS) {
      this.#end(`it takes more than ${MAX_MS / 1000} s`);
    } else if (rss - this.#memory > MAX_GROWTH_BYTES) this.#end("it takes too much memory");
  }

  /** Ends the worker, which may be in an endless loop, and rejects what waits for it. */
  #end(reason: string): void {
    clearInterval(this.#watch);
    clearTimeout(this.#idle);
    this.#worker.terminate();
    this.#onEnd();
    for (const { resolve } of this.#waiting.splice(0)) resolve({ error: reason });
  }
}
