/** Which question `parscale cost` was asked, and what does not go together. */
import { DEVICES } from "../../../core/analysis/devices.ts";
import { UsageError } from "../../../core/base/errors.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { estimate } from "./estimate.ts";
import { openSetting, type Setting } from "./setting.ts";
import type { CostValues } from "./flags.ts";

/** Flags that mean something in one mode only. */
const TRAIN_ONLY = ["micro-batch", "seq-len", "train-params", "recompute"];
const INFER_ONLY = [
  "input",
  "output",
  "cache-bits",
  "prefix-cache",
  "step-overhead",
  "explain",
  "against",
  "svg",
  "measured",
];

/** Runs the command. */
export async function runCost(values: CostValues, io: Io, invocation: Invocation): Promise<void> {
  if (values.arguments.length > 0) return await listDevices(values, io, invocation);
  refuseContradictions(values, invocation);
  const setting = await openSetting(values, io, async () => {
    const { calibrate } = await import("./calibrate.ts");
    return await calibrate(values, io);
  });
  if (values.measured) {
    const { measureHere } = await import("./measure.ts");
    return await measureHere(setting, io, invocation);
  }
  await answer(setting, io, invocation);
}

/** Answers what needs no run. */
async function answer(
  setting: Setting,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const { values } = setting;
  if (values.explain) {
    const { explain } = await import("./explain.ts");
    return await explain(setting, io, invocation);
  }
  if (values.svg !== undefined) {
    const { drawFigure } = await import("./figure.ts");
    await drawFigure(setting, io, invocation, values.svg);
    if (values.against === undefined) return;
  }
  if (values.against !== undefined) {
    const { compareParams } = await import("./against.ts");
    return await compareParams(setting, io, invocation);
  }
  await estimate(setting, io, invocation);
}

function refuseContradictions(values: CostValues, { origins }: Invocation): void {
  const given = (names: readonly string[]) => names.filter((name) => origins[name] === "flag");
  const strange = given(values.mode === "train" ? INFER_ONLY : TRAIN_ONLY);
  if (strange.length > 0) {
    throw new UsageError(
      `Cannot use ${strange.map((name) => `--${name}`).join(", ")} in mode ${values.mode}: ` +
        `found it there, expected --mode ${values.mode === "train" ? "infer" : "train"}`,
    );
  }
  if (values.mode === "train" && values.method === "paper") {
    throw new UsageError(
      "Cannot use --method paper in mode train: found no training in the paper's script, expected " +
        "--method exact",
    );
  }
  const questions = [
    values.explain && "--explain",
    values.against !== undefined && "--against",
    values.measured && "--measured",
  ].filter((flag) => flag !== false);
  if (questions.length > 1) {
    throw new UsageError(
      `Cannot answer ${questions.join(" and ")} at once: found ${questions.length}, expected one`,
    );
  }
  if (values.svg !== undefined && (values.explain || values.measured)) {
    throw new UsageError(
      `Cannot draw --svg with ${questions[0]}: found both, expected --svg alone or with --against`,
    );
  }
}

async function listDevices(
  { arguments: words }: CostValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  if (words.length === 1) {
    throw new UsageError('Cannot run "cost ls": found nothing to list, expected devices', {
      hints: ["`parscale cost ls devices`"],
    });
  }
  using report = openReport(io, invocation, { schema: "parscale.devices/1" });
  for (const device of DEVICES) {
    report.row({
      name: device.name,
      capacity_gb: device.capacityGb ?? null,
      bandwidth_gb_s: device.bandwidthGbS,
      tflops: device.tflops,
      origin: device.origin,
      remark: device.remark,
    });
  }
  await report.finish();
}
