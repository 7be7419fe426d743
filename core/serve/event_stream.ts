/** Server-sent events with back-pressure: what a slow reader has not taken waits, for a limited time. */

/** Bytes that may wait before a reader counts as slow. */
const BUFFER = 1 << 20;

export class EventStream {
  readonly body: ReadableStream<Uint8Array>;
  readonly #encoder = new TextEncoder();
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #stalled: ReturnType<typeof setTimeout> | undefined;
  #isOver = false;

  /**
   * A reader that takes nothing for `stallMs` is cut; `onEnd` is called once when the stream is over,
   * however it ended.
   */
  constructor(private readonly stallMs: number, private readonly onEnd: () => void) {
    this.body = new ReadableStream<Uint8Array>({
      start: (controller) => void (this.#controller = controller),
      pull: () => this.#taken(),
      cancel: () => this.#end(),
    }, { highWaterMark: BUFFER, size: (chunk) => chunk.length });
  }

  /** Sends a value as one frame. */
  send(value: unknown): void {
    this.#write(`data: ${JSON.stringify(value)}\n\n`);
  }

  /** Sends a line that clients skip. */
  comment(text: string): void {
    this.#write(`: ${text}\n\n`);
  }

  /** Sends the last frame and ends the stream. */
  done(): void {
    this.#write("data: [DONE]\n\n");
    this.close();
  }

  /** Ends the stream. */
  close(): void {
    if (this.#isOver) return;
    this.#controller.close();
    this.#end();
  }

  #write(text: string): void {
    if (this.#isOver) return;
    this.#controller.enqueue(this.#encoder.encode(text));
    if (this.#controller.desiredSize! > 0 || this.#stalled !== undefined) return;
    this.#stalled = setTimeout(() => {
      this.#controller.error(new Error("the reader takes nothing"));
      this.#end();
    }, this.stallMs);
  }

  #taken(): void {
    clearTimeout(this.#stalled);
    this.#stalled = undefined;
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#taken();
    this.onEnd();
  }
}
