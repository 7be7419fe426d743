/** Which question `parscale cost` answers: rows of costs, measured rows, a figure or a list. */
import { DEVICES } from "../../../core/analysis/devices.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { openFigure } from "../../output/sink.ts";
import { estimate } from "./estimate.ts";
import { openSetting } from "./setting.ts";
import type { CostValues } from "./flags.ts";

/** Runs the command. */
export async function run(values: CostValues, io: Io, invocation: Invocation): Promise<void> {
  if (values.arguments.length > 0) return await listHardware(io, invocation);
  const setting = await openSetting(values, io, async () => {
    const { calibrate } = await import("./calibrate.ts");
    return await calibrate(values, io);
  });
  if (values.measured) {
    const { measureHere } = await import("./measure.ts");
    return await measureHere(setting, io, invocation);
  }
  using figure = openFigure(io, values.svg, invocation.overwrite);
  if (figure !== undefined) {
    const { drawFigure } = await import("./figure.ts");
    return await drawFigure(setting, io, invocation, figure);
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
