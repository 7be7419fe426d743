/** Bodies of requests and of long answers: their memory is bounded, over all clients together. */
import { joinBytes } from "../base/files.ts";
import { ApiError, tryLater } from "./errors.ts";

/** Largest request body, in bytes. */
const MAX_BODY = 8 << 20;

/**
 * Bytes of long bodies and answers that are held at once: beyond it further bodies are refused, and those
 * up to a megabyte have some more room, so that a few huge ones do not shut them out.
 */
const MAX_HELD = 48 << 20, MORE_HELD = 16 << 20, MEDIUM_BODY = 1 << 20;

/** From this many bytes on a body is long: a few milliseconds of work. */
export const LONG_BODY = 1 << 16;

/** Bytes of an answer that are sent at once. */
const PART_BYTES = 1 << 18;

let held = 0;

/** Share of the memory for long bodies and answers; dispose of it when they are no longer held. */
export class HeldBytes implements Disposable {
  #bytes = 0;

  /** Holds this much from now on; short bodies are not counted. */
  hold(bytes: number): void {
    const counted = bytes < LONG_BODY ? 0 : bytes;
    held += counted - this.#bytes;
    this.#bytes = counted;
  }

  /** Holds a body of which so much has come. @throws {ApiError} 429 where there is no room */
  grow(bytes: number): void {
    const most = bytes > MEDIUM_BODY ? MAX_HELD : MAX_HELD + MORE_HELD;
    if (bytes >= LONG_BODY && held + bytes - this.#bytes > most) {
      throw tryLater(429, `long requests of ${held} bytes are being read`, 1);
    }
    this.hold(bytes);
  }

  [Symbol.dispose](): void {
    this.hold(0);
  }
}

/** Reads a body of limited size. */
export async function readBytes(
  request: Request,
  memory: HeldBytes,
): Promise<Uint8Array<ArrayBuffer>> {
  const tooLarge = new ApiError(413, `the request body exceeds ${MAX_BODY} bytes`);
  if (Number(request.headers.get("content-length")) > MAX_BODY) throw tooLarge;
  try {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    let length = 0;
    for await (const part of request.body ?? []) {
      if ((length += part.length) > MAX_BODY) throw tooLarge;
      memory.grow(length);
      parts.push(part);
    }
    return joinBytes(parts);
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError(400, `the request body cannot be read: ${(error as Error).message}`);
  }
}

/**
 * Sends bytes as the reader takes them; one that takes nothing for `stallMs` is cut. `onEnd` is called
 * when the bytes are no longer needed.
 */
export function streamBytes(
  bytes: Uint8Array<ArrayBuffer>,
  stallMs: number,
  onEnd: () => void,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  let at = 0, stalled: ReturnType<typeof setTimeout> | undefined;
  const end = () => {
    clearTimeout(stalled);
    onEnd();
  };
  return new ReadableStream({
    pull(controller) {
      clearTimeout(stalled);
      controller.enqueue(bytes.subarray(at, at += PART_BYTES));
      if (at >= bytes.length) {
        controller.close();
        return end();
      }
      stalled = setTimeout(() => {
        controller.error(new Error("the reader takes nothing"));
        end();
      }, stallMs);
    },
    cancel: end,
  });
}
