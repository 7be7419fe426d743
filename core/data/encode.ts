/**
 * Turns a document into tokens, and says which of them are trained.
 *
 * An id that is not trained, that is, never a prediction target, is stored as its bitwise complement
 * `~id`, which is negative. A conversation is encoded in segments and not as a whole, so that the
 * border before each answer is the one generation will see.
 */
import { DataError, ParscaleError } from "../base/errors.ts";
import { encodePair, startTokenOf } from "../tokenizer/pair.ts";
import { contentText } from "../tokenizer/content.ts";
import { type ChatMessage, renderChat, type Tokenizer } from "../tokenizer/tokenizer.ts";
import { type Document, IGNORED_LABEL, isTrained } from "./document.ts";

/** A chat template writes out the tokens that frame a text. */
const UNFRAMED = { frame: false } as const;

/** Options of encoding. */
export interface EncodeDocumentOptions {
  /** Ends texts and completions; left out, nothing is appended. */
  readonly endToken?: number;
  /** Rows of the model's embedding; ids from here on are refused. */
  readonly vocabSize?: number;
  /** Place of the document, for messages. */
  readonly at?: string;
}

/** Encodes a document; only rows of tokens need no tokenizer. */
export async function encodeDocument(
  tokenizer: Tokenizer | undefined,
  document: Document,
  { endToken, vocabSize = Infinity, at = `row ${document.row}` }: EncodeDocumentOptions = {},
): Promise<Int32Array> {
  const ids = document.kind === "tokens"
    ? encodeTokens(document)
    : await encodeWith(requireTokenizer(tokenizer, at), document, endToken, at);
  const unknown = ids.find((id) => (id < 0 ? ~id : id) >= vocabSize);
  if (unknown === undefined) return ids;
  throw new DataError(`${at} has token id ${idOf(unknown)}, expected 0 to ${vocabSize - 1}`, {
    hints: ["check that data and model use the same tokenizer"],
  });
}

/** The id of a stored token. */
export function idOf(stored: number): number {
  return stored < 0 ? ~stored : stored;
}

/** Counts the trained predictions of a document: the first token is never a target. */
export function countTargets(ids: Int32Array): number {
  let count = 0;
  for (let i = 1; i < ids.length; i++) if (ids[i]! >= 0) count++;
  return count;
}

function encodeTokens(document: Document & { kind: "tokens" }): Int32Array {
  const { tokens, labels } = document;
  return labels ? tokens.map((id, i) => labels[i] === IGNORED_LABEL ? ~id : id) : tokens;
}

function requireTokenizer(tokenizer: Tokenizer | undefined, at: string): Tokenizer {
  if (tokenizer) return tokenizer;
  throw new DataError(`${at} is text, and the model has no tokenizer`, {
    hints: [
      'copy tokenizer.json into the model folder, or give rows of {"tokens": [...]}',
      "a model from scratch takes `--tokenizer FOLDER`",
    ],
  });
}

async function encodeWith(
  tokenizer: Tokenizer,
  document: Exclude<Document, { kind: "tokens" }>,
  endToken: number | undefined,
  at: string,
): Promise<Int32Array> {
  const end = endToken === undefined ? [] : [endToken];
  try {
    switch (document.kind) {
      case "text":
        return new Int32Array(tokenizer.encode(document.text).concat(end));
      case "completion": {
        const { prompt, completion } = document;
        const start = startTokenOf(tokenizer, end);
        const whole = { keepsText: true };
        const { tokens, from } = encodePair(tokenizer, prompt, completion, start, whole);
        return Int32Array.from([...tokens, ...end], (id, i) => i < from ? ~id : id);
      }
      case "messages":
        return Int32Array.from(await encodeMessages(tokenizer, document));
    }
  } catch (error) {
    if (!(error instanceof ParscaleError)) throw error;
    const { message, hints } = error;
    throw new DataError(`cannot tokenize ${at}: ${message}`, { cause: error, hints });
  }
}

/** The conversation up to its last trained answer; answers are trained to their end marker. */
async function encodeMessages(
  tokenizer: Tokenizer,
  { messages, tools }: Document & { kind: "messages" },
): Promise<number[]> {
  const stored: number[] = [];
  let done = "";
  for (const [index, message] of messages.entries()) {
    if (!isTrained(message)) continue;
    const render = (count: number, addGenerationPrompt: boolean) =>
      renderChat(tokenizer, messages.slice(0, count), { addGenerationPrompt, tools });
    const question = await render(index, true), answered = await render(index + 1, false);
    requirePrefix(question, done, index);
    requirePrefix(answered, question, index);
    for (const id of tokenizer.encode(question.slice(done.length), UNFRAMED)) stored.push(~id);
    appendAnswer(tokenizer, message, answered.slice(question.length), stored);
    done = answered;
  }
  return stored;
}

function requirePrefix(text: string, prefix: string, index: number): void {
  if (text.startsWith(prefix)) return;
  throw new DataError(
    `the chat template changes earlier messages when it renders message ${index + 1}`,
    { hints: ["give such conversations as rows with one answer each, the last message"] },
  );
}

/**
 * Appends what the template makes of an answer. Trained is everything to the first special token
 * after the content, `<|im_end|>` for Qwen; what follows, a line feed there, is not.
 */
function appendAnswer(
  tokenizer: Tokenizer,
  { content }: ChatMessage,
  text: string,
  stored: number[],
): void {
  const isSpecial = (id: number) => tokenizer.decode([id], { skipSpecial: true }) === "";
  // Templates trim; an answer they rewrite altogether is not found and counts as empty.
  const said = contentText(content).trim();
  const at = text.indexOf(said), head = at < 0 ? "" : text.slice(0, at + said.length);
  // Special tokens are found before all else, so the head has as many alone as in the whole.
  let inside = head.includes("<") ? tokenizer.encode(head, UNFRAMED).filter(isSpecial).length : 0;
  let trained = true;
  for (const id of tokenizer.encode(text, UNFRAMED)) {
    stored.push(trained ? id : ~id);
    if (trained && isSpecial(id) && inside-- === 0) trained = false;
  }
}
