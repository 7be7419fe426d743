/** `parscale doctor`: what works on this machine, and what to do where it does not. */
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { defineCommand } from "../../framework/command.ts";
import { OTHER_GPUS } from "../../framework/common.ts";

export const command = defineCommand({
  name: "doctor",
  summary: "Check this machine: devices, libraries, tools",
  description:
    "Runs every check and shows what was found, with a remedy where something is missing. A " +
    "required check that fails gives exit code 4. Nothing leaves the machine. --device cuda tests a " +
    "GPU from its libraries to a training step, and records one that passes; --clear-cache removes " +
    "the quantized weights that were kept.",
  examples: [
    { text: "Check everything", line: "parscale doctor" },
    { text: "Test an NVIDIA GPU step by step", line: "parscale doctor --device cuda" },
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
    device: {
      type: "choice",
      choices: ["cuda", ...OTHER_GPUS],
      group: "Result",
      configurable: false,
      conflictsWith: ["traits"],
      summary: "Test a GPU step by step instead",
      details:
        "Libraries, context, memory, a copy, the compiler, every kernel beside the reference, " +
        "a model's logits, a training step, bandwidth and arithmetic. The first stage that fails " +
        "ends it and says what to report. Takes less than a minute. A GPU that passes is recorded in " +
        "the cache folder, and other commands then accept it as --device cuda.",
    },
    "clear-cache": {
      type: "switch",
      group: "Result",
      configurable: false,
      conflictsWith: ["traits", "device"],
      summary: "Remove kept quantized weights instead",
      details: "`--quantize` quantizes anew at the next start.",
    },
  },
  async run({ traits, device, clearCache }, io, invocation) {
    if (device !== undefined) return await bringUpDevice(device, io, invocation);
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

/** Bandwidth and arithmetic are measured on as much. */
const RATE_SIZES = { copyBytes: 2 ** 30, product: 8192 };

/** A row per stage of the bring-up; the first that fails gives 4 and says what to report. */
async function bringUpDevice(device: string, io: Io, invocation: Invocation): Promise<number> {
  const { bringUp } = await import("./cuda.ts");
  const { openMachine } = await import("../../../core/runtime/cuda/open.ts");
  const { recordVerified } = await import("../../../core/runtime/cuda/verified.ts");
  const { openReport } = await import("../../output/report.ts");
  using report = openReport(io, invocation, {
    schema: "parscale.bring_up/1",
    columns: ["stage", "status", "found", "seconds"].map((key) => ({ key })),
  });
  const ordinal = Number(device.split(":")[1] ?? 0);
  let failed = false;
  const options = { open: openMachine, ordinal, sizes: RATE_SIZES, onVerified: recordVerified };
  for await (const { stage, ok, found, seconds } of bringUp(options)) {
    failed ||= !ok;
    report.row({ stage, status: ok ? "ok" : "fail", found, seconds });
    io.redraw(`${stage}: ${ok ? "ok" : "failed"}`);
  }
  io.redraw("");
  await report.finish();
  io.note(
    failed
      ? "please report this table with the output of `nvidia-smi`"
      : `--device ${device} can be used`,
  );
  return failed ? 4 : 0;
}

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
