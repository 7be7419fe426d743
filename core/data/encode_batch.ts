/**
 * Encodes documents together: the unit of work that is sent to a worker and back.
 *
 * Tokens come in three arrays, which a worker can hand over without copying.
 */
import { openTokenizer, type Tokenizer } from "../tokenizer/tokenizer.ts";
import { type Document, rowOf } from "./document.ts";
import { countTargets, encodeDocument } from "./encode.ts";
import type { EncodedBatch } from "./token_writer.ts";

/** Settings that all documents of a file share. */
export interface EncodeSettings {
  /** The file's name in messages. */
  readonly file: string;
  /** Folder of the tokenizer; rows of tokens need none. */
  readonly tokenizerFolder?: string;
  readonly endToken?: number;
  readonly vocabSize?: number;
}

/** Encodes batches of one file; the tokenizer is opened when the first text needs it. */
export function batchEncoder(
  settings: EncodeSettings,
): (documents: readonly Document[]) => Promise<EncodedBatch> {
  const { file, tokenizerFolder } = settings;
  let opened: Promise<Tokenizer> | undefined;
  return async (documents) => {
    const needed = tokenizerFolder !== undefined && documents[0]?.kind !== "tokens";
    const tokenizer = needed ? await (opened ??= openTokenizer(tokenizerFolder)) : undefined;
    const lengths = new Uint32Array(documents.length), targets = new Uint32Array(documents.length);
    const parts: Int32Array[] = [];
    for (const [i, document] of documents.entries()) {
      const part = await encodeDocument(tokenizer, document, {
        ...settings,
        at: rowOf(file, document.row),
      });
      lengths[i] = part.length;
      targets[i] = countTargets(part);
      parts.push(part);
    }
    const ids = new Int32Array(lengths.reduce((sum, length) => sum + length, 0));
    let start = 0;
    for (const part of parts) {
      ids.set(part, start);
      start += part.length;
    }
    return { ids, lengths, targets };
  };
}
