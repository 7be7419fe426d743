/** Which question `parscale cost` answers: rows of costs, an explanation, a figure or a list. */
import { DEVICES } from "../../../core/analysis/devices.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { estimate } from "./estimate.ts";
import { openSetting, type Setting } from "./setting.ts";
import type { CostValues } from "./flags.ts";

/** Runs the command. */
export async function runCost(values: CostValues, io: Io, invocation: Invocation): Promise<void> {
  if (values.arguments.length > 0) return await listHardware(io, invocation);
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

async function listHardware(
  io: Io,
  invocation: Invocation,
): Promise<void> {
  using report = openReport(io, invocation, { schema: "parscale.hardware/1" });
  for (const device of DEVICES) {
    report.row({
      name: device.name,
      capacity_gib: device.capacityGb ?? null,
      bandwidth_gb_s: device.bandwidthGbS,
      tflops: device.tflops,
      origin: device.origin,
      remark: device.remark,
    });
  }
  await report.finish();
}
