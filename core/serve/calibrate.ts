/** Measures step times at the start, so that the first requests get a good number of streams. */
import { timeDecode, timePrefill } from "../generate/timing.ts";
import { type ServedModel, type ServiceOptions, streamsOf } from "./service.ts";
import type { StreamsByLoad } from "./streams_by_load.ts";

/** Tokens of the prompt; steps per size and pass. */
const PROMPT = 32, STEPS = 3;

/** The shortest time of two passes counts, so that other work on the machine must hit both to count. */
const PASSES = 2;

/** Fills the table of step times, with batches up to the first that exceeds the target. */
export async function calibrate(
  models: readonly ServedModel[],
  byLoad: StreamsByLoad,
  { maxBatch, targets }: Pick<ServiceOptions, "maxBatch" | "targets">,
): Promise<void> {
  for (let pass = 0; pass < PASSES; pass++) {
    for (const model of models) {
      const { session: { engine }, maxLength } = model;
      const streams = streamsOf(model);
      const tokens = Math.max(1, Math.min(PROMPT, maxLength - STEPS));
      for (let batch = 1; batch <= maxBatch; batch *= 2) {
        using cache = engine.createCache(batch, tokens + STEPS);
        if (batch === 1) {
          byLoad.seedPrefill(streams, tokens, await timePrefill(engine, cache, tokens));
        }
        for (const ms of await timeDecode(engine, cache, tokens, STEPS)) {
          byLoad.seed(streams, batch, ms);
        }
        if (byLoad.stepMs(streams, batch) > targets.tpotMs) break;
      }
    }
  }
}
