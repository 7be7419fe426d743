/** `parscale doctor`: what works on this machine, and what to do where it does not. */
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "doctor",
  summary: "Check this machine: devices, libraries, tools",
  description:
    "Runs every check and shows what was found, with a remedy where something is missing. A " +
    "required check that fails gives exit code 4. Nothing is written and nothing leaves the " +
    "machine; --clear-cache removes the quantized weights that were kept.",
  examples: [
    { text: "Check everything", line: "parscale doctor" },
    { text: "Compare the devices", line: "parscale doctor --traits" },
    {
      text: "List failures for a script",
      line: `parscale doctor --json | jq -e '.results[]|select(.status=="fail")'`,
    },
  ],
  flags: {
    traits: {
      type: "switch",
      group: "Result",
      summary: "Show what each device can do instead",
      details: "One row per device, whether it is present or not.",
    },
    "clear-cache": {
      type: "switch",
      group: "Result",
      configurable: false,
      conflictsWith: ["traits"],
      summary: "Remove kept quantized weights instead",
      details: "`--quantize` quantizes anew at the next start.",
    },
  },
  async run({ traits, clearCache }, io, invocation) {
    if (traits) return await showTraits(io, invocation);
    if (clearCache) return await clearWeights(io, invocation);
    const { CHECKS } = await import("./checks.ts");
    const { openReport } = await import("../../output/report.ts");
    using report = openReport(io, invocation, {
      schema: "parscale.doctor/1",
      columns: ["check", "status", "found", "remedy"].map((key) => ({ key })),
    });
    let failed = false;
    for (const check of CHECKS) {
      const { ok, found, remedy } = await check.run();
      failed ||= !ok && check.required;
      const status = ok ? "ok" : check.required ? "fail" : "missing";
      report.row({ check: check.name, status, found, remedy: ok ? null : remedy ?? null });
    }
    await report.finish();
    return failed ? 4 : 0;
  },
});

/** A table of the devices' traits, in the words of `core/runtime/traits.ts`. */
async function showTraits(io: Io, invocation: Invocation): Promise<number> {
  const { TRAITS } = await import("../../../core/runtime/traits.ts");
  const { openReport } = await import("../../output/report.ts");
  using report = openReport(io, invocation, { schema: "parscale.device_traits/1" });
  for (const [device, traits] of Object.entries(TRAITS)) {
    report.row({
      device,
      trains: traits.trains,
      samples_tokens: traits.samplesTokens,
      paged_cache: traits.pagedCache,
      cache_types: traits.cacheTypes,
      prefill_chunk: traits.prefillChunk,
      static_shapes: traits.staticShapes,
      discrete_memory: traits.discreteMemory,
      readback_is_copy: traits.readbackIsCopy,
      freezes_weights: traits.freezesWeights,
      optimizer_chunk: traits.optimizerChunk,
    });
  }
  await report.finish();
  return 0;
}

/** Removes the cache of quantized weights; a row per entry. */
async function clearWeights(io: Io, invocation: Invocation): Promise<number> {
  const { clearCache, weightCacheFolder } = await import(
    "../../../core/checkpoint/quantized_cache.ts"
  );
  const { openReport } = await import("../../output/report.ts");
  const { bytesText } = await import("../../output/units.ts");
  using report = openReport(io, invocation, { schema: "parscale.weight_cache/1" });
  const entries = await clearCache(weightCacheFolder());
  for (const { model, format, bytes } of entries) report.row({ removed: model, format, bytes });
  report.remark(`${bytesText(entries.reduce((sum, { bytes }) => sum + bytes, 0))} removed`);
  await report.finish();
  return 0;
}
