/** Calls of native code on other threads. */
let running = 0;

/** Counts a call until it is over. */
export async function duringNativeCall<T>(call: Promise<T>): Promise<T> {
  running++;
  try {
    return await call;
  } finally {
    running--;
  }
}

/** Returns whether a call is under way: an exit would run the destructors of its library, and crash. */
export function hasNativeCalls(): boolean {
  return running > 0;
}
