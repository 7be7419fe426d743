/**
 * The platforms a release can be made for, under the names that `deno compile --target` knows, and the engine
 * library of each. Deno also compiles for Macs with Intel processors, for which ONNX Runtime ships no
 * library, so that target is not in the table.
 */
import { LIBRARY } from "../../core/runtime/onnxruntime/capi/library.ts";

/** One platform. */
export interface Platform {
  /** Name for `deno compile --target`. */
  readonly target: string;
  /** `os-arch` as in the name of a bundle. */
  readonly name: string;
  /** The engine, below `bin/napi-v6` of its package. */
  readonly engine: string;
}

const TARGETS = {
  "x86_64-unknown-linux-gnu": ["linux-x64", "linux-x86_64"],
  "aarch64-unknown-linux-gnu": ["linux-arm64", "linux-aarch64"],
  "aarch64-apple-darwin": ["darwin-arm64", "darwin-aarch64"],
  "x86_64-pc-windows-msvc": ["windows-x64", "windows-x86_64"],
  "aarch64-pc-windows-msvc": ["windows-arm64", "windows-aarch64"],
} as const;

/** A target in the table. */
export type Target = keyof typeof TARGETS;

/** All of them. */
export const TARGET_NAMES = Object.keys(TARGETS) as [Target, ...Target[]];

/** The platform of a target; without one, of this machine. Undefined where there is no engine. */
export function platformOf(target: string = Deno.build.target): Platform | undefined {
  if (!(target in TARGETS)) return undefined;
  const [name, build] = TARGETS[target as Target];
  return { target, name, engine: LIBRARY[build]! };
}
