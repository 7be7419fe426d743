/**
 * This machine as hardware of the cost model: rates that it was just seen to reach.
 *
 * Arithmetic is the best of a few large products (`core/train/peak.ts`); bandwidth is the best of a
 * few products of one row, which read every weight once, as decoding does. Both are in 32 bits,
 * what our devices compute in. These are achieved rates, so efficiencies default to 1.
 */
import type { CostDevice } from "../../../core/analysis/devices.ts";
import { Builder } from "../../../core/graph/builder.ts";
import { linear } from "../../../core/ops/linear.ts";
import { type Device, type DeviceOptions, openDevice } from "../../../core/runtime/mod.ts";
import { measurePeak } from "../../../core/train/peak.ts";
import type { Io } from "../../output/io.ts";
import { memoryInfo } from "../../../core/base/platform/mod.ts";
import { THIS_MACHINE } from "./device.ts";
import type { CostValues } from "./flags.ts";

/** Sides of the matrix that is read: 128 MiB, more than caches of today hold. */
const ROWS = 8192, COLUMNS = 4096;
const RUNS = 6;

/** Measures arithmetic and bandwidth; takes about a second on the processor. */
export async function calibrate(values: CostValues, io: Io): Promise<CostDevice> {
  io.detail("measuring this machine");
  const device = await openDevice(values.device, deviceOptions(values));
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

/** The flags as devices take them. */
export function deviceOptions({ threads, unverified }: CostValues): DeviceOptions {
  return threads === undefined ? { unverified } : { unverified, threads };
}

/** Bytes of weights per second that a product of one row reads. */
async function measureBandwidth(device: Device): Promise<number> {
  const g = new Builder("bandwidth");
  const type = { dtype: "f32", shape: [ROWS, COLUMNS] } as const;
  const row = { dtype: "f32", shape: [1, COLUMNS] } as const;
  g.output("y", linear({ x: g.input("x", row), weight: g.parameter("w", type) }));
  const data = new Float32Array(ROWS * COLUMNS).map((_, i) => (i % 101 - 50) / 1000);
  const executable = await device.compile(g.build(), new Map([["w", { ...type, data }]]));
  const tensors = new Map([
    ["x", device.allocate(row)],
    ["y", device.allocate({ dtype: "f32", shape: [1, ROWS] })],
  ]);
  let best = Infinity;
  for (let run = 0; run < RUNS; run++) {
    const began = performance.now();
    await executable.run(tensors);
    best = Math.min(best, performance.now() - began);
  }
  return data.byteLength / (best / 1000);
}
