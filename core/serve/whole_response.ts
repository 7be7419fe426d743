/**
 * A whole JSON document as a response, with white space before it while a slow one is computed.
 *
 * The runtime hears of a client that has gone at once where the request came in one packet; else only
 * when something is sent. So after a while the response begins, and says a line feed now and then,
 * which JSON allows. An error after that cuts the connection, since the status is out.
 */

/** When the response begins, and how often it says something. */
const BEGIN_MS = 1000, BEAT_MS = 500;

/** What the response is made of. */
export interface WholeOptions {
  readonly document: Promise<unknown>;
  /** Called when the client has gone after the response has begun. */
  readonly onGone: () => void;
  /** Told of errors after the response has begun. */
  readonly onLateError: (error: unknown) => void;
}

/** Resolves when the document is there, or when the response has to begin; rejects with early errors. */
export async function wholeResponse(options: WholeOptions): Promise<Response> {
  const late = Symbol();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const deadline = new Promise<typeof late>((resolve) => {
    timer = setTimeout(() => resolve(late), BEGIN_MS);
  });
  try {
    const first = await Promise.race([options.document, deadline]);
    if (first !== late) return Response.json(first);
  } finally {
    clearTimeout(timer);
  }
  return new Response(slowBody(options), { headers: { "content-type": "application/json" } });
}

function slowBody({ document, onGone, onLateError }: WholeOptions): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let beat: ReturnType<typeof setInterval> | undefined;
  let isGone = false;
  return new ReadableStream<Uint8Array>({
    start(controller) {
      const send = (text: string) => controller.enqueue(encoder.encode(text));
      send("\n");
      beat = setInterval(() => send("\n"), BEAT_MS);
      document.then((value) => {
        if (isGone) return;
        send(JSON.stringify(value));
        controller.close();
      }, (error) => {
        if (isGone) return;
        onLateError(error);
        controller.error(error);
      }).finally(() => clearInterval(beat));
    },
    cancel() {
      isGone = true;
      clearInterval(beat);
      onGone();
    },
  });
}
