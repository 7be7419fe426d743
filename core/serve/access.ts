/** Access to the server: API key, Host and Origin. */
import { createHash, timingSafeEqual } from "node:crypto";
import { ApiError } from "./errors.ts";

export interface AccessRules {
  /** Undefined: no key is needed. */
  readonly apiKey: string | undefined;
  /** True if the server listens on a loopback address alone. */
  readonly isLoopback: boolean;
  /** Origins of foreign pages that may send requests. */
  readonly origins: readonly string[];
}

/** Returns whether a host name is this machine's own. */
export function isLoopbackHost(host: string): boolean {
  const name = host.replace(/^\[(.*)\]$/, "$1").toLowerCase();
  return name === "localhost" || name === "::1" || /^127(\.\d{1,3}){3}$/.test(name);
}

/**
 * Refuses a request by its headers. On loopback the Host must be a loopback name, so that a page of a
 * foreign name that resolves to this machine (DNS rebinding) is refused.
 * @throws {ApiError}
 */
export function checkAccess(request: Request, rules: AccessRules): void {
  const host = request.headers.get("host") ?? "";
  if (rules.isLoopback && !isLoopbackHost(host.replace(/:\d+$/, ""))) {
    throw new ApiError(403, "the Host header is not a loopback name");
  }
  const origin = request.headers.get("origin");
  if (origin !== null && !isAllowedOrigin(origin, host, rules)) {
    throw new ApiError(403, `requests from pages of ${origin} are not allowed`);
  }
}

/** Refuses a request without the key. @throws {ApiError} */
export function checkKey(request: Request, { apiKey }: AccessRules): void {
  if (apiKey === undefined) return;
  const given = /^Bearer (.*)$/i.exec(request.headers.get("authorization") ?? "")?.[1] ?? "";
  // Digests have equal lengths, so that the time of the comparison reveals nothing about the key.
  const digest = (text: string) => createHash("sha256").update(text).digest();
  if (timingSafeEqual(digest(given), digest(apiKey))) return;
  throw new ApiError(401, "missing or wrong API key", { code: "invalid_api_key" });
}

/** Headers that let a page of an allowed origin read the response. */
export function corsHeaders(request: Request, { origins }: AccessRules): Record<string, string> {
  const origin = request.headers.get("origin");
  if (origin === null || !(origins.includes(origin) || origins.includes("*"))) return {};
  return {
    "access-control-allow-origin": origin,
    "access-control-allow-methods": "GET, POST, OPTIONS",
    "access-control-allow-headers": request.headers.get("access-control-request-headers") ??
      "authorization, content-type",
    "access-control-expose-headers": "x-request-id, retry-after",
    vary: "origin",
  };
}

function isAllowedOrigin(origin: string, host: string, { origins }: AccessRules): boolean {
  if (origins.includes(origin) || origins.includes("*")) return true;
  return URL.canParse(origin) && new URL(origin).host === host;
}
