/**
 * Hub settings from the environment, with the names and defaults of Python's huggingface_hub.
 */
import { EnvironmentError } from "../base/errors.ts";
import { readRegularText, statIfExists } from "../base/files.ts";
import { type Environment, homeFolder } from "../base/platform/mod.ts";

/** Address of the hub, token, and folder of downloads. */
export interface HubAccess {
  /** `HF_ENDPOINT`, without a slash at its end. */
  readonly endpoint: string;
  /** Sent to the origin of `endpoint` only. */
  readonly token: string | undefined;
  /** Cache folder shared with other programs. */
  readonly cache: string;
  /** `HF_HUB_OFFLINE`: no request is made. */
  readonly isOffline: boolean;
}

const PUBLIC_HUB = "https://huggingface.co";

/**
 * Reads the settings.
 * @throws {EnvironmentError} for an address or a token that cannot be sent
 */
export async function hubAccess(
  env: Environment = (name) => Deno.env.get(name),
): Promise<HubAccess> {
  const home = hubFolder(env);
  return {
    endpoint: endpointOf(env),
    token: await tokenOf(env, home),
    cache: env("HF_HUB_CACHE") || `${home}/hub`,
    isOffline: /^(1|on|yes|true)$/i.test(env("HF_HUB_OFFLINE") ?? ""),
  };
}

/** Returns the cache folder of huggingface_hub, which is below `~/.cache` on every system. */
function hubFolder(env: Environment): string {
  const cache = env("XDG_CACHE_HOME") || `${homeFolder(env) ?? "."}/.cache`;
  return env("HF_HOME") || `${cache}/huggingface`;
}

/** A value pasted with a line break or a slash at its end is fine. */
function endpointOf(env: Environment): string {
  const endpoint = env("HF_ENDPOINT")?.trim().replace(/\/+$/, "") || PUBLIC_HUB;
  if (/^https?:$/.test(URL.parse(endpoint)?.protocol ?? "")) return endpoint;
  throw new EnvironmentError(`HF_ENDPOINT is not a URL: "${endpoint}"`, {
    hints: [`set it to a URL such as ${PUBLIC_HUB}, or unset it`],
  });
}

async function tokenOf(env: Environment, home: string): Promise<string | undefined> {
  const given = env("HF_TOKEN")?.trim();
  const path = env("HF_TOKEN_PATH") || `${home}/token`;
  const token = given || (await readIfExists(path))?.trim();
  // Anything else could not be sent as a header; the value itself is never shown.
  if (!token || /^[\x21-\x7e]+$/.test(token)) return token || undefined;
  throw new EnvironmentError(
    `${given ? "HF_TOKEN" : `the token in "${path}"`} has blanks or characters that no token has`,
    { hints: ["copy the token again, or remove it for public repositories"] },
  );
}

async function readIfExists(path: string): Promise<string | undefined> {
  return await statIfExists(path) ? await readRegularText(path) : undefined;
}
