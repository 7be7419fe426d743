/**
 * HTTP as the hub and its CDN speak it: redirects, the token, silence, and when to try again.
 *
 * Redirects are followed here and not by `fetch`, so that the token goes to the origin of the hub and
 * to no other, whatever a runtime does.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { HubAccess } from "./access.ts";

/** Times that decide how patient the client is; tests shorten them. */
export interface Patience {
  /** Milliseconds before each further try; their count is that of tries after the first. */
  readonly delaysMs: readonly number[];
  /** Milliseconds without a byte after which a connection is given up. */
  readonly silenceMs: number;
}

/** Milliseconds without an answer after which a client says whom it waits for. */
const NOTICE_MS = 1000;

const USUAL: Patience = { delaysMs: [1000, 2000, 4000, 8000], silenceMs: 10_000 };

/** Longest wait that a server may ask for. */
const LONGEST_WAIT_MS = 600_000;

const MAX_REDIRECTS = 10;

/** An answer other than success. */
export class StatusError extends Error {
  constructor(
    readonly status: number,
    /** `X-Error-Code`: which of the reasons for a 401, 403 or 404 it is. */
    readonly code: string | null,
    readonly url: string,
    /** True if another try may succeed. */
    readonly isPassing: boolean,
    /** Milliseconds the server asks to wait. */
    readonly waitMs: number | undefined,
  ) {
    super(`status ${status} from ${new URL(url).host}`);
  }
}

/** No answer, a broken one, or none that continues. */
export class NetworkError extends Error {}

/** An answer whose body is still to come. */
export interface Answer {
  readonly response: Response;
  /** The body; a silent or broken connection throws `NetworkError`. */
  readonly chunks: () => AsyncGenerator<Uint8Array>;
}

/** Makes requests. */
export class HubClient {
  readonly patience: Patience;
  #onWait: ((host: string) => void) | undefined;
  /** Host of the latest request, which may be another than the hub's. */
  #asked = "";

  /** `onWait` is called once for a host that does not answer at once. */
  constructor(
    readonly access: HubAccess,
    readonly signal?: AbortSignal,
    patience: Partial<Patience> = {},
    onWait?: (host: string) => void,
  ) {
    this.patience = { ...USUAL, ...patience };
    this.#onWait = onWait;
  }

  /** One request with its redirects; any status but 2xx throws `StatusError`. */
  async get(address: string, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    this.signal?.throwIfAborted();
    const silence = new Silence(this.patience.silenceMs);
    const signal = AbortSignal.any([silence.signal, ...this.signal ? [this.signal] : []]);
    const waiting = setTimeout(() => this.#sayWait(), NOTICE_MS);
    try {
      const { response, url } = await this.#follow(address, headers, signal);
      this.#onWait = undefined; // the hub can be reached
      if (!response.ok) {
        await response.body?.cancel();
        throw this.#statusError(response, url);
      }
      return { response, chunks: () => this.#read(response, silence) };
    } catch (error) {
      silence.end();
      throw this.#networkError(error, address);
    } finally {
      clearTimeout(waiting);
    }
  }

  async #follow(
    address: string,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<{ response: Response; url: string }> {
    let url = new URL(address);
    for (let i = 0; i <= MAX_REDIRECTS; i++) {
      const authorization = url.origin === new URL(this.access.endpoint).origin &&
        this.access.token !== undefined;
      this.#asked = url.host;
      const response = await fetch(url, {
        headers: {
          ...headers,
          "accept-encoding": "identity",
          "user-agent": "parscale",
          ...(authorization ? { authorization: `Bearer ${this.access.token}` } : {}),
        },
        redirect: "manual",
        signal,
      });
      const location = response.headers.get("location");
      if (response.status < 300 || response.status >= 400 || location === null) {
        return { response, url: url.href };
      }
      await response.body?.cancel();
      const next = URL.parse(location, url);
      const isDowngrade = url.protocol === "https:" && next?.protocol !== "https:";
      if (!next || !/^https?:$/.test(next.protocol) || isDowngrade) {
        throw new NetworkError(`${url.host} redirects to an address that cannot be used`);
      }
      url = next;
    }
    throw new NetworkError(`${url.host} redirects more than ${MAX_REDIRECTS} times`);
  }

  #statusError({ status, headers }: Response, url: string): StatusError {
    // A signed link of the CDN runs out; the hub gives a new one.
    const isExpired = status === 403 &&
      new URL(url).origin !== new URL(this.access.endpoint).origin;
    const isPassing = isExpired || status === 408 || status === 429 || status >= 500;
    return new StatusError(status, headers.get("x-error-code"), url, isPassing, askedWait(headers));
  }

  async *#read({ body }: Response, silence: Silence): AsyncGenerator<Uint8Array> {
    try {
      if (body === null) return;
      for await (const chunk of body) {
        silence.end(); // a slow reader does not count as silence
        yield chunk;
        silence.reset();
      }
    } catch (error) {
      throw this.#networkError(error, "the connection");
    } finally {
      silence.end();
    }
  }

  #networkError(error: unknown, where: string): unknown {
    this.signal?.throwIfAborted();
    if (error instanceof StatusError || error instanceof NetworkError) return error;
    const isNetwork = error instanceof TypeError || error instanceof DOMException ||
      error instanceof Deno.errors.Http || error instanceof Deno.errors.ConnectionReset ||
      (error as Error)?.name === "SilenceError";
    if (!isNetwork) return error;
    const host = URL.parse(where)?.host ?? where;
    return new NetworkError(`${host}: ${(error as Error).message}`, { cause: error });
  }

  /**
   * Retries `work` on transient errors. A server that says how long to wait is
   * obeyed, and bytes that arrived since the last failure make the count begin anew.
   */
  async retry<T>(
    work: (arrived: () => void) => Promise<T>,
    tries = this.patience.delaysMs.length + 1,
  ): Promise<T> {
    let failures = 0;
    for (;;) {
      try {
        return await work(() => failures = 0);
      } catch (error) {
        const passing = error instanceof NetworkError ||
          error instanceof StatusError && error.isPassing;
        if (!passing || ++failures >= tries) throw error;
        const asked = error instanceof StatusError ? error.waitMs : undefined;
        if (asked !== undefined && asked > LONGEST_WAIT_MS) throw error;
        const wait = asked ?? this.patience.delaysMs[failures - 1] ?? 0;
        if (wait >= NOTICE_MS) this.#sayWait();
        await this.wait(wait);
      }
    }
  }

  #sayWait(): void {
    this.#onWait?.(this.#asked);
    this.#onWait = undefined;
  }

  /** Waits; the signal ends it with its reason. */
  async wait(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.signal }).catch(() => {}); // aborted
    this.signal?.throwIfAborted();
  }
}

/** Aborts a request that says nothing for too long. */
class Silence {
  readonly #abort = new AbortController();
  readonly signal = this.#abort.signal;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly ms: number) {
    this.reset();
  }

  reset(): void {
    clearTimeout(this.#timer);
    const error = Object.assign(new Error(`silent for ${this.ms / 1000} s`), {
      name: "SilenceError",
    });
    this.#timer = setTimeout(() => this.#abort.abort(error), this.ms);
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}

/** Milliseconds from `RateLimit: "resolvers";r=0;t=55` or `Retry-After: 55`. */
export function askedWait(headers: Headers): number | undefined {
  const limit = headers.get("ratelimit") ?? "";
  const seconds = /;\s*r=0\b/.test(limit) ? /;\s*t=(\d+)/.exec(limit)?.[1] : undefined;
  const after = headers.get("retry-after")?.trim();
  if (seconds !== undefined) return Number(seconds) * 1000;
  if (after === undefined || after === "") return undefined;
  if (/^\d+$/.test(after)) return Number(after) * 1000;
  const date = Date.parse(after);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}
