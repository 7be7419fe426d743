/**
 * Streams, events and graphs of an emulated machine: when work runs.
 *
 * Work put into a stream does not run at once but when something waits for it, as late as a device may run
 * it, so that host code which reads or reuses memory without waiting fails here.
 */

/** A task in stream order, with its arguments copied. */
export type Work = () => void;

/** Numbers of the driver. */
export const CODE = {
  success: 0,
  invalidValue: 1,
  outOfMemory: 2,
  invalidDevice: 101,
  invalidHandle: 400,
  notFound: 500,
  notReady: 600,
  invalidContext: 201,
  captureUnsupported: 900,
  captureInvalidated: 901,
} as const;

interface Capture {
  readonly work: Work[];
  invalid: boolean;
}

interface Stream {
  queue: Work[];
  capture?: Capture | undefined;
}

/** One recording of an event. */
interface Mark {
  readonly stream: Stream;
  done: boolean;
  time: number;
}

interface Event {
  readonly timing: boolean;
  mark?: Mark;
}

/** Handles are unlike addresses and unlike each other. */
let nextHandle = 0x10_0001n;

/** Numbers for objects that a real driver gives out as pointers. */
export class Handles<T> extends Map<bigint, T> {
  /** A handle for a new object. */
  add(value: T): bigint {
    nextHandle += 16n;
    this.set(nextHandle, value);
    return nextHandle;
  }

  /** The call that ends an object, and answers `otherwise` where there is none. */
  destroyer(otherwise: number): (handle: bigint) => number {
    return (handle) => this.delete(handle) ? CODE.success : otherwise;
  }
}

export class Streams {
  readonly #streams = new Handles<Stream>();
  readonly #events = new Handles<Event>();
  readonly #graphs = new Handles<readonly Work[]>();
  readonly #ready = new Handles<readonly Work[]>();
  readonly destroyEvent = this.#events.destroyer(CODE.invalidHandle);
  readonly destroyGraph = this.#graphs.destroyer(CODE.invalidHandle);
  readonly destroyReady = this.#ready.destroyer(CODE.invalidHandle);

  /** Returns whether a call that waits or allocates is forbidden now; it invalidates captures. */
  spoilCaptures(): boolean {
    const captures = [...this.#streams.values()].flatMap(({ capture }) => capture ?? []);
    for (const capture of captures) capture.invalid = true;
    return captures.length > 0;
  }

  /** Puts work into a stream, or into the graph that is captured from it. */
  enqueue(handle: bigint, work: Work): number {
    const stream = this.#streams.get(handle);
    if (!stream) return CODE.invalidHandle;
    if (stream.capture?.invalid) return CODE.captureInvalidated;
    (stream.capture?.work ?? stream.queue).push(work);
    return CODE.success;
  }

  /** Runs all that is queued. */
  drainAll(): void {
    for (const stream of this.#streams.values()) this.#drain(stream);
  }

  /** Runs a stream until a mark is set, or to its end. */
  #drain(stream: Stream, mark?: Mark): void {
    const { queue } = stream;
    let next = 0;
    try {
      while (next < queue.length && !mark?.done) queue[next++]!();
    } catch (error) {
      // The context is broken: nothing that was queued runs any more.
      for (const each of this.#streams.values()) each.queue.length = 0;
      throw error;
    } finally {
      queue.splice(0, next);
    }
  }

  createStream(): bigint {
    return this.#streams.add({ queue: [] });
  }

  destroyStream(handle: bigint): number {
    const stream = this.#streams.get(handle);
    if (!stream) return CODE.invalidHandle;
    this.#drain(stream);
    this.#streams.delete(handle);
    return CODE.success;
  }

  synchronize(handle: bigint): number {
    const stream = this.#streams.get(handle);
    if (!stream) return CODE.invalidHandle;
    if (stream.capture) {
      stream.capture.invalid = true;
      return CODE.captureUnsupported;
    }
    this.#drain(stream);
    return CODE.success;
  }

  createEvent(timing: boolean): bigint {
    return this.#events.add({ timing });
  }

  record(eventHandle: bigint, streamHandle: bigint): number {
    const event = this.#events.get(eventHandle), stream = this.#streams.get(streamHandle);
    if (!event || !stream) return CODE.invalidHandle;
    const mark: Mark = { stream, done: false, time: 0 };
    event.mark = mark;
    return this.enqueue(streamHandle, () => {
      mark.done = true;
      mark.time = performance.now();
    });
  }

  /** Answers as of now, then runs the work before the mark, so that asking again gets further. */
  query(handle: bigint): number {
    const wasDone = this.#events.get(handle)?.mark?.done ?? true;
    const code = this.waitFor(handle);
    return wasDone ? code : CODE.notReady;
  }

  waitFor(handle: bigint): number {
    const event = this.#events.get(handle);
    if (!event) return CODE.invalidHandle;
    if (event.mark) this.#drain(event.mark.stream, event.mark);
    return CODE.success;
  }

  /** Milliseconds, or a code where there are none. */
  elapsed(from: bigint, to: bigint): { code: number; milliseconds: number } {
    const start = this.#events.get(from), end = this.#events.get(to);
    if (!start?.timing || !end?.timing || !start.mark || !end.mark) {
      return { code: CODE.invalidHandle, milliseconds: 0 };
    }
    const code = start.mark.done && end.mark.done ? CODE.success : CODE.notReady;
    return { code, milliseconds: end.mark.time - start.mark.time };
  }

  beginCapture(handle: bigint): number {
    const stream = this.#streams.get(handle);
    if (!stream) return CODE.invalidHandle;
    if (stream.capture) return CODE.captureUnsupported;
    stream.capture = { work: [], invalid: false };
    return CODE.success;
  }

  endCapture(handle: bigint): { code: number; graph: bigint } {
    const stream = this.#streams.get(handle), capture = stream?.capture;
    if (!stream || !capture) return { code: CODE.invalidHandle, graph: 0n };
    stream.capture = undefined;
    if (capture.invalid) return { code: CODE.captureInvalidated, graph: 0n };
    return { code: CODE.success, graph: this.#graphs.add(capture.work) };
  }

  instantiate(graph: bigint): bigint | undefined {
    const work = this.#graphs.get(graph);
    return work && this.#ready.add([...work]);
  }

  launchGraph(handle: bigint, stream: bigint): number {
    const work = this.#ready.get(handle);
    if (!work) return CODE.invalidHandle;
    return this.enqueue(stream, () => work.forEach((each) => each()));
  }
}
