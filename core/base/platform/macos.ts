/** macOS, as far as it differs from Linux. */
import { LINUX } from "./linux.ts";
import { xdgFolder } from "./paths.ts";
import { NO_LIMITS, type Platform } from "./types.ts";

export const MACOS: Platform = {
  ...LINUX,
  name: "macos",
  // Its MADV_DONTNEED keeps the pages, so there is no advice that drops them.
  posix: { libc: "libSystem.B.dylib", anonymous: 0x1000 },
  caches(env) {
    const home = this.home(env);
    return xdgFolder(env, "XDG_CACHE_HOME", home) || (home && `${home}/Library/Caches`);
  },
  limits: () => NO_LIMITS,
  peakMemory: () => null,
  ignoresHangup: () => false,
};
