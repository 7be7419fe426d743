/** Resident memory of processes (Linux only). */

/**
 * Resident bytes of a process: now, and the most so far.
 * @throws when it has ended
 */
export function residentOf(pid: number | "self"): { now: number; peak: number } {
  const status = Deno.readTextFileSync(`/proc/${pid}/status`);
  const field = (name: string) => 1024 * Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)![1]);
  return { now: field("VmRSS"), peak: field("VmHWM") };
}

/** Watches a process; the function returned ends that and tells the peak, as last seen before its end. */
export function watchPeak(pid: number): () => number {
  let peak = 0;
  const look = () => {
    try {
      peak = residentOf(pid).peak;
    } catch {
      // It has ended.
    }
  };
  const timer = setInterval(look, 20);
  return () => {
    look();
    clearInterval(timer);
    return peak;
  };
}
