/**
 * Carries out `parscale generate`: reads prompts, continues them, and writes text as it comes, or rows in
 * input order.
 *
 * Formats that go out row by row read their prompts as slowly as they come and answer early ones
 * before the input ends. The others need all rows, and know their number from the start.
 */
import { letSignalsThrough } from "../../../core/base/abortable.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { modelFingerprint } from "../../../core/checkpoint/fingerprint.ts";
import type { Session } from "../../../core/session/session.ts";
import type { Tokenizer } from "../../../core/tokenizer/types.ts";
import type { Context } from "../../framework/context.ts";
import { memoryBudget } from "../../input/limits.ts";
import { type NamedSessions, openAdapters } from "../../input/named_models.ts";
import { noteContinued, openModel } from "../../input/open_model.ts";
import { type Prompt, readPrompts } from "../../input/prompts.ts";
import { endingFailure, failureOf } from "../../input/rows.ts";
import { isOfShard } from "../../input/shard.ts";
import { visible, visibleLines } from "../../output/clean.ts";
import { configKeys, type Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import { beginsRows } from "../../output/journal.ts";
import type { Io } from "../../output/io.ts";
import { Progress, ReadingProgress } from "../../output/progress.ts";
import { recordFor, type RowOptions, RowWriter } from "../../output/row_writer.ts";
import { openSink } from "../../output/sink.ts";
import { AnswerWork } from "../../output/time_left.ts";
import { generateColumns } from "./columns.ts";
import { type Decoding, type GeneratePlan, type GenerateValues, planGeneration } from "./plan.ts";
import { WordWrapper } from "../../output/wrap.ts";
import {
  sampleSequences,
  searchSequences,
  type Sequence,
  type SequenceEvent,
} from "./sequences.ts";
import { Speed } from "./speed.ts";

/** Runs the command; the number is its exit code. */
export async function run(values: GenerateValues, ctx: Context): Promise<number> {
  const { io, invocation } = ctx;
  const plan = await planGeneration(values, invocation);
  const models = await ctx.open(plan.model, (model) => openSessions({ ...plan, model }, io));
  using session = models.session;
  if (ctx.isDryRun) return await tryPrompts(plan, session, ctx);
  // Beside the tokenizer; of several adapters the rows say which engine is needed.
  if (beginsRows(plan.resume) && models.adapters.size <= 1) session.engine.preload();
  const tokenizer = await openFor(plan.decoding, session, io);
  const speed = new Speed(io, invocation.startedMs, plan);
  const prompts = readPrompts(plan.prompts, io, session);
  const { format } = invocation;
  const whole = format === "jsonl" || format === "csv" ? undefined : await Array.fromAsync(prompts);
  const isOne = whole?.length === 1 && plan.decoding.numReturn === 1;
  const isShown = io.isTerminal("stdout") && invocation.out === undefined;
  const isText = format === "table" && whole !== undefined &&
    (isOne || isShown && whole.length > 0) &&
    plan.shard === undefined && beginsRows(plan.resume) && tokenizer !== undefined;
  if (isText && isRaw(plan)) noteContinued(io, tokenizer);
  using reading = new ReadingProgress(io, "Reading prompt");
  const answer: Answer = (prompts, onPrefill = (done, total) => reading.update(done, total)) =>
    answers(plan, models, prompts, onPrefill, {
      begin: (prompt) => speed.begin(prompt),
      observe(event) {
        reading.end();
        return speed.observe(event);
      },
    });
  const echo = ({ echo, tokens }: Prompt) => {
    if (!echo || !tokenizer) return "";
    if ("prompt" in echo && typeof echo.prompt === "string") return echo.prompt;
    return tokenizer.decode(tokens);
  };
  const { device } = session;
  const sessions = new Set([session, ...models.adapters.values()]);
  const model = () => Array.from(sessions, (one) => modelFingerprint(one.checkpoint)).join();
  const { decoding: { jsonSchema }, resume } = plan;
  const identity = () => ({ model: model(), device, "json-schema": jsonSchema });
  const rows = { resume, identity };
  const code = isText
    ? isOne
      ? await streamText(answer(whole), whole[0]!, echo(whole[0]!), io, invocation, rows)
      : await showTexts(answer(whole), echo, io, whole.length === 1)
    : await writeRows(plan, device, whole ?? prompts, answer, io, invocation, rows);
  speed.report();
  return code;
}

/** The dry run, which reads prompts but those of stdin. */
async function tryPrompts(plan: GeneratePlan, session: Session, ctx: Context): Promise<never> {
  await openFor(plan.decoding, session, ctx.io);
  if (plan.prompts.from !== "-") await Array.fromAsync(readPrompts(plan.prompts, ctx.io, session));
  return ctx.end();
}

/** Returns whether prompts are texts that no template is applied to. */
function isRaw({ prompts: { from, chat } }: GeneratePlan): boolean {
  return !chat && typeof from !== "string";
}

/** Opens the model and its adapters; of several adapters rows choose one, and without a name none. */
async function openSessions({ model, adapters }: GeneratePlan, io: Io): Promise<NamedSessions> {
  const [only, ...others] = adapters;
  if (others.length > 0) return await openAdapters(model, adapters, io);
  const session = await openModel({ ...model, adapter: only?.path }, io);
  return { session, adapters: new Map(only ? [[only.name, session]] : []) };
}

/** Opens the tokenizer, where there is one or one is needed, and checks decoding by the model. */
async function openFor(
  { eosTokenIds = [], maxTokens, sampling: { logitBias }, jsonSchema: schema, stop }: Decoding,
  session: NamedSessions["session"],
  io: Io,
): Promise<Tokenizer | undefined> {
  const { vocabSize, maxPositionEmbeddings: context } = session.config;
  for (
    const [flag, ids] of [["--eos", eosTokenIds], ["--logit-bias", logitBias!.keys()]] as const
  ) {
    const wrong = [...ids].find((id) => id >= vocabSize);
    if (wrong === undefined) continue;
    throw new UsageError(
      `\`${flag} ${wrong}\` is out of range: token ids are 0 to ${vocabSize - 1}`,
    );
  }
  // One that is not supported is refused before any row.
  if (schema) await session.constraint({ schema });
  const tokenizer = stop.length > 0
    ? await session.openTokenizer()
    : await session.openTokenizerIfAny();
  if (maxTokens < context) return tokenizer;
  io.warn(
    `--max-tokens ${maxTokens} exceeds what the model's context of ${context} tokens leaves`,
    "answers end where prompt and new tokens fill the context",
  );
  return tokenizer;
}

type Prompts = Iterable<Prompt> | AsyncIterable<Prompt>;

/** Answers prompts; tells how much of them is read. */
type Answer = (
  prompts: Prompts,
  onPrefill?: (done: number, total: number) => void,
) => AsyncIterable<SequenceEvent>;

/** Continues the prompts that could be read; the others are failures. */
async function* answers(
  { decoding, batch, model, prompts: { onError } }: GeneratePlan,
  { session, adapters }: NamedSessions,
  prompts: Prompts,
  onPrefill: (done: number, total: number) => void,
  speed: Pick<Speed, "begin" | "observe">,
): AsyncGenerator<SequenceEvent> {
  const failed: SequenceEvent[] = [];
  const readable = async function* () {
    for await (const prompt of prompts) {
      speed.begin(prompt);
      if (prompt.error) failed.push({ kind: "failed", prompt, error: prompt.error });
      else yield prompt;
    }
  };
  const sessionOf = ({ adapter }: Prompt) => adapters.get(adapter ?? "") ?? session;
  const memoryLimit = memoryBudget(model.memoryLimit, session.engine.device);
  const run = { session, batch, memoryLimit, onPrefill, speculate: decoding.speculate };
  const events = decoding.beams
    ? searchSequences(sessionOf, readable(), decoding)
    : sampleSequences(sessionOf, readable(), decoding, run);
  for await (const event of events) {
    if (event.kind === "failed" && onError === "stop") {
      throw endingFailure(event.prompt.id, event.error);
    }
    for (const one of [...failed.splice(0), event]) yield speed.observe(one);
  }
  for (const one of failed) yield speed.observe(one);
}

/** Writes one prompt's continuation while it is produced, after `echo`. */
async function streamText(
  events: AsyncIterable<SequenceEvent>,
  { at: _, ...prompt }: Prompt,
  echo: string,
  io: Io,
  invocation: Invocation,
  options: RowOptions,
): Promise<number> {
  const finished = recordFor(invocation, options);
  finished?.add(prompt);
  const { out, overwrite } = invocation;
  using sink = openSink(io, out, overwrite, (path) => finished?.keep(path));
  const wrapper = new WordWrapper(io.width());
  let last = "";
  const write = (text: string) => {
    last = text || last;
    sink.write(sink.isTerminal ? wrapper.add(visibleLines(text)) : text);
  };
  let before = echo; // below the progress of reading the prompt
  for await (const event of events) {
    write(before);
    before = "";
    if (event.kind === "text") write(event.text);
    if (event.kind === "failed") throw event.error;
    await letSignalsThrough();
    io.interruption.throwIfAborted();
  }
  sink.write(wrapper.end());
  if (!last.endsWith("\n")) sink.write("\n");
  sink.commit();
  return 0;
}

/** Writes several texts for a reader, in input order, each under a rule that names it. */
async function showTexts(
  events: AsyncIterable<SequenceEvent>,
  echo: (prompt: Prompt) => string,
  io: Io,
  isOnePrompt: boolean,
): Promise<number> {
  const paint = io.palette("stdout");
  const waiting = new Map<number, Exclude<SequenceEvent, { kind: "text" }>>();
  let next = 0, hasFailed = false;
  const show = (title: string, text: string) => {
    const rule = "─".repeat(Math.max(0, io.width() - title.length - 4));
    io.say(`${paint.bold(visible(`── ${title} ${rule}`))}\n${visibleLines(text)}\n`);
  };
  for await (const event of events) {
    if (event.kind !== "text") waiting.set(event.prompt.at, event);
    for (let ended; (ended = waiting.get(next)); waiting.delete(next++)) {
      const { prompt, prompt: { id } } = ended;
      if (ended.kind === "failed") {
        hasFailed = true;
        show(String(id), `error: ${failureOf(ended.error)}`);
      } else {
        const { sequences } = ended;
        for (const [i, { text }] of sequences.entries()) {
          const place = sequences.length > 1 ? [`${i + 1} of ${sequences.length}`] : [];
          show([...isOnePrompt ? [] : [id], ...place].join(", "), echo(prompt) + (text ?? ""));
        }
      }
    }
    await letSignalsThrough();
    io.interruption.throwIfAborted();
  }
  return exitCode(hasFailed ? "negative" : "done");
}

/** Answers the prompts of this part that are not done; the number is the exit code. */
async function writeRows(
  { decoding: { numReturn }, shard, batch }: GeneratePlan,
  device: string,
  prompts: readonly Prompt[] | AsyncIterable<Prompt>,
  answer: Answer,
  io: Io,
  invocation: Invocation,
  options: RowOptions,
): Promise<number> {
  using rows = new RowWriter(io, invocation, {
    schema: "parscale.generate/1",
    device,
    columns: generateColumns(configKeys(invocation.config)),
    ...options,
  });
  const total = "length" in prompts
    ? prompts.filter(({ at }) => isOfShard(shard, at)).length
    : undefined;
  let count = 0, answered = rows.resumed;
  const units = { unit: "rows", workUnit: "tokens" };
  using progress = new Progress(io, { label: "Generating", ...units, total, from: answered });
  const answers = new AnswerWork((total ?? Infinity) - answered, batch);
  const open = async function* () {
    for await (const prompt of rows.untilInterrupted(prompts)) {
      const { at, ...input } = prompt;
      count++;
      if (!isOfShard(shard, at)) rows.skip(at);
      else if (!rows.has(at, input)) yield prompt;
    }
  };
  const onPrefill = (done: number, total: number) =>
    progress.update(answered, `reading ${done}/${total} tokens of prompts`, answers.work);
  for await (const event of answer(open(), onPrefill)) {
    const { at, ...input } = event.prompt;
    if (event.kind === "text") answers.grow();
    else {
      rows.add(at, input, [resultOf(event, numReturn > 1)]);
      answers.end();
      answered++;
    }
    progress.update(answered, "", answers.work);
    await rows.pause();
  }
  if (count === 0) io.warn("there are no prompts in the input");
  return await rows.finish();
}

/** The row of a prompt, with a list of its sequences where there may be several. */
function resultOf(event: Exclude<SequenceEvent, { kind: "text" }>, several: boolean) {
  const { prompt, prompt: { id } } = event;
  const asked = { id, ...prompt.echo };
  if (event.kind === "failed") return { ...asked, error: failureOf(event.error) };
  const { sequences, timing } = event;
  const stats = { ...statsOf(prompt, sequences), ...timing };
  return several ? { ...asked, sequences, stats } : { ...asked, ...sequences[0]!, stats };
}

function statsOf(prompt: Prompt, sequences: readonly Sequence[]): Record<string, number> {
  return {
    prompt_tokens: prompt.tokens.length,
    new_tokens: sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
  };
}
