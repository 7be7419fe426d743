/** Where what can be made again is kept between runs. */
import type { Io } from "./output/io.ts";

/** `PARSCALE_CACHE`, else the system's cache folder. */
export function cacheFolder(io: Io): string {
  const own = io.env("PARSCALE_CACHE");
  if (own) return own;
  const home = io.env("XDG_CACHE_HOME") || `${io.env("HOME") ?? "."}/.cache`;
  return `${home}/parscale`;
}
