/** Work that a signal can end. */

/** Waits for a promise until the signal aborts, which is then thrown; the work itself continues. */
export async function abortable<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return await promise;
  const aborted = Promise.withResolvers<never>();
  const abort = () => aborted.reject(signal.reason);
  signal.addEventListener("abort", abort);
  if (signal.aborted) abort();
  try {
    return await Promise.race([aborted.promise, promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

let lastTurn = 0;

/** Gives the event loop a turn now and then, in loops that may never wait; a turn costs as much as many small runs. */
export async function letSignalsThrough(): Promise<void> {
  if (performance.now() - lastTurn < 20) return;
  await new Promise((resolve) => setTimeout(resolve));
  lastTurn = performance.now();
}
