/**
 * The thread that watches the waits of a rank: those for a rank that has ended, and those that are too
 * long. The main thread is told first; where it hangs in a call of MPI, this thread reports the error and
 * ends the process, whereupon the launcher ends the job.
 */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { type LostRanks, PeerWatch } from "../../core/collective/peers.ts";
import { exitNow } from "../../core/runtime/exit_now.ts";
import { palette } from "../output/color.ts";
import { renderError, reportOf } from "../output/errors.ts";
import {
  delay,
  FORWARD_MS,
  PRECEDENCE_MS,
  RankLostError,
  rankText,
  SHARED,
  type WatchAnswer,
  type WatchSettings,
} from "./watch.ts";

const TICK_MS = 250;

/** Longest time that counts between two looks: in what goes beyond, the job was suspended. */
const LONGEST_TICK_MS = 1000;

/** Time of the main thread to give up by itself. */
const HANDOVER_MS = 1000;

self.onmessage = async ({ data }: MessageEvent<WatchSettings>) => {
  const words = new Int32Array(data.shared);
  const watch = new PeerWatch(data);
  let last = 0, before = performance.now();
  for (;;) {
    await delay(TICK_MS);
    const [kind, wait] = [Atomics.load(words, SHARED.kind), Atomics.load(words, SHARED.wait)];
    const now = performance.now();
    const passed = Math.min(now - before, LONGEST_TICK_MS);
    before = now;
    const phase = kind === 0 ? "none" : wait === last ? "same" : "new";
    last = wait;
    const lost = watch.pass(passed, phase, kind === 1);
    if (lost === undefined) continue;
    self.postMessage({ ...lost, wait } satisfies WatchAnswer);
    await delay(HANDOVER_MS + (lost.reportsFirst ? 0 : PRECEDENCE_MS));
    if (Atomics.load(words, SHARED.taken) === wait) return;
    if (Atomics.load(words, SHARED.wait) !== wait || Atomics.load(words, SHARED.kind) === 0) {
      continue;
    }
    return await end(data, lost);
  }
};

async function end(settings: WatchSettings, lost: LostRanks): Promise<void> {
  const { rank, colored, json, hints } = settings;
  const error = new RankLostError(lost, hints);
  const text = renderError(error, { paint: palette(colored), json, trace: false });
  Deno.stderr.writeSync(new TextEncoder().encode(rankText(rank, text)));
  await delay(FORWARD_MS);
  exitNow(reportOf(error).code);
}
