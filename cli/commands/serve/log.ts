/** Lines of the log of `serve`, one a request. */
import type { RequestRecord } from "../../../core/serve/record.ts";
import { visible } from "../../output/clean.ts";

/** Paths that are asked for again and again by probes, whose success is not logged. */
const PROBES = ["/health", "/metrics"];

/** Returns whether a record is only of interest under -v. */
export function isProbe({ path, status }: RequestRecord): boolean {
  return PROBES.includes(path) && status === 200;
}

/**
 * Line without control characters of the client, such as
 * `200 POST /v1/completions qwen-p4 P=4, 12 tokens in, 34 out, first 0.05 s, total 0.42 s`.
 */
export function recordLine(record: RequestRecord): string {
  return visible(plainLine(record));
}

function plainLine(record: RequestRecord): string {
  const { status, method, path, model, streams, promptTokens, newTokens } = record;
  const head = `${status} ${method} ${path}`;
  const total = `total ${seconds(record.totalMs)} s`;
  if (record.error !== undefined) return `${head}, ${total}: ${record.error}`;
  if (model === undefined) return `${head}, ${total}`;
  const first = record.firstTokenMs === undefined ? "-" : seconds(record.firstTokenMs);
  return `${head} ${model} P=${streams}, ${promptTokens} tokens in, ${newTokens} out, ` +
    `first ${first} s, ${total}${record.note === undefined ? "" : `; ${record.note}`}`;
}

/** Fields of the same for programs. */
export function recordFields(record: RequestRecord): object {
  return {
    method: record.method,
    path: record.path,
    model: record.model ?? null,
    streams: record.streams ?? null,
    prompt_tokens: record.promptTokens,
    completion_tokens: record.newTokens,
    first_token_s: record.firstTokenMs === undefined ? null : rounded(record.firstTokenMs),
    total_s: rounded(record.totalMs),
    status: record.status,
    ...(record.error === undefined ? {} : { error: record.error }),
    ...(record.note === undefined ? {} : { note: record.note }),
  };
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(ms < 10_000 ? 3 : 1);
}

function rounded(ms: number): number {
  return Number((ms / 1000).toFixed(4));
}
