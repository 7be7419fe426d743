/** `--explain`: what is odd in the official script, with the effect on one configuration. */
import { listDiscrepancies } from "../../../core/analysis/cost_discrepancies.ts";
import { UsageError } from "../../../core/base/errors.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { headline, isReadable } from "./estimate.ts";
import {
  checkContext,
  echoOf,
  orDefault,
  prefixTokensOf,
  questionOf,
  type Setting,
  streamsOf,
} from "./setting.ts";

/** The one value of a list. */
function single(name: string, list: readonly number[]): number {
  if (list.length === 1) return list[0]!;
  throw new UsageError(`\`--explain\` takes one value of ${name}, not ${list.length}`);
}

/** Writes the list. */
export async function explain(setting: Setting, io: Io, invocation: Invocation): Promise<void> {
  const { values } = setting;
  const work = {
    streams: single("--streams", streamsOf(setting, [8])),
    prefixTokens: prefixTokensOf(setting),
    batch: single("--batch", values.batch),
    input: single("--input", orDefault(values.input, [256])),
    output: single("--output", orDefault(values.output, [256])),
  };
  checkContext(setting, work.input + work.output);
  const discrepancies = listDiscrepancies(
    questionOf(setting, setting.model.shape, work),
    setting.device,
  );
  const readable = isReadable(invocation);
  using report = openReport(io, invocation, {
    schema: "parscale.cost-discrepancies/1",
    ...(readable && {
      columns: [
        { key: "number", title: "" },
        { key: "what", title: "what the official script does" },
        { key: "memory_mib", title: "memory MiB", digits: 3 },
        { key: "latency_ms", title: "latency ms", digits: 3 },
        { key: "note" },
      ],
    }),
  });
  report.remark(`${headline({ ...setting, values: { ...values, method: "paper" } })}
P = ${work.streams}, T = ${work.prefixTokens}, batch ${work.batch}, ${work.input} + ${work.output} \
tokens; effects are what the script counts too much`);
  const { method: _, ...echo } = echoOf(setting);
  const { prefixTokens: prefix_tokens, ...rest } = work;
  for (const { number, what, memoryBytes, latencyS, note } of discrepancies) {
    report.row(
      readable
        ? {
          number,
          what,
          memory_mib: memoryBytes === undefined ? null : memoryBytes / 2 ** 20,
          latency_ms: latencyS === undefined ? null : latencyS * 1000,
          note,
        }
        : {
          number,
          what,
          memory_effect_bytes: memoryBytes ?? null,
          latency_effect_s: latencyS ?? null,
          note: note ?? null,
          ...echo,
          ...rest,
          prefix_tokens,
        },
    );
  }
  await report.finish();
}
