/** Measures step times before requests come, so that the first choices of streams are informed, too. */
import { timeDecode, timePrefill } from "../generate/timing.ts";
import type { ServedModel, ServiceOptions } from "./service.ts";
import type { StreamsByLoad } from "./streams_by_load.ts";

/** Tokens of the prompt, and steps per batch size, the first of which prepares its program. */
const PROMPT = 32, STEPS = 4;

/** Fills the table of step times, with batches up to the first that exceeds the target. */
export async function calibrate(
  models: readonly ServedModel[],
  byLoad: StreamsByLoad,
  { maxBatch, targets }: Pick<ServiceOptions, "maxBatch" | "targets">,
): Promise<void> {
  for (const { session: { engine, config }, maxLength } of models) {
    const tokens = Math.max(1, Math.min(PROMPT, maxLength - STEPS));
    for (let batch = 1; batch <= maxBatch; batch *= 2) {
      using cache = engine.createCache(batch, tokens + STEPS);
      if (batch === 1) {
        for (let round = 0; round < 2; round++) {
          byLoad.observePrefill(config.streams, tokens, await timePrefill(engine, cache, tokens));
        }
      }
      for (const ms of await timeDecode(engine, cache, tokens, STEPS)) {
        byLoad.observe(config.streams, batch, ms);
      }
      if (byLoad.stepMs(config.streams, batch) > targets.tpotMs) break;
    }
  }
}
