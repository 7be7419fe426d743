/**
 * Reads JSON lines: one object per line, in UTF-8.
 *
 * Lines are cut as bytes, so that a line may be longer than any chunk and bad UTF-8 is found in the
 * line it stands in. Blank lines are skipped but counted: row numbers in messages are the line numbers
 * of an editor.
 */
import type { DataError } from "../base/errors.ts";
import { parseRowJson } from "../base/exact_json.ts";
import { joinBytes, parseJson, utf8Text } from "../base/files.ts";
import { type Document, rowOf, toDocument, wrong } from "./document.ts";

const LINE_FEED = 0x0a;

/** More bytes than this may not fit into one text of the runtime. */
export const MAX_TEXT_BYTES = 2 ** 29 - 24;

/**
 * Longest line, and longest text that is unpacked for one document. Measured while it is read: a
 * megabyte of packed data can hold a gigabyte without a line end.
 */
export const MAX_LINE_BYTES = 32 << 20;

/** Documents of JSON lines; `file` names them in messages. */
export async function* readJsonLines(
  chunks: AsyncIterable<Uint8Array>,
  file: string,
): AsyncGenerator<Document> {
  for await (const { row, value } of readJsonRows(chunks, file)) yield toDocument(value, file, row);
}

/** Rows of JSON lines with their line numbers. */
export async function* readJsonRows(
  chunks: AsyncIterable<Uint8Array>,
  file: string,
): AsyncGenerator<{ row: number; value: unknown }> {
  let row = 0;
  for await (const line of linesOf(chunks, (row) => rowOf(file, row))) {
    row++;
    const text = decodeText(line, rowOf(file, row));
    if (text.trim() === "") continue;
    // A table pretty-printed or written as one list is the usual reason of other text.
    const hints = /^\s*[[{]\s*$/.test(text)
      ? [
        `write one JSON object per line: \`jq -c '.${
          /\[/.test(text) ? "[]" : ""
        }' FILE > rows.jsonl\``,
      ]
      : [];
    yield { row, value: parseJson(text, rowOf(file, row), hints, parseRowJson) };
  }
}

/** The lines of a text without their line feeds; `at` says where a row is. */
export async function* linesOf(
  chunks: AsyncIterable<Uint8Array>,
  at: (row: number) => string,
): AsyncGenerator<Uint8Array> {
  let begun: Uint8Array[] = []; // pieces of a line that reaches beyond its chunk
  let row = 1, length = 0;
  const requireShort = (more: number) => {
    if ((length += more) > MAX_LINE_BYTES) throw tooLong(at(row));
  };
  for await (const chunk of chunks) {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(LINE_FEED, start);
      if (end < 0) break;
      const piece = chunk.subarray(start, end);
      requireShort(piece.length);
      yield begun.length === 0 ? piece : joinBytes([...begun, piece]);
      begun = [];
      length = 0;
      row++;
      start = end + 1;
    }
    requireShort(chunk.length - start);
    // A copy, since the producer may reuse the chunk.
    if (start < chunk.length) begun.push(chunk.slice(start));
  }
  if (begun.length > 0) yield joinBytes(begun);
}

function tooLong(at: string): DataError {
  return wrong(at, `is longer than ${MAX_LINE_BYTES} bytes`, [
    "cut the document into several; a file that is one long line may be a list, not JSON lines",
  ]);
}

/** All bytes of a text, of which at most `limit` may come; `at` says where in messages. */
export async function joinChunks(
  chunks: AsyncIterable<Uint8Array>,
  limit: number,
  at: string,
): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of chunks) {
    if ((length += chunk.length) > limit) {
      throw wrong(at, `is longer than ${limit} bytes`, [
        "cut it into several documents; compressed texts are limited more than plain ones",
      ]);
    }
    pieces.push(chunk.slice());
  }
  return joinBytes(pieces);
}

/** Decodes UTF-8 strictly; `at` says where in messages. */
export function decodeText(bytes: Uint8Array, at: string): string {
  if (bytes.length > MAX_TEXT_BYTES) {
    throw wrong(at, `has ${bytes.length} bytes, a document may have ${MAX_TEXT_BYTES}`, [
      "cut it into several documents",
    ]);
  }
  return utf8Text(bytes, at);
}
