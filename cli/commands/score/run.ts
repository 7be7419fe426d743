/** Carries out `parscale score`: batches of rows through the model, in input order. */
import { Buffer } from "node:buffer";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { type JsonObject, statIfExists } from "../../../core/base/files.ts";
import { modelFingerprint } from "../../../core/checkpoint/fingerprint.ts";
import { largestBatch } from "../../../core/generate/batch_size.ts";
import { checkTokens } from "../../../core/generate/prefill.ts";
import {
  requireStreamWeights,
  type Score,
  scoreBatch,
  type ScoreRequest,
} from "../../../core/generate/score.ts";
import type { Session } from "../../../core/session/session.ts";
import { encodePair, startTokenOf } from "../../../core/tokenizer/pair.ts";
import type { ValuesOf } from "../../framework/command.ts";
import type { Context } from "../../framework/context.ts";
import { memoryBudget } from "../../input/limits.ts";
import { isOfShard, parseShard, requireFileForShard } from "../../input/shard.ts";
import type { Invocation } from "../../output/document.ts";
import { inputName } from "../../output/io.ts";
import { beginsRows, checkJournal } from "../../output/journal.ts";
import { Progress } from "../../output/progress.ts";
import { RowWriter } from "../../output/row_writer.ts";
import {
  attempt,
  endingFailure,
  failureOf,
  fieldNames,
  type InputRow,
  readRows,
  rowError,
  textOf,
  tokensOf,
} from "../../input/rows.ts";
import type { command } from "./flags.ts";

type ScoreValues = ValuesOf<typeof command>;

/** Checks flags that concern each other. */
export function check(
  { arguments: [from = "-"], shard, streamWeights }: ScoreValues,
  { format, origins }: Invocation,
): void {
  requireFileForShard(parseShard(shard), from);
  if (streamWeights && origins["stream-weights"] === "flag" && !format.startsWith("json")) {
    throw new UsageError("`--stream-weights` needs `--json` or `--jsonl`: no table has them");
  }
}

/** Runs the command; the number is its exit code. */
export async function run(values: ScoreValues, ctx: Context): Promise<number> {
  const { arguments: [from = "-"], batch, onError, overwrite, streamWeights } = values;
  const { io, invocation } = ctx;
  const resume = checkJournal({ out: invocation.out, resume: values.resume, overwrite });
  const shard = parseShard(values.shard);
  if (ctx.isDryRun) await io.requireFile(from); // a run reads pipes once
  using model = await ctx.openModel(values);
  const { device, checkpoint, config } = model;
  if (streamWeights) requireStreamWeights(config);
  ctx.begin();
  if (beginsRows(resume)) model.engine.preload({ head: "score" }); // beside the tokenizer
  using results = new RowWriter(io, invocation, {
    schema: "parscale.score/1",
    device,
    columns: [
      "id",
      ...(values.echo ? ["prompt", "continuation", "text"] : []),
      { key: "loglikelihood", digits: 4 },
      "is_greedy",
      "error",
    ],
    resume,
    identity: () => ({
      model: modelFingerprint(checkpoint),
      device,
      batch: shard === undefined ? undefined : batch, // shards are dealt by batches
    }),
  });
  let done = results.resumed;
  using progress = new Progress(io, { label: "Scoring", unit: "rows", from: done });
  const name = inputName(from);
  const limit = memoryBudget(values.memoryLimit, model.engine.device);
  const size = from === "-" ? 0 : (await statIfExists(from))?.size ?? 0;
  let at = 0, read = 0, skipped = 0;
  const lines = async function* () {
    for await (const line of io.readLines(from)) {
      read += Buffer.byteLength(line) + 1;
      yield line;
    }
  };
  const flush = async (rows: readonly InputRow[]) => {
    if (!isOfShard(shard, at / batch)) {
      rows.forEach((_, i) => results.skip(at + i));
      at += rows.length;
      return;
    }
    // Batches are the same as in an unbroken run, and with them all roundings.
    const isDone = rows.map((row, i) => results.has(at + i, row.fields)).every((done) => done);
    const scored = isDone ? [] : await scoreRows(model, rows, name, values, limit);
    scored.forEach((result, i) => results.add(at + i, rows[i]!.fields, [result]));
    at += rows.length;
    if (isDone) skipped = read;
    done += scored.length;
    // As many rows as the rest of the file has at the length of those that were read.
    const share = (read - skipped) / (size - skipped), own = done - results.resumed;
    progress.update(done, "", share > 0 ? { done, total: done - own + own / share } : undefined);
    await results.pause();
  };
  let rows: InputRow[] = [];
  for await (const row of results.untilInterrupted(readRows(lines(), name, onError))) {
    rows.push(row);
    if (rows.length < batch) continue;
    await flush(rows);
    rows = [];
  }
  if (rows.length > 0) await flush(rows);
  if (at === 0) io.warn("there are no rows in the input");
  return await results.finish();
}

/**
 * Scores a batch, in parts where it exceeds `limit` bytes. Rows that the model cannot take get an `error`
 * instead of numbers.
 */
async function scoreRows(
  model: Session,
  rows: readonly InputRow[],
  name: string,
  { streamWeights: weights, onError, echo }: ScoreValues,
  limit: number,
): Promise<Record<string, unknown>[]> {
  const results: Record<string, unknown>[] = [];
  const requests: { request: ScoreRequest; at: number }[] = [];
  for (const [at, row] of rows.entries()) {
    results.push({ id: row.id, ...(echo && askedOf(row)) });
    const { value: encode, error } = await attempt(onError, () => readFields(row, model, name));
    if (!encode) {
      results[at]!.error = failureOf(error);
      continue;
    }
    try {
      const request = encode();
      checkTokens(model.engine.config, request.tokens, "score a sequence", {
        unread: Number(!weights),
      });
      requests.push({ request, at });
    } catch (error) {
      if (!(error instanceof DataError)) throw error;
      if (onError === "stop") throw endingFailure(row.id, error);
      results[at]!.error = failureOf(error);
    }
  }
  if (requests.length === 0) return results;
  const slots = Math.max(...requests.map(({ request }) => request.tokens.length));
  const most = requests.length;
  const size = largestBatch(model.engine, { use: "score", most, slots, limit });
  for (let from = 0; from < most; from += size) {
    const part = requests.slice(from, from + size);
    const scores = await scoreBatch(model.engine, part.map(({ request }) => request), { weights });
    scores.forEach((score, i) => {
      const { at, request } = part[i]!;
      Object.assign(results[at]!, fieldsOf(score, request));
    });
  }
  return results;
}

/** The texts of a row; ids are in every result. */
function askedOf({ fields: { tokens, text, prompt, continuation } }: InputRow): JsonObject {
  if (tokens !== undefined) return {};
  return text === undefined ? { prompt, continuation } : { text };
}

function fieldsOf(score: Score, request: ScoreRequest): Record<string, unknown> {
  return {
    tokens: request.tokens,
    token_logprobs: score.tokenLogprobs,
    loglikelihood: score.loglikelihood,
    is_greedy: score.isGreedy,
    ...(score.weights ? { weights: score.weights } : {}),
  };
}

/**
 * Checks that a row is well-formed and opens what it needs, errors of which end the command. What the
 * result throws when called concerns this row alone.
 */
async function readFields(
  row: InputRow,
  model: Session,
  name: string,
): Promise<() => ScoreRequest> {
  const { tokens, text, prompt, continuation } = row.fields;
  if (row.error) throw row.error;
  if (tokens !== undefined) {
    const ids = tokensOf(tokens, name, row.line);
    return () => ({ tokens: ids, from: 1 });
  }
  if (text === undefined && (prompt === undefined || continuation === undefined)) {
    const expected = '"tokens", "text", or "prompt" and "continuation"';
    throw rowError(name, row.line, fieldNames(row), expected);
  }
  const read = (value: unknown, field: string) => textOf(value, field, name, row.line);
  const texts = text === undefined
    ? [read(prompt, "prompt"), read(continuation, "continuation")] as const
    : ["", read(text, "text")] as const;
  const tokenizer = await model.openTokenizer();
  const start = startTokenOf(tokenizer, model.config.eosTokenIds);
  return () => encodePair(tokenizer, ...texts, start);
}
