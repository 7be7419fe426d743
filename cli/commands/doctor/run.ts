/** Carries out `parscale doctor`: a row per check, stage or entry. */
import { clearCache, weightCacheFolder } from "../../../core/checkpoint/quantized_cache.ts";
import { openMachine } from "../../../core/runtime/cuda/open.ts";
import { recordVerified } from "../../../core/runtime/cuda/verified.ts";
import type { ValuesOf } from "../../framework/command.ts";
import type { Context } from "../../framework/context.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { Report, reportRows } from "../../output/report.ts";
import { bytesText } from "../../output/units.ts";
import { CHECKS, type Finding, findingOf } from "./checks.ts";
import { bringUp } from "../../../core/bringup/stages.ts";
import type { command } from "./flags.ts";

/** Runs the command; the number is its exit code, 4 when something required is missing. */
export async function run(
  { device, clearCache: clears }: ValuesOf<typeof command>,
  ctx: Context,
): Promise<number> {
  const { io, invocation } = ctx;
  ctx.begin();
  if (device !== undefined) return await bringUpDevice(device, io, invocation);
  if (clears) {
    await clearWeights(io, invocation);
    return 0;
  }
  // Remedies are sentences: on a terminal they stand under the table.
  const isShown = io.isTerminal("stdout") && invocation.format === "table" && !invocation.out;
  using report = new Report(io, invocation, {
    schema: "parscale.doctor/1",
    columns: ["check", "status", { key: "found", shortens: true }, ...(isShown ? [] : ["remedy"])],
  });
  let failed = false;
  const devices: DeviceResult[] = [];
  const remedies = new Map<string, readonly string[]>();
  for (const check of CHECKS) {
    const { ok, found, remedy } = await findingOf(check);
    failed ||= !ok && check.required === true;
    const status = ok ? "ok" : check.required ? "fail" : "missing";
    report.row({ check: check.name, status, found, remedy: ok ? null : remedy ?? null });
    if (!ok && remedy) remedies.set(remedy, [...remedies.get(remedy) ?? [], check.name]);
    const device = /^device (.+)/.exec(check.name)?.[1];
    if (device !== undefined) devices.push({ device, ok, found });
  }
  for (const [remedy, names] of isShown ? remedies : []) {
    report.ending(`${names.join(", ")}: ${remedy}`);
  }
  report.ending(`\n${summaryOf(devices)}`);
  await report.finish();
  return failed ? 4 : 0;
}

/** A device, and what its check found. */
interface DeviceResult extends Finding {
  readonly device: string;
}

/** `ready: cpu; cuda: no driver; tfjs: no package`. */
export function summaryOf(devices: readonly DeviceResult[]): string {
  const ready = devices.filter(({ ok }) => ok).map(({ device }) => device).join(", ");
  const others = devices.filter(({ ok }) => !ok).map(({ device, found }) => {
    const reason = /libcuda/.test(found)
      ? "no driver"
      : /needs the package/.test(found)
      ? "no package"
      : found.split(":")[0]!;
    return `${device}: ${reason}`;
  });
  return [`ready: ${ready || "no device"}`, ...others].join("; ");
}

/** Bandwidth and arithmetic are measured on as much. */
const RATE_SIZES = { copyBytes: 2 ** 30, product: 8192 };

/** A row per stage of the bring-up; the first that fails gives 4 and says what to report. */
async function bringUpDevice(device: string, io: Io, invocation: Invocation): Promise<number> {
  using report = new Report(io, invocation, {
    schema: "parscale.bring_up/1",
    columns: ["stage", "status", "found", "seconds"],
  });
  const ordinal = Number(device.split(":")[1] ?? 0);
  let failed = false;
  const options = { open: openMachine, ordinal, sizes: RATE_SIZES, onVerified: recordVerified };
  for await (const { stage, ok, found, seconds } of bringUp(options)) {
    failed ||= !ok;
    report.row({ stage, status: ok ? "ok" : "fail", found, seconds });
    io.note(`${stage}: ${ok ? "ok" : "failed"}`);
  }
  await report.finish();
  io.note(
    failed
      ? "please report this table with the output of `nvidia-smi`"
      : `--device ${device} can be used`,
  );
  return failed ? 4 : 0;
}

/** Removes the cache of quantized weights. */
async function clearWeights(io: Io, invocation: Invocation): Promise<void> {
  const folder = weightCacheFolder(), bytes = await clearCache(folder);
  const rows = [{ folder, removed_bytes: bytes }];
  await reportRows(io, invocation, { schema: "parscale.weight_cache/1" }, rows);
  io.note(`${bytesText(bytes)} removed from ${folder}`);
}
