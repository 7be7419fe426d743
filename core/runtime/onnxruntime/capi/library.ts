/**
 * Finds and opens the ONNX Runtime library that npm:onnxruntime-node ships.
 *
 * Only the shared library is used, never the package's JavaScript binding (it copies every output
 * and blocks the event loop). The library carries a telemetry client that writes into the user's
 * home when it is loaded, unless ORT_DISABLE_TELEMETRY is set before. This is the one module that
 * loads it, and it sets the variable first.
 */
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { EnvironmentError } from "../../../base/errors.ts";

/** Folder and file name of the library inside the package, per platform. */
export const LIBRARY: Readonly<Record<string, string>> = {
  "linux-x86_64": "linux/x64/libonnxruntime.so.1",
  "linux-aarch64": "linux/arm64/libonnxruntime.so.1",
  "darwin-aarch64": "darwin/arm64/libonnxruntime.1.30.0.dylib",
  "windows-x86_64": "win32/x64/onnxruntime.dll",
  "windows-aarch64": "win32/arm64/onnxruntime.dll",
};

/**
 * Path of the library for a platform, by default this one.
 * @throws {EnvironmentError} when there is none
 */
export function onnxRuntimePath(platform = `${Deno.build.os}-${Deno.build.arch}`): string {
  const file = LIBRARY[platform];
  if (!file) {
    const here = platform === "darwin-x86_64" ? "Macs with Intel processors" : platform;
    throw new EnvironmentError(
      `ONNX Runtime has no library for ${here}: only for ${Object.keys(LIBRARY).join(", ")}`,
      { hints: ["pass `--device reference`, which is slow, or use another machine"] },
    );
  }
  try {
    const entry = createRequire(import.meta.url).resolve("onnxruntime-node");
    return join(dirname(dirname(entry)), "bin/napi-v6", file); // the entry lies in `dist`
  } catch (cause) {
    throw new EnvironmentError("the npm package onnxruntime-node is not installed", {
      hints: ["run `deno install` in the project folder"],
      cause,
    });
  }
}

const SYMBOLS = { OrtGetApiBase: { parameters: [], result: "pointer" } } as const;

/** Loads the library and returns `OrtApiBase`. The library stays loaded until the process ends. */
export function openOnnxRuntime(): Deno.PointerObject {
  Deno.env.set("ORT_DISABLE_TELEMETRY", "1");
  const path = onnxRuntimePath();
  let base: Deno.PointerValue;
  try {
    base = Deno.dlopen(path, SYMBOLS).symbols.OrtGetApiBase();
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new EnvironmentError(`cannot load "${path}": ${reason}`, {
      hints: ["ONNX Runtime needs glibc 2.28 or later and libstdc++ on Linux"],
      cause,
    });
  }
  if (!base) {
    throw new EnvironmentError(`"${path}" is not an ONNX Runtime library`);
  }
  return base;
}
