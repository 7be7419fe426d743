/** Measures this machine's rates of arithmetic and memory, in f32. */
import type { CostDevice } from "../../../core/analysis/devices.ts";
import { measureBandwidth, measurePeak } from "../../../core/analysis/peak.ts";
import { memoryInfo } from "../../../core/base/platform/mod.ts";
import { openDevice } from "../../../core/runtime/mod.ts";
import type { Io } from "../../output/io.ts";
import { type CostValues, THIS_MACHINE } from "./setting.ts";

/** Measures arithmetic and bandwidth; takes about a second on the processor. */
export async function calibrate(values: CostValues, io: Io): Promise<CostDevice> {
  io.detail("measuring this machine");
  const device = await openDevice(values.device, values);
  try {
    const tflops = await measurePeak(device) / 1e12;
    return {
      name: THIS_MACHINE,
      capacityGb: memoryInfo().total / 2 ** 30,
      bandwidthGbS: await measureBandwidth(device) / 1e9,
      tflops,
      tflops32: tflops,
      origin: "measured",
      remark: device.name,
    };
  } finally {
    device.close();
  }
}
