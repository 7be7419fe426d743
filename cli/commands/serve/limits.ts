/** Access and limits of `parscale serve`. */
import { UsageError } from "../../../core/base/errors.ts";
import { isLoopbackHost } from "../../../core/serve/access.ts";
import type { ServiceOptions } from "../../../core/serve/service.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { DRAFT_TOKENS } from "../../input/decoding_flags.ts";
import { refuseFlags, refuseFormat } from "../../input/forms.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type ServeValues = ValuesOf<typeof command>;

/** Refuses flags of files and formats. */
export function check(_values: ServeValues, invocation: Invocation): void {
  refuseFlags(invocation, "`serve`", ["out", "overwrite"]);
  if (invocation.format !== "json") refuseFormat(invocation, "the output of `serve`");
}

/** Refuses a port that others reach and whose clients need no key. Returns whether only this machine does. */
export function requireKey({ host }: ServeValues, io: Io): boolean {
  const isLoopback = isLoopbackHost(host);
  if (isLoopback || apiKeyOf(io) !== undefined) return isLoopback;
  throw new UsageError(`\`--host ${host}\` needs an API key in PARSCALE_API_KEY`, {
    hints: ["set PARSCALE_API_KEY, or leave out --host to serve this machine alone"],
  });
}

/** Limits of a server; the prefix cache is shared by its models. */
export function limitsOf(values: ServeValues): ServiceOptions {
  const { adapter: { length: adapters }, maxBatch, maxQueue, targetTpot, targetTtft } = values;
  return {
    maxBatch,
    maxQueue,
    prefixCacheBytes: Math.floor(values.prefixCache / (1 + adapters)),
    streams: readStreams(values.streams, adapters),
    speculate: values.speculate ?? DRAFT_TOKENS,
    targets: { tpotMs: 1000 * targetTpot, ttftMs: 1000 * targetTtft },
  };
}

function readStreams(text: string | undefined, adapters: number): number | "auto" | undefined {
  if (text === "auto" && adapters === 0) {
    throw new UsageError("`--streams auto` has nothing to choose from without `--adapter`", {
      hints: ["pass `--adapter NAME=PATH`, such as a folder of `convert --introduced-only`"],
    });
  }
  if (text === undefined || text === "auto") return text;
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text);
  throw new UsageError(`\`--streams ${text}\` is not a number of streams, or \`auto\``, {
    hints: ["pass `--streams auto`, or a number such as `--streams 4`"],
  });
}

/** The key that clients must send. */
export function apiKeyOf(io: Io): string | undefined {
  return io.env("PARSCALE_API_KEY") || undefined;
}
