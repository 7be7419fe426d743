/** Windows. */
import { xdgFolder } from "./paths.ts";
import { codeOf, NO_LIMITS, type Platform } from "./types.ts";

/**
 * Codes of a rename over a file that another program, often a virus scanner, has open at the moment,
 * and of one over a folder.
 */
const BUSY = ["EACCES", "EPERM", "EBUSY"];

export const WINDOWS: Platform = {
  name: "windows",
  // Ctrl-C, Ctrl-Break and the closing of the console window; nothing else can be listened to.
  endingSignals: ["SIGINT", "SIGBREAK", "SIGHUP"],
  childVariables: [
    ...["PATH", "DENO_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA", "USERPROFILE"],
    ...["TEMP", "TMP", "SystemRoot"],
  ],
  hasModes: false,
  home: (env) => env("USERPROFILE") || env("HOME") || undefined,
  caches(env) {
    const home = this.home(env);
    return xdgFolder(env, "XDG_CACHE_HOME", home) || env("LOCALAPPDATA") ||
      (home && `${home}\\AppData\\Local`);
  },
  temporary: (env) => env("TEMP") || env("TMP") || `${env("SystemRoot") ?? "C:\\Windows"}\\Temp`,
  limits: () => NO_LIMITS,
  peakMemory: () => null,
  ignoresHangup: () => false,
  isPassing: (error) => BUSY.includes(codeOf(error)),
  isTaken: (error) => ["EEXIST", "ENOTEMPTY", ...BUSY].includes(codeOf(error)),
};
