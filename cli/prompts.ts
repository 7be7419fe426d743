/**
 * Where `generate` gets its prompts: flags, a text, or JSON lines.
 */
import type { Tokenizer } from "../core/tokenizer/tokenizer.ts";
import { UsageError } from "../core/errors.ts";
import type { Io } from "./output/io.ts";
import { type InputRow, readRows, rowError, textOf, tokensOf } from "./rows.ts";

/** A prompt as token ids. */
export interface Prompt {
  readonly id: unknown;
  readonly tokens: readonly number[];
}

/** Flags that say where prompts are. */
export interface PromptSource {
  readonly arguments: readonly string[];
  readonly prompt: readonly string[];
  readonly input: "auto" | "text" | "jsonl";
  readonly chat: boolean;
}

/** Yields all prompts in order. Throws `DataError` for a row it cannot understand. */
export async function* readPrompts(
  source: PromptSource,
  io: Io,
  tokenizer: Tokenizer,
): AsyncGenerator<Prompt> {
  const encode = async (text: string, chat: boolean) => {
    const prompt = chat ? await chatPrompt(tokenizer, [{ role: "user", content: text }]) : text;
    return Array.from(tokenizer.encode(prompt));
  };
  if (source.prompt.length > 0) {
    if (source.arguments.length > 0) {
      throw new UsageError("Cannot read prompts twice: found --prompt and FILE, expected one");
    }
    for (const [id, text] of source.prompt.entries()) {
      yield { id, tokens: await encode(text, source.chat) };
    }
    return;
  }
  const path = source.arguments[0] ?? "-";
  const name = path === "-" ? "stdin" : `"${path}"`;
  const lines = peekable(io.readLines(path));
  const isJson = source.input === "jsonl" ||
    source.input === "auto" && (await lines.peek())?.trimStart().startsWith("{");
  if (!isJson) {
    const text = [];
    for await (const line of lines.all()) text.push(line);
    if (text.length > 0) yield { id: 0, tokens: await encode(text.join("\n"), source.chat) };
    return;
  }
  for await (const row of readRows(lines.all(), name)) {
    yield { id: row.id, tokens: await rowTokens(row, name, tokenizer, encode, source.chat) };
  }
}

async function rowTokens(
  row: InputRow,
  name: string,
  tokenizer: Tokenizer,
  encode: (text: string, chat: boolean) => Promise<number[]>,
  chat: boolean,
): Promise<number[]> {
  const { tokens, prompt, messages } = row.fields;
  if (tokens !== undefined) return tokensOf(tokens, name, row.line);
  if (messages !== undefined) {
    return Array.from(tokenizer.encode(await chatPrompt(tokenizer, messages)));
  }
  if (prompt !== undefined) return await encode(textOf(prompt, "prompt", name, row.line), chat);
  const found = Object.keys(row.fields).join(", ") || "no fields";
  throw rowError(name, row.line, found, '"prompt", "messages" or "tokens"');
}

async function chatPrompt(tokenizer: Tokenizer, messages: unknown): Promise<string> {
  const { renderChat } = await import("../core/tokenizer/tokenizer.ts");
  return await renderChat(tokenizer, messages as Parameters<typeof renderChat>[1]);
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
