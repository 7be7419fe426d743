/**
 * Result documents: what `--json` prints around the results, and JSON that programs can trust.
 *
 * Keys are `snake_case`, absent is `null`, and a number that is not finite is an error with its
 * path, never a `null` or a `NaN` that some readers accept. `config` holds the flags by name, so that
 * the document can be passed to `--config`.
 */
import { NumericalError } from "../../core/base/errors.ts";
import type { Format } from "../framework/common.ts";
import type { Origin } from "../framework/constraints.ts";
import { type ConfigValue, snakeCase } from "../framework/table.ts";
import { VERSION } from "../../core/base/version.ts";

/** One run of one command: what it was asked and when. */
export interface Invocation {
  readonly command: string;
  readonly startedAt: Date;
  /** Reading of `System.now` at the start. */
  readonly startedMs: number;
  readonly format: Format;
  /** File of the result; undefined is stdout. Never set when the command has its own `--out`. */
  readonly out: string | undefined;
  readonly overwrite: boolean;
  readonly config: Readonly<Record<string, ConfigValue>>;
  readonly origins: Readonly<Record<string, Origin>>;
}

/** Fields of a document besides its results. */
export interface DocumentHead {
  /** Name and major version of the layout: `parscale.score/1`. */
  readonly schema: string;
  readonly seed?: number | undefined;
  readonly device?: string | undefined;
}

/** Flags by name in the case of documents. */
export function configKeys(
  config: Readonly<Record<string, ConfigValue>>,
): Record<string, ConfigValue> {
  return Object.fromEntries(
    Object.entries(config).map(([name, value]) => [snakeCase(name), value]),
  );
}

/** Fields of an object under their names in documents: `kvCacheBytes` is `kv_cache_bytes`. */
export function snakeKeys(fields: object): Record<string, unknown> {
  const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [snake(name), value]));
}

/** Wraps results in the common head; the order of keys is the order of reading. */
export function buildDocument(
  invocation: Invocation,
  head: DocumentHead,
  durationMs: number,
  results: unknown,
): Record<string, unknown> {
  return {
    schema: head.schema,
    version: VERSION,
    command: invocation.command,
    config: configKeys(invocation.config),
    seed: head.seed ?? invocation.config.seed ?? null,
    device: head.device ?? null,
    started_at: invocation.startedAt.toISOString(),
    duration_s: Math.round(durationMs) / 1000,
    results,
  };
}

/** Numeric arrays become plain ones, `undefined` becomes `null`, and all numbers are checked. */
function jsonReady(value: unknown, path: string): unknown {
  if (value === undefined || value === null) return null;
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new NumericalError(`result "${path}" is ${value}, which JSON cannot hold`);
  }
  if (typeof value !== "object" || "toJSON" in value) return value;
  const items = ArrayBuffer.isView(value) ? Array.from(value as unknown as number[]) : value;
  if (Array.isArray(items)) return items.map((item, i) => jsonReady(item, `${path}[${i}]`));
  return Object.fromEntries(
    Object.entries(items).map((
      [key, item],
    ) => [key, jsonReady(item, path ? `${path}.${key}` : key)]),
  );
}

/** One JSON text without line breaks, or an indented one. */
export function toJson(value: unknown, indent = 0): string {
  return JSON.stringify(jsonReady(value, ""), null, indent);
}
