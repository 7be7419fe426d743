/**
 * Streams, events and graphs of an emulated machine: what runs when.
 *
 * Work put into a stream does not run at once but when something waits for it, as late as a device
 * may run it; so host code that reads or reuses memory without waiting finds out here. A host that
 * only watches mapped memory waits for ever, unless streams are made `eager`.
 */

/** Something to be done in stream order, with its arguments copied. */
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
  captureUnmatched: 903,
  captureUnjoined: 904,
  captureIsolation: 905,
  capturedEvent: 907,
  notSupported: 801,
} as const;

interface Capture {
  readonly origin: Stream;
  readonly work: Work[];
  /** Streams that took part and whose last work the origin has not waited for. */
  readonly open: Set<Stream>;
  invalid: boolean;
}

/** One setting of an event. */
interface Mark {
  readonly stream: Stream;
  readonly capture?: Capture;
  done: boolean;
  time: number;
}

interface Stream {
  /** Waits for the legacy stream and is waited for by blocking copies. */
  readonly blocking: boolean;
  queue: Work[];
  capture?: Capture | undefined;
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
}

export class Streams {
  readonly #streams = new Handles<Stream>();
  readonly #events = new Handles<Event>();
  readonly #graphs = new Handles<readonly Work[]>();
  readonly #ready = new Handles<readonly Work[]>();
  readonly #eager: boolean;

  constructor(eager: boolean) {
    this.#eager = eager;
  }

  /** Whether a call that waits or allocates is forbidden now; it spoils the captures under way. */
  spoilCaptures(): boolean {
    const captures = [...this.#streams.values()].flatMap(({ capture }) => capture ?? []);
    for (const capture of captures) capture.invalid = true;
    return captures.length > 0;
  }

  /** Puts work into a stream, or into the graph that is captured from it. */
  enqueue(handle: bigint, work: Work): number {
    const stream = this.#streams.get(handle);
    if (!stream) return CODE.invalidHandle;
    const { capture } = stream;
    if (capture?.invalid) return CODE.captureInvalidated;
    if (capture) {
      capture.work.push(work);
      if (stream !== capture.origin) capture.open.add(stream);
    } else {
      stream.queue.push(work);
      if (this.#eager) this.#drain(stream);
    }
    return CODE.success;
  }

  /** Whether a stream is being captured. */
  isCapturing(handle: bigint): boolean {
    return this.#streams.get(handle)?.capture !== undefined;
  }

  /** Runs all that is queued. */
  drainAll(): void {
    for (const stream of this.#streams.values()) this.#drain(stream);
  }

  /** Runs what a blocking call waits for: not the streams that were made non-blocking. */
  drainBlocking(): void {
    for (const stream of this.#streams.values()) if (stream.blocking) this.#drain(stream);
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

  createStream(blocking: boolean): bigint {
    return this.#streams.add({ blocking, queue: [] });
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

  destroyEvent(handle: bigint): number {
    return this.#events.delete(handle) ? CODE.success : CODE.invalidHandle;
  }

  record(eventHandle: bigint, streamHandle: bigint): number {
    const [event, stream] = [this.#events.get(eventHandle), this.#streams.get(streamHandle)];
    if (!event || !stream) return CODE.invalidHandle;
    const { capture } = stream;
    const mark: Mark = { stream, done: false, time: 0, ...(capture && { capture }) };
    event.mark = mark;
    if (capture) return CODE.success;
    return this.enqueue(streamHandle, () => [mark.done, mark.time] = [true, performance.now()]);
  }

  wait(streamHandle: bigint, eventHandle: bigint): number {
    const [event, stream] = [this.#events.get(eventHandle), this.#streams.get(streamHandle)];
    if (!event || !stream) return CODE.invalidHandle;
    const { mark } = event;
    if (!mark) return CODE.success;
    if (mark.capture && !stream.capture) {
      stream.capture = mark.capture; // a fork: this stream is captured too
      mark.capture.open.add(stream);
      return CODE.success;
    }
    if (stream.capture) {
      if (stream.capture !== mark.capture) {
        stream.capture.invalid = true;
        return CODE.captureIsolation;
      }
      if (stream === stream.capture.origin) stream.capture.open.delete(mark.stream);
      return CODE.success;
    }
    return this.enqueue(streamHandle, () => this.#drain(mark.stream, mark));
  }

  /** Answers as of now, then runs what is before the mark, so that asking again gets further. */
  query(handle: bigint): number {
    const event = this.#events.get(handle);
    if (!event) return CODE.invalidHandle;
    if (event.mark?.capture) return CODE.capturedEvent;
    if (!event.mark || event.mark.done) return CODE.success;
    this.#drain(event.mark.stream, event.mark);
    return CODE.notReady;
  }

  waitFor(handle: bigint): number {
    const event = this.#events.get(handle);
    if (!event) return CODE.invalidHandle;
    if (event.mark?.capture) return CODE.capturedEvent;
    if (event.mark) this.#drain(event.mark.stream, event.mark);
    return CODE.success;
  }

  /** Milliseconds, or a code where there are none. */
  elapsed(from: bigint, to: bigint): { code: number; milliseconds: number } {
    const [start, end] = [this.#events.get(from), this.#events.get(to)];
    const answer = (code: number, milliseconds = 0) => ({ code, milliseconds });
    if (!start?.timing || !end?.timing || !start.mark || !end.mark) {
      return answer(CODE.invalidHandle);
    }
    if (!start.mark.done || !end.mark.done) return answer(CODE.notReady);
    return answer(CODE.success, end.mark.time - start.mark.time);
  }

  beginCapture(handle: bigint): number {
    const stream = this.#streams.get(handle);
    if (!stream) return CODE.invalidHandle;
    if (stream.capture) return CODE.captureUnsupported;
    stream.capture = { origin: stream, work: [], open: new Set(), invalid: false };
    return CODE.success;
  }

  endCapture(handle: bigint): { code: number; graph: bigint } {
    const stream = this.#streams.get(handle);
    const answer = (code: number, graph = 0n) => ({ code, graph });
    if (!stream) return answer(CODE.invalidHandle);
    const { capture } = stream;
    if (!capture) return answer(CODE.invalidValue);
    if (capture.origin !== stream) return answer(CODE.captureUnmatched);
    for (const each of this.#streams.values()) {
      if (each.capture === capture) each.capture = undefined;
    }
    if (capture.invalid) return answer(CODE.captureInvalidated);
    if (capture.open.size > 0) return answer(CODE.captureUnjoined);
    return answer(CODE.success, this.#graphs.add(capture.work));
  }

  instantiate(graph: bigint): bigint | undefined {
    const work = this.#graphs.get(graph);
    return work && this.#ready.add([...work]);
  }

  launchGraph(handle: bigint, stream: bigint): number {
    const work = this.#ready.get(handle);
    if (!work) return CODE.invalidHandle;
    return this.enqueue(stream, () => {
      for (const each of work) each();
    });
  }

  hasGraph(handle: bigint): boolean {
    return this.#ready.has(handle);
  }

  destroyGraph(handle: bigint): number {
    return this.#graphs.delete(handle) ? CODE.success : CODE.invalidHandle;
  }

  destroyReady(handle: bigint): number {
    return this.#ready.delete(handle) ? CODE.success : CODE.invalidHandle;
  }
}
