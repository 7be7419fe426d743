/** Name, capability and sizes of a CUDA device. */
import { checkDriver } from "./errors.ts";
import { readHandle, readInt } from "./results.ts";
import type { DriverSymbols } from "./symbols.ts";

/** Numbers by which the driver knows what can be asked of a device. */
const DEVICE_ATTRIBUTE = {
  processors: 16,
  cacheBytes: 38,
  sharedBytesPerProcessor: 81,
  registersPerProcessor: 82,
  sharedBytesPerBlock: 97,
} as const;

const [CAPABILITY_MAJOR, CAPABILITY_MINOR] = [75, 76];

const NAME_BYTES = 256;

/** What is known about a device. */
export type DeviceInfo = Readonly<
  & Record<keyof typeof DEVICE_ATTRIBUTE, number>
  & { name: string; major: number; minor: number; memoryBytes: number }
>;

/** Asks the driver. @throws {CudaError} */
export function readDeviceInfo(symbols: DriverSymbols, device: number): DeviceInfo {
  const ask = (attribute: number) =>
    readInt(
      `read device attribute ${attribute}`,
      (out) => symbols.cuDeviceGetAttribute(out, attribute, device),
    );
  const name = new Uint8Array(NAME_BYTES);
  const code = symbols.cuDeviceGetName(name, NAME_BYTES, device);
  checkDriver(code, "read the device's name");
  const memory = readHandle(
    "read the device's memory size",
    (out) => symbols.cuDeviceTotalMem_v2(out, device),
  );
  const sizes = Object.entries(DEVICE_ATTRIBUTE).map(([key, attribute]) => [key, ask(attribute)]);
  return {
    ...Object.fromEntries(sizes) as Record<keyof typeof DEVICE_ATTRIBUTE, number>,
    name: new TextDecoder().decode(name.subarray(0, name.indexOf(0))),
    major: ask(CAPABILITY_MAJOR),
    minor: ask(CAPABILITY_MINOR),
    memoryBytes: Number(memory),
  };
}
