/**
 * The GPUs that have passed the bring-up of `parscale doctor --device cuda`, as files in the cache folder.
 *
 * A record holds for one GPU model, driver, compiler, cuBLASLt, version of parscale and set of kernels:
 * whatever changes, the bring-up has to pass again.
 */
import { createHash } from "node:crypto";
import { cacheFolder } from "../../base/cache_folder.ts";
import { EnvironmentError } from "../../base/errors.ts";
import { VERSION } from "../../base/version.ts";
import { KERNEL_HEADERS } from "./kernels/define.ts";
import { KERNEL_FILES } from "./kernels/mod.ts";

/** A GPU with its driver and libraries. */
export interface CudaPlace {
  readonly name: string;
  /** 13000 for CUDA 13.0. */
  readonly driverVersion: number;
  /** `13.0` */
  readonly nvrtcVersion: string;
  /** 130100 for 13.1.0. */
  readonly cublasLtVersion: number;
}

function recordPath({ name, driverVersion, nvrtcVersion, cublasLtVersion }: CudaPlace): string {
  const hash = createHash("sha256");
  const parts = [name, driverVersion, nvrtcVersion, cublasLtVersion, VERSION];
  for (const part of parts) hash.update(`${part}\n`);
  for (const { text } of KERNEL_FILES) hash.update(text);
  for (const text of KERNEL_HEADERS.values()) hash.update(text);
  const folder = cacheFolder((name) => Deno.env.get(name));
  return `${folder}/cuda/verified-${hash.digest("hex").slice(0, 16)}.json`;
}

/** Records that a GPU has passed. */
export function recordVerified(place: CudaPlace): void {
  const path = recordPath(place);
  Deno.mkdirSync(path.slice(0, path.lastIndexOf("/")), { recursive: true });
  const record = { ...place, version: VERSION, date: new Date().toISOString() };
  Deno.writeTextFileSync(path, `${JSON.stringify(record)}\n`);
}

/** @throws {EnvironmentError} unless the GPU has passed */
export function requireVerified(place: CudaPlace): void {
  try {
    Deno.statSync(recordPath(place));
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new EnvironmentError(
      `${place.name} has not been verified with this version, driver, NVRTC and cuBLASLt`,
      { hints: ["run `parscale doctor --device cuda` once, or pass `--unverified`"] },
    );
  }
}
