/**
 * Calls of native code on other threads.
 *
 * Ending the process runs the destructors of libraries, and a thread still inside one of them crashes, so
 * the command line waits for these calls before it ends.
 */
const running = new Set<Promise<unknown>>();

/** Counts a call until it is over. */
export async function duringNativeCall<T>(call: Promise<T>): Promise<T> {
  running.add(call);
  try {
    return await call;
  } finally {
    running.delete(call);
  }
}

/** Resolves when no call is under way. */
export async function nativeCallsOver(): Promise<void> {
  while (running.size > 0) await Promise.allSettled(running);
}
