/**
 * Tokenized documents on disk: the format and its reader.
 *
 * A folder holds `shard-00000.i32` and further ones (tokens as `encode.ts` stores them, little-endian,
 * at most 2²⁶ each), `lengths.u32` and `targets.u32` (tokens and trained predictions of every
 * document) and `meta.json`, whose presence in place says that the rest is complete. A document that
 * does not fit into the shard begun starts a new one, and only one longer than a shard makes a longer.
 */
import { join } from "node:path";
import { isObject, readError, readExactlySync, readJsonObject, show } from "../base/files.ts";
import { DataError } from "../base/errors.ts";
import type { DocumentKind } from "./document.ts";
import { idOf } from "./encode.ts";

/** Changes with the files' layout or with the tokens that a document becomes. */
export const STORE_SCHEMA = "parscale.tokens/2";

/** Tokens after which a shard takes no further document. */
export const SHARD_TOKENS = 2 ** 26;

/** File names inside a store. */
export const META_FILE = "meta.json", LENGTHS_FILE = "lengths.u32", TARGETS_FILE = "targets.u32";

/** File name of a shard. */
export function shardFile(index: number): string {
  return `shard-${String(index).padStart(5, "0")}.i32`;
}

/** Content of `meta.json`. */
export interface StoreMeta {
  readonly schema: string;
  readonly kind: DocumentKind;
  readonly documents: number;
  readonly tokens: number;
  /** Sum of `targets.u32`. */
  readonly trained_tokens: number;
  /** Highest token id. */
  readonly max_id: number;
  readonly source_sha256: string;
  readonly tokenizer_sha256: string | null;
  readonly end_token: number | null;
  readonly shards: readonly { readonly documents: number; readonly tokens: number }[];
}

/** Tokenized documents, wherever they are. */
export interface TokenSource {
  /** Names the content: equal keys, equal tokens. */
  readonly key: string;
  /** The file it was made from, for messages. */
  readonly file?: string;
  readonly kind: DocumentKind;
  readonly documents: number;
  /** Tokens of each document. */
  readonly lengths: Uint32Array;
  /** Trained predictions of each document; the first token is never a target. */
  readonly targets: Uint32Array;
  /** Stored tokens `start` to `end` of a document; one that is not trained is `~id`. */
  read(document: number, start: number, end: number): Int32Array;
  /** Lets go of open files; reading opens them again. */
  close?(): void;
}

/** A folder of tokens, open for reading. */
export class TokenStore implements TokenSource, Disposable {
  readonly documents: number;
  readonly tokens: number;
  readonly kind: DocumentKind;
  readonly maxId: number;
  /** First token of each document, counted over all shards. */
  readonly #starts: Float64Array;
  readonly #shards: readonly { path: string; document: number; token: number }[];
  readonly #files: (Deno.FsFile | undefined)[];

  private constructor(
    folder: string,
    readonly key: string,
    readonly file: string | undefined,
    meta: StoreMeta,
    readonly lengths: Uint32Array,
    readonly targets: Uint32Array,
  ) {
    this.documents = meta.documents;
    this.tokens = meta.tokens;
    this.kind = meta.kind;
    this.maxId = meta.max_id;
    this.#starts = new Float64Array(lengths.length + 1);
    for (let i = 0; i < lengths.length; i++) this.#starts[i + 1] = this.#starts[i]! + lengths[i]!;
    let document = 0, token = 0;
    this.#shards = meta.shards.map((shard, index) => {
      const first = { path: join(folder, shardFile(index)), document, token };
      document += shard.documents;
      token += shard.tokens;
      return first;
    });
    this.#files = Array(meta.shards.length);
  }

  /** Opens a store; contradictions between its files are bad data. */
  static async open(folder: string, key: string, file?: string): Promise<TokenStore> {
    const meta = requireMeta(await readJsonObject(join(folder, META_FILE)), folder);
    const [lengths, targets] = await Promise.all(
      [LENGTHS_FILE, TARGETS_FILE].map((name) => readCounts(join(folder, name), meta.documents)),
    );
    await Promise.all(
      meta.shards.map(({ tokens }, i) => requireSize(join(folder, shardFile(i)), 4 * tokens)),
    );
    return new TokenStore(folder, key, file, meta, lengths!, targets!);
  }

  read(document: number, start: number, end: number): Int32Array {
    const length = this.lengths[document];
    if (length === undefined || start < 0 || end > length || start > end) {
      throw new RangeError(`no tokens ${start} to ${end} in document ${document}`);
    }
    const shard = this.#shardOf(document), { path, token } = this.#shards[shard]!;
    const file = this.#files[shard] ??= openShard(path);
    const tokens = new Int32Array(end - start);
    const offset = 4 * (this.#starts[document]! - token + start);
    readExactlySync(file, path, offset, new Uint8Array(tokens.buffer));
    return tokens;
  }

  /** Closes the shards; reading opens them again. */
  close(): void {
    this.#files.forEach((file) => file?.close());
    this.#files.fill(undefined);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #shardOf(document: number): number {
    let shard = this.#shards.length - 1; // few: a shard is 256 MiB
    while (this.#shards[shard]!.document > document) shard--;
    return shard;
  }
}

/** Closes a store with ids that the model has no row for, and throws the first such document. */
export function requireVocabulary(store: TokenStore, vocabSize: number): void {
  if (store.maxId < vocabSize) return;
  const tooLarge = (id: number) => idOf(id) >= vocabSize;
  let document = 0;
  while (!store.read(document, 0, store.lengths[document]!).some(tooLarge)) document++;
  store.close();
  const place = `document ${document + 1} of "${store.file ?? store.key}"`;
  const ids = `token ids up to ${store.maxId}, expected 0 to ${vocabSize - 1}`;
  throw new DataError(`${place} does not fit the vocabulary: ${ids}`, {
    hints: ["check that data and model use the same tokenizer"],
  });
}

function openShard(path: string): Deno.FsFile {
  try {
    return Deno.openSync(path);
  } catch (error) {
    throw readError(path, error);
  }
}

async function readCounts(path: string, count: number): Promise<Uint32Array> {
  await requireSize(path, 4 * count);
  const bytes = await Deno.readFile(path);
  return new Uint32Array(bytes.buffer, bytes.byteOffset, count);
}

async function requireSize(path: string, expected: number): Promise<void> {
  try {
    const { size } = await Deno.stat(path);
    if (size !== expected) throw damaged(path, `${size} bytes, expected ${expected}`);
  } catch (error) {
    throw readError(path, error);
  }
}

function requireMeta(value: Record<string, unknown>, folder: string): StoreMeta {
  if (value.schema !== STORE_SCHEMA) {
    const problem = `schema ${show(value.schema)}, expected "${STORE_SCHEMA}"`;
    throw damaged(join(folder, META_FILE), problem);
  }
  const counts = [value.documents, value.tokens, value.trained_tokens, value.max_id];
  const shards = Array.isArray(value.shards) ? value.shards : [undefined];
  const whole = (count: unknown) => Number.isSafeInteger(count) && (count as number) >= 0;
  const good = counts.every(whole) &&
    shards.every((shard) => isObject(shard) && whole(shard.documents) && whole(shard.tokens));
  if (!good) throw damaged(join(folder, META_FILE), "its counts are not whole numbers");
  return value as unknown as StoreMeta;
}

function damaged(path: string, problem: string): DataError {
  return new DataError(`"${path}" is damaged: ${problem}`, {
    hints: ["delete the cached folder; the next run tokenizes the data again"],
  });
}
