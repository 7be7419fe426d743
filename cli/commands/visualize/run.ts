/** Carries out `parscale visualize`: runs the model over texts, and writes what its streams did. */
import { DataError } from "../../../core/base/errors.ts";
import { checkTokens } from "../../../core/generate/prefill.ts";
import { requireStreamWeights, scoreBatch } from "../../../core/generate/score.ts";
import type { Session } from "../../../core/session/session.ts";
import { type ChatMessage, renderChat } from "../../../core/tokenizer/chat.ts";
import { encodePair } from "../../../core/tokenizer/pair.ts";
import type { Tokenizer } from "../../../core/tokenizer/types.ts";
import type { Context } from "../../framework/context.ts";
import { visible } from "../../output/clean.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { Report } from "../../output/report.ts";
import { checkFigure, openFigure } from "../../output/sink.ts";
import { labelsOf } from "../../../core/analysis/stream_look.ts";
import { drawPage } from "./html.ts";
import {
  columnsOf,
  flatRow,
  legendText,
  type MeasuredText,
  resultOf,
  rowsOf,
  studyTexts,
  summaryTables,
  textView,
} from "./show.ts";
import { type RawText, readTexts, sourceOf, type VisualizeValues } from "./texts.ts";

/** Runs the command; a dry run leaves stdin alone. */
export async function run(values: VisualizeValues, ctx: Context): Promise<void> {
  const { model: name, diversity, html } = values, { io, invocation } = ctx;
  const { format } = invocation;
  checkFigure(html, invocation);
  const source = sourceOf(values);
  const isStdin = source.kind === "files" && source.paths.includes("-");
  const raw = ctx.isDryRun && isStdin ? [] : await readTexts(source, io);
  using model = await ctx.openModel(values);
  requireStreams(model, name);
  ctx.begin();
  using page = openFigure(io, html, invocation.overwrite);
  const { device, config } = model;
  const labels = labelsOf(config.streams);
  const encoded = await encodeTexts(raw, model, values.maxTokens);
  const isFlat = format === "csv" || format === "md";
  using report = new Report(io, invocation, {
    schema: "parscale.visualize/2",
    device,
    ...(isFlat && { columns: columnsOf(labels) }),
  });
  const view = {
    width: io.width(),
    colored: invocation.out === undefined && io.isColored("stdout"),
  };
  // The page shows the texts otherwise.
  const showsTexts = page === undefined;
  if (showsTexts) report.raw(`${legendText(labels, view)}\n`);
  const texts: MeasuredText[] = [];
  for await (const text of measureTexts(encoded, model, values, io)) {
    texts.push(text);
    if (format === "table" && showsTexts) {
      const head = encoded.length > 1 ? `--- text ${visible(String(text.id))}\n` : "";
      report.raw(`${head}${textView(text, labels, view)}\n`);
    } else if (isFlat || format === "jsonl") {
      for (const row of rowsOf(text, labels)) report.row(isFlat ? flatRow(row, labels) : row);
    }
  }
  // A page is passed on, and where a folder lies on this machine is private.
  const shown = name.split(/[/\\]/).findLast((part) => part !== "") ?? name;
  const study = studyTexts(shown, labels, texts);
  if (diversity && study.diversity === undefined) {
    io.warn("no text has two tokens, so nothing can be said of --diversity");
  }
  page?.write(drawPage(study));
  if (format === "table") {
    for (const [i, { title, columns, rows, note }] of summaryTables(study).entries()) {
      report.raw(`${i > 0 ? "\n" : ""}${title}\n${await report.draw(columns, rows)}`);
      report.remark(note);
    }
  }
  await report.finish(format === "json" ? resultOf(study) : undefined);
}

function requireStreams({ config }: Session, name: string): void {
  requireStreamWeights(config);
  if (config.streams > 1) return;
  throw new DataError(`"${name}" has one stream, which always has the whole weight`, {
    hints: ["`parscale convert --streams 4` gives it streams; --adapter lays trained ones over it"],
  });
}

/** A text as token ids. */
type EncodedText = Pick<MeasuredText, "id" | "tokens">;

/** Encodes all texts, so that one the model cannot take is refused before any is computed. */
async function encodeTexts(
  raw: readonly RawText[],
  model: Session,
  maxTokens: number | undefined,
): Promise<EncodedText[]> {
  const { config } = model;
  const encoded: EncodedText[] = [];
  for (const text of raw) {
    const tokens = (await encodeText(text, model)).slice(0, maxTokens);
    if (tokens.length === 0) throw new DataError(`${text.place} is empty`);
    const limit = config.maxPositionEmbeddings;
    if (tokens.length > limit) {
      throw new DataError(
        `${text.place} has ${tokens.length} tokens, more than the model's context of ${limit}`,
        { hints: [`pass --max-tokens ${limit} to truncate it, or split the text`] },
      );
    }
    checkTokens(config, tokens, `visualize ${text.place}`);
    encoded.push({ id: text.id, tokens });
  }
  return encoded;
}

/**
 * Token ids of a text. The tokenizer is opened only where there is something to encode;
 * `startToken` is never added, so the ids are those of the text alone.
 */
async function encodeText(raw: RawText, model: Session): Promise<readonly number[]> {
  const { prompt = "", messages, text = "", tokens } = raw;
  if (tokens !== undefined && prompt === "" && messages === undefined) return tokens;
  const tokenizer = await model.openTokenizer();
  const head = messages === undefined ? prompt : await conversation(raw, tokenizer);
  if (tokens !== undefined) return head === "" ? tokens : [...tokenizer.encode(head), ...tokens];
  if (head === "" || text === "") return tokenizer.encode(head + text);
  return encodePair(tokenizer, head, text, undefined, { keepsText: true }).tokens;
}

/** A conversation ends where the answer begins if one follows, else after its last message. */
async function conversation({ messages, text, tokens, place }: RawText, tokenizer: Tokenizer) {
  const addGenerationPrompt = text !== undefined || tokens !== undefined;
  try {
    return await renderChat(tokenizer, messages as readonly ChatMessage[], { addGenerationPrompt });
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw new DataError(place, { cause, hints: cause.hints });
  }
}

/** Computes what is shown, `batch` texts side by side, in the order they came. */
async function* measureTexts(
  texts: readonly EncodedText[],
  model: Session,
  { batch, diversity }: VisualizeValues,
  io: Io,
): AsyncGenerator<MeasuredText> {
  const tokenizer = await model.openTokenizerIfAny();
  const total = texts.reduce((sum, { tokens }) => sum + tokens.length, 0);
  using progress = new Progress(io, { label: "Reading", unit: "tokens", total });
  let done = 0;
  for (let from = 0; from < texts.length; from += batch) {
    const group = texts.slice(from, from + batch);
    const asked = group.map(({ tokens }) => ({ tokens, from: 1 }));
    const scores = await scoreBatch(model.engine, asked, { weights: true, streams: diversity });
    for (const [i, { id, tokens }] of group.entries()) {
      const score = scores[i]!;
      yield {
        id,
        tokens,
        pieces: piecesOf(tokens, tokenizer),
        weights: score.weights!,
        logprobs: score.tokenLogprobs,
        streamLogprobs: score.streamLogprobs,
      };
      progress.update(done += tokens.length);
    }
  }
}

/**
 * The text of every token; none where there is no tokenizer. Joined they are the whole text. A
 * character may take several tokens: it then belongs to the last of them, and those before have an
 * empty piece.
 */
export function piecesOf(tokens: readonly number[], tokenizer: Tokenizer | undefined) {
  if (!tokenizer) return tokens.map(() => undefined);
  const decoder = tokenizer.streamDecoder();
  const pieces = tokens.map((id) => decoder.push(id));
  const rest = decoder.flush();
  if (rest !== "") pieces.push(pieces.pop()! + rest);
  return pieces;
}
