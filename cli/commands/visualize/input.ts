/**
 * Which texts `parscale visualize` shows: of flags, files or stdin; `task_rows.ts` has benchmarks.
 *
 * Takes the flags; returns texts that are not yet tokens, since the model is opened later, each
 * with a name for errors. A row of `generate` may have `tokens` and `text` for the same answer;
 * tokens win, as only they are what the model really wrote.
 */
import { DataError } from "../../../core/base/errors.ts";
import type { Tokenizer } from "../../../core/tokenizer/tokenizer.ts";
import type { Io } from "../../output/io.ts";
import {
  fieldNames,
  type InputRow,
  readRows,
  rowError,
  textOf,
  tokensOf,
} from "../../input/rows.ts";
import type { VisualizeValues } from "./flags.ts";

/** A text before it is encoded. */
export interface RawText {
  readonly id: unknown;
  /** For errors: `line 3 of stdin`. */
  readonly place: string;
  /** What comes first, as it stands or as a conversation. */
  readonly prompt?: string;
  readonly messages?: unknown;
  /** What follows, or all there is. */
  readonly text?: string;
  readonly tokens?: readonly number[];
}

/** Reads all texts of flags, files or stdin; there is at least one. */
export async function readTexts(values: VisualizeValues, io: Io): Promise<RawText[]> {
  const { text } = values;
  if (text.length > 0) {
    return text.map((one, id) => ({ id, place: `--text ${beginningOf(one)}`, text: one }));
  }
  const paths = values.arguments.length > 0 ? values.arguments : ["-"];
  const texts: RawText[] = [];
  for (const path of paths) {
    const name = path === "-" ? "stdin" : `"${path}"`;
    const content = (await io.readText(path)).replaceAll("\r\n", "\n");
    const isRows = values.input === "jsonl" ||
      values.input === "auto" && content.trimStart().startsWith("{");
    if (!isRows) {
      const id = paths.length > 1 ? path : 0;
      texts.push({ id, place: name, text: content.replace(/\n$/, "") });
      continue;
    }
    const before = texts.length;
    for await (const row of readRows(linesOf(content), name)) texts.push(rawText(row, name));
    if (texts.length > before) continue;
    throw new DataError(`${name} holds no rows`);
  }
  return texts;
}

function beginningOf(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 37)}...` : text);
}

async function* linesOf(text: string): AsyncGenerator<string> {
  yield* text.split("\n");
}

function rawText(row: InputRow, name: string): RawText {
  const { id, line, fields: { tokens, prompt, messages, text } } = row;
  if ([tokens, prompt, messages, text].every((field) => field === undefined)) {
    throw rowError(name, line, fieldNames(row), '"text", "prompt", "messages" or "tokens"');
  }
  const field = (value: unknown, key: string) =>
    value === undefined ? {} : { [key]: textOf(value, key, name, line) };
  return {
    id,
    place: `line ${line} of ${name}`,
    messages,
    ...(tokens === undefined ? field(text, "text") : { tokens: tokensOf(tokens, name, line) }),
    ...(messages === undefined ? field(prompt, "prompt") : {}),
  };
}

/**
 * Token ids of a text. The tokenizer is opened only where there is something to encode;
 * `startToken` is never added, so the ids are those of the text alone.
 */
export async function encodeText(
  raw: RawText,
  openTokenizer: () => Promise<Tokenizer>,
): Promise<readonly number[]> {
  const { prompt = "", messages, text = "", tokens } = raw;
  const head = messages === undefined ? prompt : await conversation(raw, await openTokenizer());
  if (tokens !== undefined) {
    return head === "" ? tokens : [...(await openTokenizer()).encode(head), ...tokens];
  }
  const tokenizer = await openTokenizer();
  if (head === "" || text === "") return tokenizer.encode(head + text);
  const { encodePair } = await import("../../../core/tokenizer/pair.ts");
  return encodePair(tokenizer, head, text, undefined).tokens;
}

/** A conversation ends where the answer begins if one follows, else after its last message. */
async function conversation({ messages, text, tokens, place }: RawText, tokenizer: Tokenizer) {
  const { renderChat } = await import("../../../core/tokenizer/tokenizer.ts");
  const addGenerationPrompt = text !== undefined || tokens !== undefined;
  try {
    return await renderChat(tokenizer, messages as Parameters<typeof renderChat>[1], {
      addGenerationPrompt,
    });
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw new DataError(place, { cause, hints: cause.hints });
  }
}
