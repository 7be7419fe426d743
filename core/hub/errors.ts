/** Puts failures of requests into the user's terms. */
import { DataError, EnvironmentError, type ParscaleError } from "../base/errors.ts";
import { type HubClient, NetworkError, StatusError } from "./client.ts";
import type { Repository } from "./repository.ts";

/** Subject of a request that failed. */
export interface Asked {
  readonly repository: Repository;
  readonly revision: string;
  /** Begins the message, such as `no such folder: "a/b", and `. */
  readonly prefix?: string;
  /** Remedies of the caller's, before all others. */
  readonly hints?: readonly string[];
}

/** The error to show for `error`, which is returned itself unless a request failed. */
export function explain(error: unknown, client: HubClient, asked: Asked): unknown {
  const { access } = client;
  const { prefix = "", hints = [] } = asked;
  if (error instanceof NetworkError) {
    const remedy = /UnknownIssuer|CaUsedAsEndEntity/.test(causesOf(error))
      ? "where a proxy signs connections, set DENO_CERT to its certificate file, or " +
        "DENO_TLS_CA_STORE=system if the system trusts it"
      : "check the network and HF_ENDPOINT";
    return new EnvironmentError(`${prefix}the hub cannot be reached: ${error.message}`, {
      cause: error,
      hints: [...hints, remedy],
    });
  }
  if (!(error instanceof StatusError)) return error;
  if (error.isPassing) {
    const tries = client.patience.delaysMs.length + 1;
    const wait = error.waitMs === undefined ? "later" : `in ${Math.ceil(error.waitMs / 1000)} s`;
    return new EnvironmentError(
      `${prefix}the hub cannot serve "${asked.repository.name}": ${error.message} after ${tries} tries`,
      { cause: error, hints: [...hints, `try again ${wait}`, ...tokenHint(error.status, access)] },
    );
  }
  return refusal(error, access, asked);
}

function causesOf(error: unknown): string {
  return error instanceof Error ? `${error.message} ${causesOf(error.cause)}` : "";
}

/** More requests are granted to who has a token. */
function tokenHint(status: number, { token }: HubClient["access"]): readonly string[] {
  return status === 429 && token === undefined ? ["a token in HF_TOKEN raises the limit"] : [];
}

function refusal(
  cause: StatusError,
  { endpoint, token, forbidsToken }: HubClient["access"],
  { repository: { kind, name }, revision, prefix = "", hints = [] }: Asked,
): ParscaleError {
  const page = `${endpoint}/${kind === "dataset" ? "datasets/" : ""}${name}`;
  const ask = forbidsToken
    ? "unset HF_HUB_DISABLE_IMPLICIT_TOKEN, which forbids every token"
    : `${token === undefined ? "put a token into" : "check the token in"} HF_TOKEN`;
  const { status, code } = cause;
  const say = (text: string, ...more: string[]) =>
    new DataError(`${prefix}${text}`, { cause, hints: [...hints, ...more] });
  if (code === "GatedRepo") {
    return say(`the ${kind} "${name}" is gated`, `accept its terms on ${page}`, ask);
  }
  if (code === "RevisionNotFound") {
    return say(`the ${kind} "${name}" has no revision "${revision}"`, `see ${page}`);
  }
  if (code === "EntryNotFound") {
    return say(`a file of the ${kind} "${name}" is gone at "${revision}"`, `see ${page}`);
  }
  if (status === 404 || code === "RepoNotFound") {
    return say(`the hub has no ${kind} "${name}"`, "check the name", `if it is private, ${ask}`);
  }
  if (status === 401 || status === 403) {
    return say(`the hub refuses the ${kind} "${name}" (status ${status})`, "check the name", ask);
  }
  return say(`the hub answers with status ${status} for the ${kind} "${name}"`, `see ${page}`);
}
