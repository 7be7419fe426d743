/** The rates of a GPU that bound decoding and training, measured: memory bandwidth and bf16 products. */
import { fromF32 } from "../../base/dtype.ts";
import type { CudaMachine } from "./device.ts";
import { Products, WORKSPACE_BYTES } from "./driver/cublaslt.ts";
import { Driver } from "./driver/driver.ts";
import { DeviceMemory } from "./memory.ts";

/** Rates of a device. */
export interface Ceilings {
  /** Bytes per second that a copy reads and writes. */
  readonly bandwidth: number;
  /** bf16 operations per second of a large product. */
  readonly flopRate: number;
}

/** Sizes of the measurement; small ones for the emulator, whose times mean nothing. */
export interface CeilingSizes {
  readonly copyBytes: number;
  /** Rows and columns of the matrices. */
  readonly product: number;
}

const ROUNDS = 5;

/**
 * Measures on stream order, each rate the median of a few rounds after one to warm up.
 * @throws {CudaError} when a call fails
 */
export function measureCeilings(
  machine: CudaMachine,
  ordinal: number,
  { copyBytes, product: N }: CeilingSizes,
): Ceilings {
  const driver = new Driver(machine.driver, ordinal);
  const memory = new DeviceMemory(driver);
  const stream = driver.createStream();
  const start = driver.createEvent({ timing: true }), end = driver.createEvent({ timing: true });
  const seconds = (issue: () => void) => {
    const times: number[] = [];
    for (let round = 0; round <= ROUNDS; round++) {
      driver.recordEvent(start, stream);
      issue();
      driver.recordEvent(end, stream);
      driver.waitFor(end);
      if (round > 0) times.push(driver.elapsed(start, end) / 1000);
    }
    return times.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)]!;
  };
  const from = memory.allocate(copyBytes), to = memory.allocate(copyBytes);
  driver.zero(from.address, copyBytes, stream);
  const copying = seconds(() => driver.copy(to.address, from.address, copyBytes, stream));

  // Products of zeros would be faster than those of numbers.
  const numbers = Float32Array.from(
    { length: N * N },
    (_, i) => (i * 2654435761 >>> 8) % 256 - 128,
  );
  const bytes = fromF32(numbers, "bf16");
  const a = memory.allocate(bytes.length).address, b = memory.allocate(bytes.length).address;
  const d = memory.allocate(bytes.length).address;
  for (const address of [a, b]) driver.upload(address, bytes, stream);
  const products = new Products(machine.products(), memory.allocate(WORKSPACE_BYTES));
  const types = { input: "bf16", output: "bf16" } as const;
  const sizes = { m: N, n: N, k: N, transposeA: true };
  const prepared = products.prepare({ ...sizes, ...types, bias: false });
  const multiplying = seconds(() => products.launch(prepared, { a, b, bias: 0n, d }, stream));

  products.close();
  for (const event of [start, end]) driver.destroyEvent(event);
  memory.close();
  driver.destroyStream(stream);
  driver.close();
  return { bandwidth: 2 * copyBytes / copying, flopRate: 2 * N ** 3 / multiplying };
}
