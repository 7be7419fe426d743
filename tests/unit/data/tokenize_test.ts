/** Protects the cache of tokens: round trip, hits, rivals, damage, and workers against inline. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "node:path";
import { toDocument } from "../../../core/data/document.ts";
import { countTargets, encodeDocument } from "../../../core/data/encode.ts";
import { EncodePool } from "../../../core/data/encode_pool.ts";
import {
  openCachedTokens,
  openTokens,
  type OpenTokensOptions,
} from "../../../core/data/tokenize.ts";
import { shardFile } from "../../../core/data/token_store.ts";
import { TokenWriter } from "../../../core/data/token_writer.ts";
import { DataError } from "../../../core/base/errors.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { namesIn, withScratch } from "../../scratch.ts";
import { bytesOf, contentOf, DATA, gzip, jsonLines, streamOf, TOKENIZER } from "./testing.ts";

const END = 1;

/** Runs with a folder and options whose cache lies in it. */
const withCache = (work: (folder: string, options: OpenTokensOptions) => Promise<void>) =>
  withScratch(async (folder) => {
    const cacheFolder = join(folder, "cache");
    await work(folder, { cacheFolder, tokenizerFolder: TOKENIZER, endToken: END });
  });

/** Rows of text of very different lengths. */
function texts(count: number, seed = 1): { text: string }[] {
  const random = new RandomStream(seed),
    words = "the cat sat on a Größe 你好 1234 <|im_end|>".split(" ");
  const word = () => words[random.integer(words.length)]!;
  return Array.from({ length: count }, () => {
    const length = random.integer(random.integer(200) + 1);
    return { text: Array.from({ length }, word).join(" ") };
  });
}

/** Returns the tokens expected of a file of rows. */
async function expected(rows: readonly unknown[]): Promise<number[][]> {
  const tokenizer = await openTokenizer(TOKENIZER);
  const encoded = rows.map((row, i) =>
    encodeDocument(tokenizer, toDocument(row, "", i + 1), { endToken: END })
  );
  return (await Promise.all(encoded)).map((ids) => [...ids]);
}

Deno.test("a file is tokenized once and read back in pieces", () =>
  withCache(async (folder, options) => {
    const rows = texts(50), path = join(folder, "a.jsonl.gz");
    Deno.writeFileSync(path, await gzip(jsonLines(rows)));
    const content = await expected(rows);
    const progress: unknown[] = [];
    const open = () => openTokens(path, { ...options, onProgress: (now) => progress.push(now) });
    using store = await open();
    assertEquals(contentOf(store), content);
    assertEquals([store.kind, store.documents, store.file], ["text", 50, path]);
    assertEquals(store.tokens, content.flat().length);
    const targets = content.map((ids) => countTargets(Int32Array.from(ids)));
    assertEquals([...store.targets], targets);
    const meta = Deno.readTextFileSync(join(options.cacheFolder, store.key, "meta.json"));
    assertEquals(JSON.parse(meta).trained_tokens, targets.reduce((sum, count) => sum + count));
    const lengths = content.map((ids) => ids.length);
    const longest = lengths.indexOf(Math.max(...lengths));
    assertEquals([...store.read(longest, 3, 9)], content[longest]!.slice(3, 9));
    const bytes = Deno.statSync(path).size;
    assertEquals(progress, [{ documents: 50, tokens: store.tokens, bytes, totalBytes: bytes }]);

    using again = await open();
    assertEquals(progress.length, 1); // nothing was tokenized
    assertEquals(contentOf(again), content);
    assertEquals(again.key, store.key);
    assertEquals(namesIn(options.cacheFolder), [store.key]);
    using byKey = await openCachedTokens(store.key, options.cacheFolder);
    assertEquals(contentOf(byKey), content);
    byKey.close();
    assertEquals([...byKey.read(longest, 0, 1)], content[longest]!.slice(0, 1)); // opens again
  }));

Deno.test("the key changes with all that decides the tokens and with nothing else", () =>
  withCache(async (folder, options) => {
    const text = jsonLines(texts(3)), keys = new Set<string>();
    const keyOf = async (name: string, content: string, more: Partial<OpenTokensOptions> = {}) => {
      const path = join(folder, name);
      Deno.writeTextFileSync(path, content);
      using store = await openTokens(path, { ...options, ...more });
      keys.add(store.key);
      return store.key;
    };
    const key = await keyOf("a.jsonl", text);
    assertEquals(await keyOf("other.ndjson", text, { threads: 2, vocabSize: 5000 }), key);
    await keyOf("a.jsonl", text + " ");
    await keyOf("a.txt", text);
    await keyOf("a.jsonl", text, { endToken: 2 });
    await keyOf("a.jsonl", text, { endToken: undefined });
    const tokenizerFolder = join(folder, "tokenizer");
    Deno.mkdirSync(tokenizerFolder);
    for (const name of namesIn(TOKENIZER)) {
      Deno.copyFileSync(join(TOKENIZER, name), join(tokenizerFolder, name));
    }
    assertEquals(await keyOf("a.jsonl", text, { tokenizerFolder }), key);
    Deno.writeTextFileSync(join(tokenizerFolder, "README.md"), "hello");
    assertEquals(await keyOf("a.jsonl", text, { tokenizerFolder }), key);
    Deno.writeTextFileSync(join(tokenizerFolder, "chat_template.jinja"), "{{ messages }}");
    await keyOf("a.jsonl", text, { tokenizerFolder });
    assertEquals(keys.size, 6);
  }));

Deno.test("standard input is tokenized like the file, and found again by its key", () =>
  withCache(async (folder, options) => {
    const text = jsonLines(texts(20)), path = join(folder, "a.jsonl");
    Deno.writeTextFileSync(path, text);
    using store = await openTokens("-", { ...options, stdin: streamOf(bytesOf(text), 100) });
    assertEquals(store.file, "standard input");
    using cached = await openCachedTokens(store.key, options.cacheFolder);
    assertEquals(contentOf(cached), contentOf(store));
    using fromFile = await openTokens(path, options);
    assertEquals(fromFile.key, store.key);
    const none = () => openCachedTokens("0".repeat(64), options.cacheFolder);
    await assertRejects(none, DataError, "does not hold the tokens of the earlier run");
    await assertRejects(() => openCachedTokens("../x", options.cacheFolder), DataError);
  }));

Deno.test("rows of tokens need no tokenizer", () =>
  withCache(async (_, { cacheFolder }) => {
    using store = await openTokens(`${DATA}/tokens.parquet`, { cacheFolder });
    assertEquals(contentOf(store), [[~1, 2, 3], [4], [5, 6]]);
    assertEquals([...store.targets], [2, 0, 1]);
  }));

Deno.test("ids beyond the vocabulary are found in new files and in cached ones", () =>
  withCache(async (folder, { cacheFolder }) => {
    const path = join(folder, "a.jsonl");
    Deno.writeTextFileSync(
      path,
      jsonLines([{ tokens: [1, 2] }, { tokens: [3, 70], labels: [3, -100] }]),
    );
    const open = (vocabSize: number) => openTokens(path, { cacheFolder, vocabSize });
    await assertRejects(() => open(70), DataError, "has token id 70, expected 0 to 69");
    assertEquals(namesIn(cacheFolder), []); // nothing half-made is left
    (await open(71)).close();
    await assertRejects(() => open(70), DataError, `document 2 of "${path}"`);
  }));

Deno.test("writers of the same file do not disturb each other", () =>
  withCache(async (folder, options) => {
    const path = join(folder, "a.jsonl"), rows = texts(300);
    Deno.writeTextFileSync(path, jsonLines(rows));
    const stores = await Promise.all(
      [1, 2, 1].map((threads) => openTokens(path, { ...options, threads })),
    );
    const content = await expected(rows);
    for (const store of stores) assertEquals(contentOf(store), content);
    assertEquals(namesIn(options.cacheFolder), [stores[0]!.key]);
    stores.forEach((store) => store.close());
  }));

Deno.test("a damaged store is made anew", () =>
  withCache(async (folder, options) => {
    const path = join(folder, "a.jsonl");
    Deno.writeTextFileSync(path, jsonLines(texts(10)));
    using store = await openTokens(path, options);
    const content = contentOf(store), inside = join(options.cacheFolder, store.key);
    const damages = [
      () => Deno.truncateSync(join(inside, shardFile(0)), 8),
      () => Deno.removeSync(join(inside, "lengths.u32")),
      () => Deno.writeTextFileSync(join(inside, "meta.json"), '{"schema": "parscale.tokens/0"}'),
    ];
    for (const damage of damages) {
      damage();
      await assertRejects(() => openCachedTokens(store.key, options.cacheFolder), DataError);
      using mended = await openTokens(path, options);
      assertEquals(contentOf(mended), content);
      assertEquals(namesIn(options.cacheFolder), [store.key]);
    }
  }));

Deno.test("documents do not span shards, unless longer than one", () =>
  withScratch(async (folder) => {
    await using writer = await TokenWriter.begin(folder, 10);
    const lengths = [4, 4, 4, 0, 25, 1, 10],
      content = lengths.map((length, i) => Array(length).fill(i));
    const batch = (from: number, to: number) => ({
      ids: Int32Array.from(content.slice(from, to).flat()),
      lengths: Uint32Array.from(lengths.slice(from, to)),
      targets: Uint32Array.from(lengths.slice(from, to)),
    });
    await writer.append(batch(0, 3));
    await writer.append(batch(3, 7));
    const origin = { source_sha256: "", tokenizer_sha256: null, end_token: null };
    using store = await writer.finish("key", "text", origin);
    assertEquals(contentOf(store), content);
    const sizeOf = (i: number) => Deno.statSync(join(folder, "key", shardFile(i))).size / 4;
    assertEquals([0, 1, 2, 3, 4].map(sizeOf), [8, 4, 25, 1, 10]);
    assertEquals(namesIn(join(folder, "key")).length, 8);
  }));

Deno.test("what a crash left is removed; what is being written stays", () =>
  withScratch(async (folder) => {
    Deno.mkdirSync(join(folder, ".tokens.partial-999999999-00000000"));
    await using _first = await TokenWriter.begin(folder);
    assertEquals(namesIn(folder).length, 1);
    await using _second = await TokenWriter.begin(`${folder}/.`); // clears once more
    assertEquals(namesIn(folder).length, 2);
  }));

Deno.test("workers give what inline gives, in order", () =>
  withCache(async (folder, options) => {
    const path = join(folder, "a.jsonl"), rows = texts(6000);
    Deno.writeTextFileSync(path, jsonLines(rows));
    assert(Deno.statSync(path).size > 1 << 20);
    let reports = 0;
    const counted = { ...options, threads: 3, onProgress: () => reports++ };
    using store = await openTokens(path, counted);
    assert(reports > 8);
    const inline = { ...options, cacheFolder: join(folder, "inline") };
    using other = await openTokens(path, inline);
    assertEquals(store.key, other.key);
    assertEquals(contentOf(store), contentOf(other));
    // Standard input starts inline and continues with workers.
    const stdin = streamOf(Deno.readFileSync(path), 1 << 16);
    const third = { ...counted, stdin, cacheFolder: join(folder, "stdin") };
    using piped = await openTokens("-", third);
    assertEquals(contentOf(piped), contentOf(other));
  }));

Deno.test("workers chat as well, and report errors with their rows", () =>
  withCache(async (folder, options) => {
    const messages = (content: unknown) => ({
      messages: [{ role: "user", content: "Hi" }, { role: "assistant", content }],
    });
    using pool = new EncodePool(options, 2);
    pool.start();
    assertEquals(pool.capacity, 4);
    const documents = [toDocument(messages("Hello"), "", 1)];
    const [first] = await expected([messages("Hello")]);
    assertEquals([...(await pool.encode(documents, "a.jsonl")).ids], first);

    // A bad row far behind good ones, in a file large enough for workers.
    const path = join(folder, "b.jsonl"), padding = "x".repeat(2000);
    const rows = Array.from({ length: 800 }, (_, i) => messages(i === 700 ? 7 : padding));
    Deno.writeTextFileSync(path, jsonLines(rows));
    const words = `cannot tokenize row 701 of "${path}": message 2 must have`;
    const open = () => openTokens(path, { ...options, threads: 2 });
    assert((await assertRejects(open, DataError, words)).hints.length > 0);
    assertEquals(namesIn(options.cacheFolder), []);
  }));

Deno.test("a signal stops tokenizing and leaves nothing behind", () =>
  withCache(async (folder, options) => {
    const path = join(folder, "a.jsonl");
    Deno.writeTextFileSync(path, jsonLines(texts(6000)));
    for (const threads of [1, 2]) {
      const stop = new AbortController();
      const run = { ...options, threads, signal: stop.signal, onProgress: () => stop.abort() };
      await assertRejects(() => openTokens(path, run), DOMException);
      assertEquals(namesIn(options.cacheFolder), []);
    }
    await assertRejects(() => openTokens(path, { ...options, signal: AbortSignal.abort() }));
    // Standard input that stays silent, packed so that the reason passes the decompressor.
    const head = (await gzip(jsonLines(texts(10)))).slice(0, 40);
    const silent = new ReadableStream({ start: (controller) => controller.enqueue(head) });
    const stop = new AbortController(), reason = new Error("enough");
    setTimeout(() => stop.abort(reason), 20);
    const waiting = openTokens("-", { ...options, stdin: silent, signal: stop.signal });
    assertEquals(await waiting.catch((error) => error), reason);
    assertEquals(namesIn(options.cacheFolder), []);
  }));

// no device has a path there
Deno.test("a pipe is not read as a file, since that takes two passes", {
  ignore: Deno.build.os === "windows",
}, () =>
  withCache(async (_, options) => {
    const words = "is a pipe or a folder, not a file";
    await assertRejects(() => openTokens("/dev/null", options), DataError, words);
  }));

Deno.test("a file that grows while it is read is refused", () =>
  withCache(async (folder, options) => {
    const path = join(folder, "a.jsonl");
    Deno.writeTextFileSync(path, jsonLines(texts(2000)));
    let once = false;
    const onProgress = () => {
      if (!once) Deno.writeTextFileSync(path, '{"text": "more"}\n', { append: true });
      once = true;
    };
    const open = () => openTokens(path, { ...options, onProgress });
    await assertRejects(open, DataError, "changed while it was read");
  }));
