/** `--against params`: the cost of a larger dense model with the loss of a ParScale one. */
import {
  compareWithParameters,
  type Equivalent,
  type EquivalentOptions,
} from "../../../core/analysis/cost_equivalent.ts";
import { STACK_LAW } from "../../../core/analysis/cost_family.ts";
import { UsageError } from "../../../core/base/errors.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import type { Column } from "../../output/table.ts";
import { gib, headline, isReadable, withGib } from "./estimate.ts";
import {
  CapacityCheck,
  checkContext,
  costFunction,
  echoOf,
  prefixTokensOf,
  type Setting,
  streamsOf,
} from "./setting.ts";

/** The paper's lengths: its first figure has 128 to 1024 tokens in all, half of them prompt. */
const LENGTHS = [64, 128, 256, 512];

/** Batches and lengths that means are taken over. */
export function averagedWorkloads(setting: Setting): EquivalentOptions["workloads"] {
  const { batch, input, output } = setting.values;
  const inputs = input.length > 0 ? input : output.length > 0 ? [64] : LENGTHS;
  const lengths = inputs.flatMap((i) =>
    (output.length > 0 ? output : [i]).map((o) => ({ input: i, output: o }))
  );
  checkContext(setting, Math.max(...lengths.map((pair) => pair.input + pair.output)));
  return batch.flatMap((b) => lengths.map((pair) => ({ batch: b, ...pair })));
}

/** What was averaged, for the line above a table. */
export function averageText(setting: Setting): string {
  const lengths = new Set(averagedWorkloads(setting).map((w) => `${w.input}+${w.output}`));
  return `mean over batch ${setting.values.batch.join(", ")} and ${[...lengths].join(", ")} tokens`;
}

const COLUMNS: readonly Column[] = [
  { key: "streams" },
  { key: "memory_ratio", title: "memory ratio" },
  { key: "latency_ratio", title: "latency ratio" },
  gib("base_memory", "P=1 GiB"),
  gib("parallel_memory", "streams GiB"),
  gib("equivalent_memory", "dense GiB"),
  { key: "base_latency_s", title: "P=1 s" },
  { key: "parallel_latency_s", title: "streams s" },
  { key: "equivalent_latency_s", title: "dense s" },
  { key: "between" },
];

/** Writes one row per number of streams. */
export async function compareParams(
  setting: Setting,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const { values, model } = setting;
  const streams = streamsOf(setting, [2, 4, 8]).filter((P) => P > 1);
  if (streams.length === 0) {
    throw new UsageError(
      "`--against params` needs more than one stream",
      { hints: ["pass --streams 8"] },
    );
  }
  const options = {
    base: model.shape,
    prefixTokens: prefixTokensOf(setting),
    workloads: averagedWorkloads(setting),
    match: values.match,
    interpolation: values.interpolate,
    law: STACK_LAW,
  };
  const cost = costFunction(setting);
  const results = streams.map((P) => compareWithParameters({ ...options, streams: P }, cost));
  const readable = isReadable(invocation);
  using report = openReport(io, invocation, {
    schema: "parscale.cost-against/2",
    ...(readable && { columns: COLUMNS }),
  });
  const how = values.match === "observed"
    ? "the paper's losses on Stack-V2-Python"
    : "the paper's law for Stack-V2-Python";
  report.remark(`${headline(setting)}
${averageText(setting)}; dense models matched by ${how}, costs interpolated ${
    values.interpolate === "linear" ? "linearly" : "geometrically"
  }; ratio = (dense - P=1) / (streams - P=1)`);
  const echo = echoOf(setting);
  const check = new CapacityCheck(setting.device);
  results.forEach((result, index) => {
    for (const cost of [result.base, result.parallel, result.equivalent]) {
      check.fits(cost.memoryBytes);
    }
    const row = {
      ...echo,
      against: "params",
      match: values.match,
      interpolate: values.interpolate,
      streams: streams[index]!,
      prefix_tokens: options.prefixTokens,
      batch: [...values.batch],
      lengths: lengthsOf(options.workloads),
      ...fieldsOf(result),
    };
    report.row(readable ? { ...withGib(row), between: betweenText(result) } : row);
  });
  await report.finish();
  check.report(io);
}

function lengthsOf(workloads: EquivalentOptions["workloads"]): number[][] {
  const pairs = new Map(
    workloads.map(({ input, output }) => [`${input} ${output}`, [input, output]]),
  );
  return [...pairs.values()];
}

function betweenText({ lower, upper, t }: Equivalent): string {
  return `${(100 * t).toFixed(1)} % from ${lower} to ${upper}`;
}

function fieldsOf(result: Equivalent) {
  return {
    memory_ratio: result.memoryRatio,
    latency_ratio: result.latencyRatio,
    base_memory_bytes: result.base.memoryBytes,
    parallel_memory_bytes: result.parallel.memoryBytes,
    equivalent_memory_bytes: result.equivalent.memoryBytes,
    base_latency_s: result.base.latencyS,
    parallel_latency_s: result.parallel.latencyS,
    equivalent_latency_s: result.equivalent.latencyS,
    lower: result.lower,
    upper: result.upper,
    t: result.t,
    loss: result.loss ?? null,
    equivalent_params: result.params ?? null,
  };
}
