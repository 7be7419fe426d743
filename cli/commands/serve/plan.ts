/** From the flags of `parscale serve` to models, access and limits. */
import { UsageError } from "../../../core/base/errors.ts";
import { isLoopbackHost } from "../../../core/serve/access.ts";
import type { ServiceOptions } from "../../../core/serve/service.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { type NamedAdapter, parseAdapters } from "../../input/named_models.ts";
import { type ModelPlan, modelPlan } from "../../input/open_model.ts";
import { refuseFlags, refuseFormat } from "../../input/forms.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type ServeValues = ValuesOf<typeof command>;

/** A server. */
export interface ServePlan {
  readonly model: ModelPlan;
  readonly adapters: readonly NamedAdapter[];
  /** Most tokens of prompt and answer together; undefined for the model's context. */
  readonly maxModelLen: number | undefined;
  readonly address: { readonly host: string; readonly port: number };
  readonly access: { readonly isLoopback: boolean; readonly origins: readonly string[] };
  /** True if there is a chat page. */
  readonly ui: boolean;
  readonly logFormat: "text" | "json";
  readonly limits: ServiceOptions;
  /** Seconds that running requests have to finish. */
  readonly drainTimeout: number;
}

/** Refuses flags of files and formats. */
export function check(_values: ServeValues, invocation: Invocation): void {
  refuseFlags(invocation, "`serve`", ["out", "overwrite"]);
  if (invocation.format !== "json") refuseFormat(invocation, "the output of `serve`");
}

/** Checks who may connect. */
export function planServer(values: ServeValues, io: Io): ServePlan {
  const adapters = parseAdapters(values.adapter);
  const { maxModelLen, host, port, cors, ui, maxBatch, maxQueue, drainTimeout, logFormat } = values;
  const isLoopback = isLoopbackHost(host);
  if (!isLoopback && apiKeyOf(io) === undefined) {
    throw new UsageError(`\`--host ${host}\` needs an API key in PARSCALE_API_KEY`, {
      hints: ["set PARSCALE_API_KEY, or leave out --host to serve this machine alone"],
    });
  }
  const { targetTpot, targetTtft } = values;
  const prefixCacheBytes = Math.floor(values.prefixCache / (1 + adapters.length));
  return {
    model: modelPlan(values),
    adapters,
    maxModelLen,
    address: { host, port },
    access: { isLoopback, origins: cors },
    ui,
    logFormat,
    limits: {
      maxBatch,
      maxQueue,
      prefixCacheBytes,
      streams: readStreams(values.streams, adapters.length),
      targets: { tpotMs: 1000 * targetTpot, ttftMs: 1000 * targetTtft },
    },
    drainTimeout,
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

/** The key that clients must send; no part of a plan, which may be printed. */
export function apiKeyOf(io: Io): string | undefined {
  return io.env("PARSCALE_API_KEY") || undefined;
}
