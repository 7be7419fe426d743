/**
 * The hardware that a cost is predicted for: of the table, described in a JSON file, or new.
 *
 * `--bandwidth`, `--tflops` and `--capacity` replace what the device has, and a name that is not
 * known becomes a device once the first two are given.
 */
import {
  type CostDevice,
  DEFAULT_DEVICE,
  DEVICES,
  findDevice,
} from "../../../core/analysis/devices.ts";
import { readJsonObject, show } from "../../../core/base/files.ts";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { suggestionHint } from "../../framework/suggest.ts";
import type { CostValues } from "./flags.ts";

/** Name under which the machine at hand is measured. */
export const THIS_MACHINE = "this-machine";

/** Whether the device has to be measured. */
export function isThisMachine({ hardware, measured }: CostValues): boolean {
  return hardware === THIS_MACHINE || (hardware === undefined && measured);
}

/** Finds the device; `measure` makes the one of this machine. */
export async function openCostDevice(
  values: CostValues,
  measure: () => Promise<CostDevice>,
): Promise<CostDevice> {
  const known = isThisMachine(values)
    ? await measure()
    : await readDevice(values.hardware ?? DEFAULT_DEVICE, values);
  const { bandwidth, tflops, capacity } = values;
  if (bandwidth === undefined && tflops === undefined && capacity === undefined) return known;
  const { tflops32: _32, tops8: _8, tops4: _4, ...rest } = known;
  return {
    ...(tflops === undefined ? known : rest),
    bandwidthGbS: bandwidth ?? known.bandwidthGbS,
    tflops: tflops ?? known.tflops,
    capacityGb: capacity ?? known.capacityGb,
    origin: "user",
  };
}

async function readDevice(name: string, { bandwidth, tflops }: CostValues): Promise<CostDevice> {
  const known = findDevice(name);
  if (known !== undefined) return known;
  if (/\.json$|[/\\]/.test(name)) return await readDeviceFile(name);
  if (bandwidth !== undefined && tflops !== undefined) {
    return {
      name,
      capacityGb: undefined,
      bandwidthGbS: bandwidth,
      tflops,
      origin: "user",
      remark: "",
    };
  }
  const names = [...DEVICES.map((device) => device.name), THIS_MACHINE];
  const near = suggestionHint(name, names);
  throw new UsageError(
    `unknown hardware "${name}"`,
    {
      hints: [
        ...(near === undefined ? [] : [near]),
        "`parscale cost ls` prints the known ones; a new one needs --bandwidth and --tflops",
      ],
    },
  );
}

/** Keys of a device file with the fields they fill. */
const NUMBERS = [
  ["bandwidth_gb_s", "bandwidthGbS", true],
  ["tflops", "tflops", true],
  ["capacity_gib", "capacityGb", false],
  ["capacity_gb", "capacityGb", false], // its name in files of earlier versions
  ["tflops_32", "tflops32", false],
  ["tops_8", "tops8", false],
  ["tops_4", "tops4", false],
] as const;

async function readDeviceFile(path: string): Promise<CostDevice> {
  const json = await readJsonObject(path);
  const keys = ["name", ...NUMBERS.map(([key]) => key)];
  const unknown = Object.keys(json).find((key) => !keys.includes(key));
  if (unknown !== undefined) {
    throw new DataError(
      `unknown key "${unknown}" in hardware file "${path}"`,
      { hints: [suggestionHint(unknown, keys) ?? "remove the key"] },
    );
  }
  const fields: Record<string, number> = {};
  for (const [key, field, required] of NUMBERS) {
    const value = json[key];
    if (value === undefined && !required) continue;
    if (typeof value !== "number" || !(value > 0) || !Number.isFinite(value)) {
      throw new DataError(
        `${key} in hardware file "${path}" must be a positive number: ${show(value)}`,
      );
    }
    fields[field] = value;
  }
  const name = typeof json.name === "string" ? json.name : path;
  const { bandwidthGbS, tflops, capacityGb, ...rates } = fields;
  return {
    name,
    capacityGb,
    bandwidthGbS: bandwidthGbS!,
    tflops: tflops!,
    ...rates,
    origin: "user",
    remark: "",
  };
}
