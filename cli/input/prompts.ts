/**
 * Where `generate` gets its prompts: flags, a text, or JSON lines.
 */
import { DataError, UsageError } from "../../core/base/errors.ts";
import { formatFlag } from "../framework/table.ts";
import { show, statIfExists } from "../../core/base/files.ts";
import type { Session } from "../../core/session/session.ts";
import { type ChatMessage, encodeChat } from "../../core/tokenizer/chat.ts";
import type { Io } from "../output/io.ts";
import { fieldNames, type InputRow, readRows, rowError, textOf, tokensOf } from "./rows.ts";

/** A prompt as token ids. */
export interface Prompt {
  readonly id: unknown;
  readonly tokens: readonly number[];
  /** Name of the adapter that the row chooses. */
  readonly adapter?: string;
}

/** Flags that say where prompts are. */
export interface PromptSource {
  readonly arguments: readonly string[];
  readonly prompt: readonly string[];
  readonly input: "auto" | "text" | "jsonl";
  readonly chat: boolean;
}

/**
 * Yields prompts in order, each as soon as it can be read. The tokenizer is opened once there is text;
 * rows may choose one of `adapters` by name. Throws `DataError` for a row it cannot understand.
 */
export async function* readPrompts(
  source: PromptSource,
  io: Io,
  session: Session,
  adapters: readonly string[] = [],
): AsyncGenerator<Prompt> {
  const encode = (text: string) =>
    session.encode(source.chat ? [{ role: "user", content: text }] : text);
  if (source.prompt.length > 0) {
    for (const [id, text] of source.prompt.entries()) {
      yield { id, tokens: await encode(text) };
    }
    return;
  }
  const path = source.arguments[0] ?? "-";
  await requireFile(path);
  const name = path === "-" ? "stdin" : `"${path}"`;
  const lines = peekable(io.readLines(path));
  const isJson = source.input === "jsonl" ||
    source.input === "auto" && (await lines.peek())?.trimStart().startsWith("{");
  if (!isJson) {
    const text = [];
    for await (const line of lines.all()) text.push(line);
    if (text.length > 0) yield { id: 0, tokens: await encode(text.join("\n")) };
    return;
  }
  for await (const row of readRows(lines.all(), name)) {
    const tokens = await rowTokens(row, name, session, encode);
    yield { id: row.id, tokens, ...adapterOf(row, name, adapters) };
  }
}

/** Rows choose among the adapters that there are; without any, the field means nothing. */
function adapterOf(row: InputRow, name: string, adapters: readonly string[]) {
  const { adapter } = row.fields;
  if (adapter === undefined || adapters.length === 0) return {};
  if (typeof adapter === "string" && adapters.includes(adapter)) return { adapter };
  throw new DataError(`line ${row.line} of ${name} names no adapter: ${show(adapter)}`, {
    hints: [`known: ${adapters.join(", ")}`],
  });
}

/** A prompt that was given as an argument is no file. */
async function requireFile(path: string): Promise<void> {
  if (path === "-" || !/\s/.test(path)) return;
  if (await statIfExists(path)) return;
  throw new UsageError(`no such file: ${JSON.stringify(path)}`, {
    hints: [`did you mean ${formatFlag("prompt", path)}?`],
  });
}

async function rowTokens(
  row: InputRow,
  name: string,
  session: Session,
  encode: (text: string) => Promise<readonly number[]>,
): Promise<readonly number[]> {
  const { tokens, prompt, messages } = row.fields;
  if (tokens !== undefined) return tokensOf(tokens, name, row.line);
  if (messages !== undefined) return await messageTokens(messages, row, name, session);
  if (prompt !== undefined) return await encode(textOf(prompt, "prompt", name, row.line));
  throw rowError(name, row.line, fieldNames(row), '"prompt", "messages" or "tokens"');
}

async function messageTokens(
  messages: unknown,
  row: InputRow,
  name: string,
  session: Session,
): Promise<number[]> {
  try {
    // The template's code checks them.
    return await encodeChat(await session.openTokenizer(), messages as readonly ChatMessage[]);
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw new DataError(`line ${row.line} of ${name}`, { cause, hints: cause.hints });
  }
}

/** Lines of which the first non-blank one can be seen in advance. */
function peekable(lines: AsyncGenerator<string>) {
  const seen: string[] = [];
  return {
    async peek(): Promise<string | undefined> {
      for (let next; !(next = await lines.next()).done;) {
        seen.push(next.value);
        if (next.value.trim() !== "") return next.value;
      }
    },
    async *all(): AsyncGenerator<string> {
      yield* seen;
      yield* lines;
    },
  };
}
