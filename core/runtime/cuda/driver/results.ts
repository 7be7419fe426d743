/** Results that calls of the driver write through a pointer. */
import { checkDriver } from "./errors.ts";

const i32 = new Int32Array(1);
const u64 = new BigUint64Array(1);

/** The integer that a call writes; `doing` names the call in errors. @throws {CudaError} */
export function readInt(doing: string, call: (out: Int32Array<ArrayBuffer>) => number): number {
  checkDriver(call(i32), doing);
  return i32[0]!;
}

/** The handle, address or size that a call writes. @throws {CudaError} */
export function readHandle(
  doing: string,
  call: (out: BigUint64Array<ArrayBuffer>) => number,
): bigint {
  u64[0] = 0n;
  checkDriver(call(u64), doing);
  return u64[0]!;
}
