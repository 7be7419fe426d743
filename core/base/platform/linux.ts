/** Linux. */
import { groupLimits } from "./control_groups.ts";
import { xdgFolder } from "./paths.ts";
import { codeOf, type Platform, type ReadFile } from "./types.ts";

/** `/proc/self/status`, a line for each field. */
const STATUS = "/proc/self/status";

export const LINUX: Platform = {
  name: "linux",
  // Constants of mman.h and malloc.h, the same on x86-64 and arm64.
  posix: { libc: "libc.so.6", anonymous: 0x20, dropPages: 4, hugePages: 14, mappedBlocks: -3 },
  shell: "/bin/sh",
  endingSignals: ["SIGINT", "SIGTERM", "SIGHUP"],
  childVariables: ["PATH", "HOME", "DENO_DIR", "XDG_CACHE_HOME"],
  hasModes: true,
  // System users have /dev/null for none.
  home: (env) => env("HOME")?.replace(/^\/dev\/null$/, "") || undefined,
  caches(env) {
    const home = this.home(env);
    return xdgFolder(env, "XDG_CACHE_HOME", home) || (home && `${home}/.cache`);
  },
  temporary: (env) => env("TMPDIR") || "/tmp",
  limits: groupLimits,
  peakMemory(read: ReadFile): number | null {
    const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(read(STATUS) ?? "")?.[1];
    return kilobytes === undefined ? null : Number(kilobytes) * 1024;
  },
  ignoresHangup(read: ReadFile): boolean {
    // One bit per signal, from SIGHUP on.
    const ignored = /^SigIgn:\s*([0-9a-f]+)$/m.exec(read(STATUS) ?? "")?.[1] ?? "0";
    return (BigInt(`0x${ignored}`) & 1n) === 1n;
  },
  isPassing: () => false,
  isTaken: (error) => ["EEXIST", "ENOTEMPTY"].includes(codeOf(error)),
};
