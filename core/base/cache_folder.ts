/** Finds the folder of what is kept between runs and can be made again. */
import { EnvironmentError } from "./errors.ts";
import { pathIn } from "./platform/paths.ts";
import { PLATFORM, type Platform } from "./platform/mod.ts";

/**
 * `PARSCALE_CACHE`, else the system's cache folder; without a home a private folder among the temporary
 * ones.
 * @throws {EnvironmentError} when another user has a folder of that name there
 */
export function cacheFolder(
  env: (name: string) => string | undefined,
  platform: Platform = PLATFORM,
): string {
  const own = pathIn(env, "PARSCALE_CACHE", platform.home(env));
  if (own) return own;
  const caches = platform.caches(env);
  return caches ? `${caches}/parscale` : privateFolder(platform.temporary(env));
}

/** Programs are loaded from the cache, so no other user may be able to put one there. */
function privateFolder(temporary: string): string {
  const uid = Deno.uid();
  const folder = `${temporary}/parscale-${uid ?? "cache"}`;
  Deno.mkdirSync(folder, { recursive: true, mode: 0o700 });
  const found = Deno.lstatSync(folder);
  const isOurs = found.isDirectory && found.uid === uid && ((found.mode ?? 0) & 0o077) === 0;
  if (uid !== null && !isOurs) {
    throw new EnvironmentError(`"${folder}" cannot be the cache: other users can write to it`, {
      hints: ["set PARSCALE_CACHE to a folder of your own, or set HOME"],
    });
  }
  return folder;
}
