import type { JsonObject } from "../../../core/base/files.ts";
import type { ReportOptions } from "../../output/report.ts";

/** Columns of a table of `score`, by the flags in its configuration. */
export function scoreColumns({ echo }: JsonObject): ReportOptions["columns"] {
  return [
    "id",
    ...(echo ? ["prompt", "continuation", "text"] : []),
    { key: "loglikelihood", digits: 4 },
    "is_greedy",
    "error",
  ];
}
