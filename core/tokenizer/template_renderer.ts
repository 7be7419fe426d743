/**
 * Renders chat templates, which come with a checkpoint and are not trusted: in a worker without any
 * permission, for a limited time, with limited memory and output.
 *
 * One worker serves all requests of a thread. It limits itself; one that fails to is terminated.
 */
import { DataError } from "../base/errors.ts";
import { LazyThread, Thread } from "../base/thread.ts";

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

const looks = new Int32Array(new SharedArrayBuffer(4));

const thread = new LazyThread<CountedRequest, RenderAnswer>(
  () => new Thread(new URL("./template_worker.ts", import.meta.url), "template worker", false),
  IDLE_MS,
);

/** Ends when all earlier templates are rendered. */
let last: Promise<unknown> = Promise.resolve();

/**
 * Renders a template, one at a time, so that limits are its own.
 * @throws {DataError} with what the template says, or with the limit it broke
 */
export function renderTemplate(request: RenderRequest): Promise<string> {
  const rendered = last.then(() => render(request));
  last = rendered.catch(() => {});
  return rendered;
}

async function render(request: RenderRequest): Promise<string> {
  const watch = watchLimits();
  try {
    const answer = await thread.ask({ ...request, looks });
    if (answer.isWornOut) thread.end();
    if ("text" in answer) return answer.text;
    throw new DataError(answer.error);
  } catch (error) {
    if (error instanceof DataError) throw error;
    // The worker died, or a variable is no data, such as a function.
    throw new DataError((error as Error).message);
  } finally {
    clearInterval(watch);
  }
}

/** Ends a worker that breaks a limit: it may be in an endless loop. */
function watchLimits(): ReturnType<typeof setInterval> {
  const began = performance.now();
  let seen = -1, memory = 0;
  return setInterval(() => {
    const { rss } = Deno.memoryUsage(), count = Atomics.load(looks, 0);
    if (count !== seen) [seen, memory] = [count, rss];
    if (performance.now() - began > MAX_MS) {
      thread.end(new DataError(`it takes more than ${MAX_MS / 1000} s`));
    } else if (rss - memory > MAX_GROWTH_BYTES) {
      thread.end(new DataError("it takes too much memory"));
    }
  }, LOOK_MS);
}
