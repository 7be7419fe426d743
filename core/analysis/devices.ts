/**
 * Devices whose rates the cost model knows.
 *
 * Matrix rates are dense, for 16 bits, with 32-bit accumulation where the maker tells the two apart.
 * Rows of origin `preset` keep the values of the library of the paper's cost script even where the
 * maker's sheet differs, since the paper's numbers rest on them.
 */

/** Source of a row: that library, the maker's sheet, clock times units, or third parties. */
export type Origin = "preset" | "sheet" | "computed" | "estimate" | "user" | "measured";

/** One device. */
export interface CostDevice {
  readonly name: string;
  /** In units of 2³⁰ bytes; undefined where it is not stated. */
  readonly capacityGb: number | undefined;
  /** 10⁹ bytes per second. */
  readonly bandwidthGbS: number;
  /** Dense 16-bit 10¹² operations per second. */
  readonly tflops: number;
  /** Rates of other widths; by default half for 32 bits, twice for 8, four times for 4. */
  readonly tflops32?: number;
  readonly tops8?: number;
  readonly tops4?: number;
  readonly origin: Origin;
  readonly remark: string;
}

/** The device of the paper's measurements, and the default everywhere. */
export const DEFAULT_DEVICE = "a100-sxm-80gb";

/** name, capacity, bandwidth, rate, origin, remark */
type DeviceRow = readonly [string, number, number, number, Origin, string?];

const ROWS: readonly DeviceRow[] = [
  ["a100-sxm-80gb", 80, 2039, 312, "preset"],
  ["a100-sxm-40gb", 40, 1555, 312, "preset"],
  ["a100-pcie-80gb", 80, 1935, 312, "preset"],
  ["a100-pcie-40gb", 40, 1555, 312, "preset"],
  ["h100-sxm-80gb", 80, 3350, 989, "preset", "sheets print 1979 with sparsity"],
  ["h100-pcie-80gb", 80, 2000, 756, "preset"],
  ["h200-sxm-141gb", 141, 4800, 989, "sheet", "same arithmetic units as H100"],
  ["b200-180gb", 180, 8000, 2250, "sheet"],
  ["mi300x-192gb", 192, 5300, 1307.4, "sheet"],
  ["mi250x-128gb", 128, 3200, 383, "preset"],
  ["mi250-128gb", 128, 3200, 362.1, "preset"],
  ["mi210-64gb", 64, 1638, 181, "preset"],
  ["mi100-32gb", 32, 1228.8, 184.6, "preset"],
  ["v100-sxm-32gb", 32, 900, 125, "preset", "the library's 16 GB variant wrongly lists 32"],
  ["v100-pcie-32gb", 32, 900, 112, "preset"],
  ["v100-pcie-16gb", 16, 900, 112, "preset"],
  ["a10-pcie-28gb", 28, 600, 125, "preset", "the real card has 24"],
  ["a10g-pcie-24gb", 24, 600, 70, "preset"],
  ["a6000-48gb", 48, 768, 154.8, "preset"],
  ["l4-24gb", 24, 300, 121, "sheet", "242 with sparsity"],
  ["l40s-48gb", 48, 864, 362, "sheet"],
  ["t4-16gb", 16, 320, 65, "sheet"],
  ["rtx3090-24gb", 24, 936, 71, "sheet", "142 with 16-bit accumulation"],
  ["rtx4090-24gb", 24, 1008, 165.2, "sheet", "330.3 with 16-bit accumulation"],
  ["rtx5090-32gb", 32, 1792, 209.5, "sheet", "419 with 16-bit accumulation"],
  ["jetson-agx-orin-64gb", 64, 204.8, 42.5, "computed", "quarter of 170 sparse int8 TOPS"],
  ["jetson-orin-nano-super-8gb", 8, 102, 16.7, "computed", "quarter of 67 sparse int8 TOPS"],
  ["apple-m2-ultra-192gb", 192, 800, 27.2, "computed", "GPU, 76 cores"],
  ["apple-m4-max-128gb", 128, 546, 17.2, "computed", "GPU, 40 cores"],
  ["apple-a17-pro-8gb", 8, 51.2, 2.15, "computed", "GPU"],
  ["snapdragon-8-gen-3-12gb", 12, 76.8, 5.5, "estimate", "GPU; 64-bit LPDDR5X at 4800 MHz"],
  ["snapdragon-x-elite-32gb", 32, 135, 4.6, "sheet", "GPU, 32-bit figure"],
  ["raspberry-pi-5-8gb", 8, 17.1, 0.307, "computed", "four cores, two 128-bit units, 2.4 GHz"],
];

/** All known devices, in the order in which they are listed. */
export const DEVICES: readonly CostDevice[] = ROWS.map(
  ([name, capacityGb, bandwidthGbS, tflops, origin, remark = ""]) => ({
    name,
    capacityGb,
    bandwidthGbS,
    tflops,
    origin,
    remark,
  }),
);

/** The device of this name, if it is known. */
export function findDevice(name: string): CostDevice | undefined {
  return DEVICES.find((device) => device.name === name);
}

/** Achieved operations and bytes per second. */
export interface Rates {
  readonly flops: number;
  readonly bytes: number;
}

/** Shares of the peak rates that are reached. */
export interface Efficiencies {
  readonly flops: number;
  readonly memory: number;
}

/** Rates for products whose wider operand has this many bits. */
export function ratesOf(device: CostDevice, efficiency: Efficiencies, bits: number): Rates {
  return {
    flops: peakTflops(device, bits) * efficiency.flops * 1e12,
    bytes: device.bandwidthGbS * efficiency.memory * 1e9,
  };
}

/** 10¹² operations per second for a width in bits. */
export function peakTflops(device: CostDevice, bits: number): number {
  if (bits > 16) return device.tflops32 ?? device.tflops / 2;
  if (bits > 8) return device.tflops;
  return bits > 4 ? device.tops8 ?? 2 * device.tflops : device.tops4 ?? 4 * device.tflops;
}
