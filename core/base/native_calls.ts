/** Calls of native code on other threads, and what waits for their end. */
let running = 0;
const waiting: (() => void)[] = [];

/** Counts a call until it is over. Its error is thrown before those of the actions that waited for it. */
export async function duringNativeCall<T>(call: Promise<T>): Promise<T> {
  running++;
  const [outcome] = await Promise.allSettled([call]);
  const actions = --running === 0 ? waiting.splice(0) : [];
  const ends = await Promise.allSettled(actions.map((action) => Promise.try(action)));
  for (const end of [outcome, ...ends]) if (end.status === "rejected") throw end.reason;
  return await call;
}

/** Returns whether a call is under way: an exit would run the destructors of its library, and crash. */
export function hasNativeCalls(): boolean {
  return running > 0;
}

/** Acts now, or after the calls under way: a library may not lock what another thread uses. */
export function afterNativeCalls(action: () => void): void {
  if (running > 0) waiting.push(action);
  else action();
}
