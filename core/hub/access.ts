/**
 * Hub settings from the environment, with the names and defaults of Python's huggingface_hub.
 */
import { EnvironmentError } from "../base/errors.ts";
import { readRegularText, statIfExists } from "../base/files.ts";
import { type Environment, homeFolder } from "../base/platform/mod.ts";
import { accountHome, pathIn, xdgFolder } from "../base/platform/paths.ts";

/** Address of the hub, token, and folder of downloads. */
export interface HubAccess {
  /** `HF_ENDPOINT`, without a slash at its end. */
  readonly endpoint: string;
  /** Sent to the origin of `endpoint` only. */
  readonly token: string | undefined;
  /** Cache folder shared with other programs. */
  readonly cache: string;
  /** The variable that forbids requests. */
  readonly offline?: string | undefined;
  /** True where the user forbids tokens that no command names, which are all there are. */
  readonly forbidsToken?: boolean;
}

const PUBLIC_HUB = "https://huggingface.co";

/**
 * Reads the settings.
 * @throws {EnvironmentError} for an address or a token that cannot be sent
 */
export async function hubAccess(
  env: Environment = (name) => Deno.env.get(name),
): Promise<HubAccess> {
  const home = homeFolder(env) ?? accountHome();
  const path = (name: string) => pathIn(env, name, home);
  const caches = xdgFolder(env, "XDG_CACHE_HOME", home) ?? `${home ?? "."}/.cache`;
  const folder = path("HF_HOME") ?? `${caches}/huggingface`;
  const cache = path("HF_HUB_CACHE") ?? path("HUGGINGFACE_HUB_CACHE") ?? `${folder}/hub`;
  const forbidsToken = isTrue(env("HF_HUB_DISABLE_IMPLICIT_TOKEN"));
  const token = forbidsToken
    ? undefined
    : await tokenOf(env, path("HF_TOKEN_PATH") ?? `${folder}/token`);
  // "HF_HUB_OFFLINE=0" overrules the other.
  const deciding = env("HF_HUB_OFFLINE") ? "HF_HUB_OFFLINE" : "TRANSFORMERS_OFFLINE";
  const offline = isTrue(env(deciding)) ? deciding : undefined;
  return { endpoint: endpointOf(env), token, forbidsToken, cache, offline };
}

function isTrue(value: string | undefined): boolean {
  return /^(1|on|yes|true)$/i.test(value ?? "");
}

/** A value pasted with a line break or a slash at its end is fine. */
function endpointOf(env: Environment): string {
  const endpoint = env("HF_ENDPOINT")?.trim().replace(/\/+$/, "") || PUBLIC_HUB;
  if (/^https?:$/.test(URL.parse(endpoint)?.protocol ?? "")) return endpoint;
  throw new EnvironmentError(`HF_ENDPOINT is not a URL: "${endpoint}"`, {
    hints: [`set it to a URL such as ${PUBLIC_HUB}, or unset it`],
  });
}

async function tokenOf(env: Environment, path: string): Promise<string | undefined> {
  const given = (env("HF_TOKEN") || env("HUGGING_FACE_HUB_TOKEN"))?.trim();
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
