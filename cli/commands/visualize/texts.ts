/**
 * Texts of `parscale visualize`: of flags, files, stdin, or rows of a benchmark with the exact prompt `eval` would use, then the reference answer.
 *
 * Texts are not yet tokens, since the model is opened later. A row of `generate` may have `tokens` and
 * `text` for the same answer; tokens win, as only they are what the model really wrote.
 */
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { readTaskData } from "../../../core/eval/harness/data_folder.ts";
import {
  type Document,
  documentsOf,
  requestsOf,
  shotsOf,
} from "../../../core/eval/harness/documents.ts";
import type { ChoiceQuestion } from "../../../core/eval/harness/task.ts";
import { taskOf } from "../../../core/eval/tasks/mod.ts";
import type { ValuesOf } from "../../framework/command.ts";
import {
  fieldNames,
  type InputRow,
  readRows,
  rowError,
  textOf,
  tokensOf,
} from "../../input/rows.ts";
import { requireTask } from "../../input/task.ts";
import { inputName, type Io } from "../../output/io.ts";
import type { command } from "./flags.ts";

/** Flags of the command. */
export type VisualizeValues = ValuesOf<typeof command>;

/** Source of the texts. */
type TextSource =
  | { readonly kind: "texts"; readonly texts: readonly string[] }
  | {
    readonly kind: "files";
    /** `-` is stdin. */
    readonly paths: readonly string[];
    readonly format: VisualizeValues["input"];
  }
  | {
    readonly kind: "task";
    readonly task: string;
    readonly data: string;
    readonly ids: readonly number[];
    readonly shots: number;
  };

/** The source that flags name. @throws {UsageError} for a task without data */
export function sourceOf(values: VisualizeValues): TextSource {
  const { text: texts, arguments: paths, input: format, task: name, data, ids } = values;
  if (name === undefined) {
    return texts.length > 0
      ? { kind: "texts", texts }
      : { kind: "files", paths: paths.length > 0 ? paths : ["-"], format };
  }
  const task = requireTask(name);
  if (data === undefined) {
    throw new UsageError(`\`--task ${name}\` needs \`--data\``, {
      hints: [
        "pass it with --data, or once for all in PARSCALE_DATA",
        "`parscale eval ls` shows what each task needs and where it comes from",
      ],
    });
  }
  const shots = shotsOf(task, values.shots);
  return { kind: "task", task: name, data, ids: ids.length > 0 ? ids : [0], shots };
}

/** A text before it is encoded. */
export interface RawText {
  readonly id: unknown;
  /** For errors: `line 3 of stdin`. */
  readonly place: string;
  /** Prefix, as it stands or as a conversation. */
  readonly prompt?: string;
  readonly messages?: unknown;
  /** Continuation, or the whole text. */
  readonly text?: string;
  readonly tokens?: readonly number[];
}

/** Reads all texts of a source; there is at least one. */
export async function readTexts(source: TextSource, io: Io): Promise<RawText[]> {
  if (source.kind === "texts") {
    return source.texts.map((text, id) => ({ id, place: `--text ${startOf(text)}`, text }));
  }
  if (source.kind === "task") {
    const { data, shots, ids } = source;
    const task = taskOf(source.task)!;
    const documents = documentsOf(task, await readTaskData(task, data, shots), { shots, ids });
    return await Promise.all([...documents].map(textOfDocument));
  }
  const { paths, format } = source;
  const texts: RawText[] = [];
  for (const path of paths) {
    const name = inputName(path);
    const content = (await io.readText(path)).replaceAll("\r\n", "\n");
    const isRows = format === "jsonl" || format === "auto" && content.trimStart().startsWith("{");
    if (!isRows) {
      const id = paths.length > 1 ? path : 0;
      texts.push({ id, place: name, text: content.replace(/\n$/, "") });
      continue;
    }
    const before = texts.length;
    for await (const row of readRows(content.split("\n"), name)) texts.push(rawText(row, name));
    if (texts.length === before) throw new DataError(`${name} holds no rows`);
  }
  return texts;
}

function startOf(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 37)}...` : text);
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

async function textOfDocument(document: Document): Promise<RawText> {
  const { task, id, question } = document;
  const requests = await requestsOf(document);
  const named = { id: `${task.name}/${id}`, place: `row ${id} of ${task.name}` };
  // For multiple choice, the gold answer.
  const request = requests[task.kind === "choice" ? (question as ChoiceQuestion).gold : 0]!;
  const answer = question.answer === "" ? "" : ` ${question.answer}`;
  const text = request.kind === "generate_until" ? answer : request.continuation;
  return { ...named, prompt: request.context, text };
}
