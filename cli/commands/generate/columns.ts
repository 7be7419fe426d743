import type { JsonObject } from "../../../core/base/files.ts";
import type { ReportOptions } from "../../output/report.ts";

/** Columns of a table of `generate`, by the flags in its configuration. */
export function generateColumns(
  { num_return, num_beams, echo, timings }: JsonObject,
): ReportOptions["columns"] {
  return [
    "id",
    ...(echo ? ["prompt"] : []),
    "finish_reason",
    "text",
    "error",
    ...(Number(num_return) > 1 ? ["sequence"] : []),
    ...(Number(num_beams) > 1 ? ["score"] : []),
    ...(timings
      ? ["ttft_ms", "tokens_per_s", "tokens_per_step"].map((key) => ({ key, digits: 1 }))
      : []),
  ];
}
