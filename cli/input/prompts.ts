/** Prompts of `generate`: texts of flags, one text, or JSON lines. */
import { DataError, UsageError } from "../../core/base/errors.ts";
import { show, statIfExists } from "../../core/base/files.ts";
import type { Session } from "../../core/session/session.ts";
import { type ChatMessage, encodeChat } from "../../core/tokenizer/chat.ts";
import { formatFlag } from "../framework/table.ts";
import { inputName, type Io } from "../output/io.ts";
import {
  attempt,
  fieldNames,
  type InputRow,
  type OnError,
  readRows,
  rowError,
  textOf,
  tokensOf,
} from "./rows.ts";

/** A prompt as token ids. */
export interface Prompt {
  /** Position in the input. */
  readonly at: number;
  readonly id: unknown;
  readonly tokens: readonly number[];
  /** Name of the adapter that the row chooses. */
  readonly adapter?: string;
  /** Fields of the input that say it, where results repeat them. */
  readonly echo?: { readonly prompt: unknown } | { readonly messages: unknown };
  /** The error in the row, where such rows are recorded. */
  readonly error?: DataError;
}

/** Sources of prompts. */
export interface PromptSource {
  /** Prompts of `--prompt`, or a file; `-` is stdin. */
  readonly from: readonly string[] | string;
  readonly format: "auto" | "text" | "jsonl";
  /** True if a text becomes a message for the chat template. */
  readonly chat: boolean;
  /** Text of a message before that. */
  readonly system: string | undefined;
  /** Names that the field `adapter` of a row may have; with none it means nothing. */
  readonly adapters: readonly string[];
  readonly onError: OnError;
  /** True if results repeat their prompts. */
  readonly echo: boolean;
}

/** Values of the flags that say where prompts are. */
interface SourceValues {
  readonly arguments: readonly string[];
  readonly prompt: readonly string[];
  readonly input: PromptSource["format"];
  readonly chat: boolean;
  readonly system: string | undefined;
  readonly onError: OnError;
  readonly echo: boolean;
}

/** The source that flags name. @throws {UsageError} for a prompt in place of a file */
export async function promptSource(
  { prompt, input: format, arguments: [path = "-"], ...values }: SourceValues,
  adapters: readonly string[],
): Promise<PromptSource> {
  if (prompt.length === 0) await requireFile(path);
  const { chat, system, onError, echo } = values;
  const from = prompt.length > 0 ? prompt : path;
  return { from, format, chat, system, adapters, onError, echo };
}

/** Messages as a row has them; the code of the template checks them. */
interface Conversation {
  readonly messages: unknown;
  readonly tools?: readonly unknown[];
}

/** A prompt before it is encoded. */
interface RawPrompt extends Pick<Prompt, "adapter"> {
  readonly prompt: string | readonly number[] | Conversation;
}

/** A place of the input where a prompt is. */
interface Place {
  readonly id: unknown;
  /** Label for errors of the template. */
  readonly name?: string;
  /** @throws {DataError} for a row that is not understood */
  read(): RawPrompt;
}

/**
 * Reads prompts in order and encodes each as soon as it is there; the tokenizer is opened once there is
 * text.
 * @throws {DataError} for a row that is not understood
 */
export async function* readPrompts(
  source: PromptSource,
  io: Io,
  session: Session,
): AsyncGenerator<Prompt> {
  let at = 0;
  for await (const { id, name, read } of placesIn(source, io)) {
    let echo: Prompt["echo"];
    const { value = { tokens: [] }, error } = await attempt(source.onError, async () => {
      const { prompt, ...row } = read();
      const isMessages = typeof prompt === "object" && "messages" in prompt;
      if (source.echo) echo = isMessages ? { messages: prompt.messages } : { prompt };
      const tokens = isMessages
        ? await encodeMessages(prompt, session, name)
        : await session.encode(prompt);
      return { ...row, tokens };
    });
    yield { at: at++, id, ...value, ...(echo && { echo }), ...(error && { error }) };
  }
}

async function encodeMessages(
  { messages, tools }: Conversation,
  session: Session,
  place: string | undefined,
): Promise<readonly number[]> {
  try {
    const tokenizer = await session.openTokenizer();
    return await encodeChat(tokenizer, messages as readonly ChatMessage[], { tools });
  } catch (cause) {
    if (!(cause instanceof DataError) || place === undefined) throw cause;
    throw new DataError(place, { cause, hints: cause.hints });
  }
}

async function* placesIn(
  { from, format, chat, system, adapters, onError }: PromptSource,
  io: Io,
): AsyncGenerator<Place> {
  const before = system === undefined ? [] : [{ role: "system", content: system }];
  const said = (content: string) =>
    chat ? { messages: [...before, { role: "user", content }] } : content;
  if (typeof from !== "string") {
    for (const [id, text] of from.entries()) yield { id, read: () => ({ prompt: said(text) }) };
    return;
  }
  const name = inputName(from);
  const lines = peekable(io.readLines(from));
  const isJson = format === "jsonl" ||
    format === "auto" && (await lines.peek())?.trimStart().startsWith("{");
  if (!isJson) {
    const text = await Array.fromAsync(lines.all());
    if (text.length > 0) yield { id: 0, read: () => ({ prompt: said(text.join("\n")) }) };
    return;
  }
  for await (const row of readRows(lines.all(), name, onError)) {
    const read = () => {
      if (row.error) throw row.error;
      return { prompt: promptOf(row, name, said), ...adapterOf(row, name, adapters) };
    };
    yield { id: row.id, name: `line ${row.line} of ${name}`, read };
  }
}

function promptOf(
  row: InputRow,
  name: string,
  said: (text: string) => RawPrompt["prompt"],
): RawPrompt["prompt"] {
  const { tokens, prompt, messages, tools } = row.fields;
  if (tokens !== undefined) return tokensOf(tokens, name, row.line);
  if (messages !== undefined) {
    if ((tools ?? null) === null) return { messages };
    if (Array.isArray(tools)) return { messages, tools };
    throw new DataError(
      `line ${row.line} of ${name} has ${show(tools)} in "tools", expected a list`,
    );
  }
  if (prompt !== undefined) return said(textOf(prompt, "prompt", name, row.line));
  throw rowError(name, row.line, fieldNames(row), '"prompt", "messages" or "tokens"');
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

/** A prompt given as an argument has no file. */
async function requireFile(path: string): Promise<void> {
  if (path === "-" || await statIfExists(path)) return;
  throw new UsageError(`no such file: ${JSON.stringify(path)}`, {
    hints: [`did you mean ${formatFlag("prompt", path)}?`],
  });
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
