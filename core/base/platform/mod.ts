/**
 * The operating system of this process. Everything that depends on it goes through here, and nothing
 * here loads native code; `core/runtime` maps memory by the names and constants below.
 */
import { isUtf8 } from "node:buffer";
import { LINUX } from "./linux.ts";
import { MACOS } from "./macos.ts";
import { codeOf, type Environment, type Platform, type ReadFile } from "./types.ts";
import { WINDOWS } from "./windows.ts";

export type { EndingSignal, Environment, Platform, PosixNames } from "./types.ts";

/** The implementation for an operating system as Deno calls it; others are taken for Linux. */
export function platformFor(os: string): Platform {
  return os === "windows" ? WINDOWS : os === "darwin" ? MACOS : LINUX;
}

export const PLATFORM: Platform = platformFor(Deno.build.os);

const environment: Environment = (name) => Deno.env.get(name);

function ifAny<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined; // not there, or no permission to read it
  }
}

const readIfAny: ReadFile = (path) => ifAny(() => Deno.readTextFileSync(path));

/** Cores that this process may use, for threads that compute: at least one. */
export function usableCores(
  { cores = navigator.hardwareConcurrency, read = readIfAny, platform = PLATFORM }: {
    cores?: number;
    read?: ReadFile;
    platform?: Platform;
  } = {},
): number {
  return Math.max(1, Math.floor(Math.min(cores, platform.limits(read).cores)));
}

/** Bytes of memory. */
export interface MemoryInfo {
  readonly total: number;
  readonly available: number;
}

/** Memory of the machine as Deno reports it. On Windows it leaves `available` at 0 and fills in `free`. */
export interface MachineMemory extends MemoryInfo {
  readonly free: number;
}

/** Memory that this process may use: the machine's, or what a control group leaves of it. */
export function memoryInfo(
  { machine = Deno.systemMemoryInfo(), read = readIfAny, platform = PLATFORM }: {
    machine?: MachineMemory;
    read?: ReadFile;
    platform?: Platform;
  } = {},
): MemoryInfo {
  const { memory, freeMemory } = platform.limits(read);
  return {
    total: Math.min(machine.total, memory),
    available: Math.min(machine.available || machine.free, freeMemory),
  };
}

/** Most memory this process has held so far, in bytes; null where the system does not say. */
export function peakMemory(): number | null {
  return PLATFORM.peakMemory(readIfAny);
}

/** Returns whether this process was started with SIGHUP ignored; false where the system does not say. */
export function ignoresHangup(): boolean {
  return PLATFORM.ignoresHangup(readIfAny);
}

/** Returns whether the arguments of this process are UTF-8; true where the system does not say. */
export function hasTextArguments(): boolean {
  return isUtf8(ifAny(() => Deno.readFileSync("/proc/self/cmdline")) ?? new Uint8Array());
}

/** Returns whether the processor has AVX2; false where the system does not say. */
export function hasAvx2(): boolean {
  return /^flags\s*:.* avx2\b/m.test(readIfAny("/proc/cpuinfo") ?? "");
}

/** `TZ`, the zone of local time. */
export function timeZone(): string | undefined {
  return ifAny(() => environment("TZ"));
}

/** The user's home; undefined where the environment names none. */
export function homeFolder(env: Environment = environment): string | undefined {
  return PLATFORM.home(env);
}

/** Returns whether a process of this id lives. */
export function isAlive(pid: number): boolean {
  try {
    Deno.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) === "EPERM"; // another user's
  }
}

/** Sets the permission bits of a file, where files have them. */
export async function setMode(path: string, mode: number): Promise<void> {
  if (PLATFORM.hasModes) await Deno.chmod(path, mode);
}

/** A path with `/` between its names, which every system takes. */
export function withSlashes(path: string, platform: Platform = PLATFORM): string {
  return platform.name === "windows" ? path.replaceAll("\\", "/") : path;
}
