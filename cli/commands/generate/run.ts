/**
 * What `generate` does: reads prompts, runs them, and writes text as it comes, or rows in input order.
 *
 * Formats that go out row by row read their prompts as slowly as they come and answer early ones
 * before the input ends. The others need all rows, and know their number from the start.
 */
import { UsageError } from "../../../core/base/errors.ts";
import { statIfExists } from "../../../core/base/files.ts";
import { modelFingerprint } from "../../../core/checkpoint/fingerprint.ts";
import { Decoding, type DecodingValues, type Sequence } from "./sequences.ts";
import { Speed } from "./speed.ts";
import { visibleLines } from "../../output/clean.ts";
import {
  invocationOf,
  isOfShard,
  parseShard,
  requireFileForShard,
  resolveShard,
} from "../../input/shard.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { startProgress } from "../../output/progress.ts";
import { RowWriter, Turns } from "../../output/row_writer.ts";
import { openSink } from "../../output/sink.ts";
import {
  type NamedAdapter,
  type NamedSessions,
  type NamedValues,
  openAdapters,
  requireDistinct,
} from "../../input/named_models.ts";
import { openModel } from "../../input/open_model.ts";
import { type Prompt, type PromptSource, readPrompts } from "../../input/prompts.ts";
import { failureOf } from "../../input/rows.ts";

/** Flags of `generate` that matter here. */
export interface GenerateValues extends NamedValues, PromptSource, DecodingValues {
  readonly resume: boolean;
  readonly shard?: string | undefined;
  readonly out?: string | undefined;
}

/** Runs the command; the number is its exit code. */
export async function run(
  given: GenerateValues,
  io: Io,
  asked: Invocation,
): Promise<number> {
  const values = resolveShard(given, io);
  const invocation = invocationOf(asked, values);
  const shard = parseShard(values.shard);
  requireFileForShard(shard, values.arguments[0]);
  checkReturned(values);
  const models = await openSessions(values, io);
  using session = models.session;
  const names = [...models.adapters.keys()];
  // Beside the tokenizer; of several adapters the rows say which engine is needed.
  if (!values.resume && names.length <= 1) session.engine.preload();
  const { maxPositionEmbeddings: context, vocabSize } = session.config;
  checkEndTokens(values.eos, vocabSize);
  if (values.maxTokens >= context) {
    io.warn(
      `--max-tokens ${values.maxTokens} exceeds what the model's context of ${context} tokens leaves`,
      "answers end where prompt and new tokens fill the context",
    );
  }
  const tokenizer = values.stop.length > 0
    ? await session.openTokenizer()
    : await session.openTokenizerIfAny();
  const speed = new Speed(io, invocation.startedMs);
  const decoding = new Decoding(models, tokenizer, values);
  const read = readPrompts(values, io, session, names);

  const code = await answer(decoding, read, models, values, io, invocation, speed);
  speed.report();
  return code;
}

/** Opens `--model` and `--adapter`; of several adapters rows choose one, and without a name none. */
async function openSessions(values: GenerateValues, io: Io): Promise<NamedSessions> {
  const adapters: NamedAdapter[] = [];
  for (const text of values.adapter) adapters.push(await parseAdapter(text));
  const [only, ...others] = adapters;
  if (others.length > 0) {
    requireDistinct(adapters);
    return await openAdapters(values, adapters, io);
  }
  const session = await openModel({ ...values, adapter: only?.path }, io);
  return { session, adapters: new Map(only ? [[only.name, session]] : []) };
}

/** `NAME=PATH`, or a path that is its own name. A path may have an equals sign in it. */
async function parseAdapter(text: string): Promise<NamedAdapter> {
  const at = text.indexOf("=");
  if (at <= 0 || await statIfExists(text)) return { name: text, path: text };
  return { name: text.slice(0, at), path: text.slice(at + 1) };
}

/** Writes text as it comes, rows as they are done, or all of them at the end. */
async function answer(
  decoding: Decoding,
  read: AsyncIterable<Prompt>,
  models: NamedSessions,
  values: GenerateValues,
  io: Io,
  invocation: Invocation,
  speed: Speed,
): Promise<number> {
  const { format } = invocation;
  if (format === "jsonl" || format === "csv") {
    using rows = openRows(values, io, invocation, models);
    return await writeRows(decoding, read, values, undefined, io, rows, speed);
  }
  const prompts = await Array.fromAsync(read);
  const all = async function* () {
    yield* prompts;
  };
  const isText = format === "table" && prompts.length === 1 && values.numReturn === 1 &&
    values.shard === undefined;
  if (isText && decoding.hasText && !values.resume) {
    return await streamText(decoding, all(), io, invocation, speed);
  }
  using rows = openRows(values, io, invocation, models);
  return await writeRows(decoding, all(), values, prompts.length, io, rows, speed);
}

function openRows(
  { resume }: GenerateValues,
  io: Io,
  invocation: Invocation,
  { session, adapters }: NamedSessions,
): RowWriter {
  const { device } = session;
  const sessions = new Set([session, ...adapters.values()]);
  const model = () => Array.from(sessions, (one) => modelFingerprint(one.checkpoint)).join();
  return new RowWriter(io, invocation, {
    schema: "parscale.generate/1",
    device,
    columns: [{ key: "id" }, { key: "finish_reason" }, { key: "text" }, { key: "error" }],
    resume,
    identity: () => ({ model: model(), device }),
  });
}

function checkReturned({ numReturn, numBeams, temperature }: GenerateValues): void {
  if (numReturn === 1 || temperature > 0 || numReturn <= numBeams) return;
  throw new UsageError(
    `\`--num-return ${numReturn}\` needs \`--temperature\` above 0, or \`--num-beams\` of at least ${numReturn}`,
  );
}

function checkEndTokens(eos: readonly number[], vocabSize: number): void {
  const wrong = eos.find((id) => id >= vocabSize);
  if (wrong === undefined) return;
  throw new UsageError(
    `\`--eos ${wrong}\` is no token: the vocabulary has ids 0 to ${vocabSize - 1}`,
  );
}

/** Writes one prompt's continuation while it is produced. */
async function streamText(
  decoding: Decoding,
  prompts: AsyncIterable<Prompt>,
  io: Io,
  { out, overwrite }: Invocation,
  speed: Speed,
): Promise<number> {
  const sink = openSink(io, out, overwrite);
  const turns = new Turns();
  try {
    let last = "";
    for await (const event of speed.watch(decoding.run(prompts))) {
      if (event.kind === "text") {
        last = event.text;
        sink.write(sink.isTerminal ? visibleLines(last) : last);
      }
      if (event.kind === "failed") throw event.error;
      await turns.give();
      io.interruption.throwIfAborted();
    }
    if (!last.endsWith("\n")) sink.write("\n");
    sink.commit();
  } finally {
    sink.abandon();
  }
  return 0;
}

/** Writes the prompts of this part; the number is the exit code. */
async function writeRows(
  decoding: Decoding,
  prompts: AsyncIterable<Prompt>,
  { numReturn, shard: shardText }: GenerateValues,
  total: number | undefined,
  io: Io,
  rows: RowWriter,
  speed: Speed,
): Promise<number> {
  using progress = startProgress(io, { label: "Generating", unit: "rows", total });
  const shard = parseShard(shardText);
  const nested = numReturn > 1 && ["json", "jsonl"].includes(rows.invocation.format);
  const turns = new Turns();
  const isDone = (at: number, prompt: Prompt) => {
    if (isOfShard(shard, at)) return rows.has(at, prompt);
    rows.skip(at);
    return true;
  };
  const events = decoding.run(rows.untilInterrupted(prompts), isDone);
  for await (const event of speed.watch(events)) {
    const { kind, at, prompt } = event;
    if (kind === "failed") rows.add(at, prompt, [{ id: prompt.id, error: failureOf(event.error) }]);
    if (kind === "done") {
      const { sequences } = event;
      rows.add(
        at,
        prompt,
        nested
          ? [{ id: prompt.id, sequences, stats: statsOf(prompt, sequences) }]
          : sequences.map((one) => ({ id: prompt.id, ...one, stats: statsOf(prompt, [one]) })),
      );
    }
    if (kind !== "text") progress.update(rows.done);
    await turns.give();
    rows.throwIfInterrupted();
  }
  if (rows.done === 0) io.warn("there are no prompts in the input");
  return await rows.finish();
}

function statsOf(prompt: Prompt, sequences: readonly Sequence[]): Record<string, number> {
  return {
    prompt_tokens: prompt.tokens.length,
    new_tokens: sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
  };
}
