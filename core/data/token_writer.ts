/**
 * Writes tokenized documents in the format of `token_store.ts`.
 *
 * A folder appears in the cache complete or not at all. Writers of the same key do not disturb each
 * other: each fills a folder of its own, and the first to finish gives it the name; the others find the
 * same content there and drop theirs.
 */
import { join } from "node:path";
import { ioError } from "../base/files.ts";
import { PLATFORM } from "../base/platform/mod.ts";
import { clearLeftovers, hiddenSibling, removeFolder } from "../storage/leftovers.ts";
import { hold } from "../storage/lock.ts";
import { rename } from "../storage/rename.ts";
import { writeAll } from "../base/write_all.ts";
import type { DocumentKind } from "./document.ts";
import { idOf } from "./encode.ts";
import {
  LENGTHS_FILE,
  META_FILE,
  SHARD_TOKENS,
  shardFile,
  STORE_SCHEMA,
  type StoreMeta,
  TARGETS_FILE,
  TokenStore,
} from "./token_store.ts";

/** Tokens that are written at once. */
const BUFFER_TOKENS = 1 << 20;

/** Documents that were encoded together. */
export interface EncodedBatch {
  /** All tokens in a row. */
  readonly ids: Int32Array;
  /** Tokens of each document. */
  readonly lengths: Uint32Array;
  /** Trained predictions of each document. */
  readonly targets: Uint32Array;
}

/** Origin of a store, which the writer cannot know by itself. */
export type StoreOrigin = Pick<StoreMeta, "source_sha256" | "tokenizer_sha256" | "end_token">;

/** Writes one store; dispose of it in any case, which removes what was not finished. */
export class TokenWriter implements AsyncDisposable {
  documents = 0;
  tokens = 0;
  #trained = 0;
  #maxId = 0;
  readonly #shards: { documents: number; tokens: number }[] = [];
  #shard: Deno.FsFile | undefined;
  readonly #counts: Deno.FsFile[] = [];
  readonly #buffer = new Int32Array(BUFFER_TOKENS);
  #buffered = 0;
  readonly #partial: string;
  #held: Deno.FsFile | undefined | null;

  private constructor(readonly cacheFolder: string, private readonly shardTokens: number) {
    this.#partial = hiddenSibling(join(cacheFolder, "tokens"), "partial");
  }

  /** Begins a store in a cache folder, which is made if missing. */
  static async begin(cacheFolder: string, shardTokens = SHARD_TOKENS): Promise<TokenWriter> {
    const writer = new TokenWriter(cacheFolder, shardTokens);
    await writer.#guard(async () => {
      Deno.mkdirSync(writer.#partial, { recursive: true }); // held before anyone can clear it
      writer.#held = hold(writer.#partial);
      if (!cleared.has(cacheFolder)) clearLeftovers(cacheFolder);
      cleared.add(cacheFolder);
      for (const name of [LENGTHS_FILE, TARGETS_FILE]) {
        writer.#counts.push(await Deno.create(join(writer.#partial, name)));
      }
    });
    return writer;
  }

  /** Adds documents. */
  append({ ids, lengths, targets }: EncodedBatch): Promise<void> {
    return this.#guard(async () => {
      await writeAll(this.#counts[0]!, lengths);
      await writeAll(this.#counts[1]!, targets);
      for (let i = 0, start = 0; i < lengths.length; i++) {
        await this.#appendDocument(ids.subarray(start, start += lengths[i]!));
      }
      this.#trained += targets.reduce((sum, count) => sum + count, 0);
      this.documents += lengths.length;
      this.tokens += ids.length;
    });
  }

  /** Completes the store and opens it under its key. */
  async finish(
    key: string,
    kind: DocumentKind,
    origin: StoreOrigin,
    file?: string,
  ): Promise<TokenStore> {
    const target = join(this.cacheFolder, key);
    await this.#guard(async () => {
      await this.#closeShard();
      const meta: StoreMeta = {
        schema: STORE_SCHEMA,
        kind,
        documents: this.documents,
        tokens: this.tokens,
        trained_tokens: this.#trained,
        max_id: this.#maxId,
        ...origin,
        shards: this.#shards,
      };
      for (const file of this.#counts.splice(0)) await syncAndClose(file);
      const file = await Deno.create(join(this.#partial, META_FILE));
      await writeAll(file, new TextEncoder().encode(`${JSON.stringify(meta, null, 2)}\n`));
      await syncAndClose(file);
      await this.#publish(target, key);
    });
    return await TokenStore.open(target, key, file);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const file of [...this.#counts, this.#shard, this.#held]) file?.close();
    // Whatever made the work end is the error to report.
    await Deno.remove(this.#partial, { recursive: true }).catch(() => {});
  }

  async #appendDocument(ids: Int32Array): Promise<void> {
    let shard = this.#shards.at(-1);
    if (!shard || shard.tokens > 0 && shard.tokens + ids.length > this.shardTokens) {
      await this.#closeShard();
      this.#shard = await Deno.create(join(this.#partial, shardFile(this.#shards.length)));
      this.#shards.push(shard = { documents: 0, tokens: 0 });
    }
    shard.documents++;
    shard.tokens += ids.length;
    this.#maxId = ids.reduce((most, id) => Math.max(most, idOf(id)), this.#maxId);
    if (this.#buffered + ids.length > BUFFER_TOKENS) await this.#flush();
    if (ids.length > BUFFER_TOKENS) return writeAll(this.#shard!, ids);
    this.#buffer.set(ids, this.#buffered);
    this.#buffered += ids.length;
  }

  async #flush(): Promise<void> {
    if (this.#buffered > 0) await writeAll(this.#shard!, this.#buffer.subarray(0, this.#buffered));
    this.#buffered = 0;
  }

  async #closeShard(): Promise<void> {
    await this.#flush();
    const shard = this.#shard;
    this.#shard = undefined;
    if (shard) await syncAndClose(shard);
  }

  /** Gives the folder its name, unless a whole store of that name is there. */
  async #publish(target: string, key: string): Promise<void> {
    for (let attempt = 0;; attempt++) {
      try {
        return rename(this.#partial, target);
      } catch (error) {
        if (!PLATFORM.isTaken(error) || attempt > 9) throw error;
      }
      if (await TokenStore.open(target, key).then(() => true, () => false)) return;
      await removeFolder(target).catch(() => {}); // another writer may be faster
    }
  }

  async #guard(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      throw ioError("write folder", this.cacheFolder, error);
    }
  }
}

async function syncAndClose(file: Deno.FsFile): Promise<void> {
  using _closing = file;
  await file.syncData();
}

/** Caches that this process has cleared: looking through one for each file of thousands takes long. */
const cleared = new Set<string>();
