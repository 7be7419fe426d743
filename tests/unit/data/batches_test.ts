/** Protects batches: targets, masks, epochs, shares, and that a run may stop and continue anywhere. */
import { assert, assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import {
  type Batch,
  type BatchOptions,
  type BatchSource,
  BatchStream,
  splitDocuments,
} from "../../../core/data/batches.ts";
import { openCachedTokens, openTokens } from "../../../core/data/tokenize.ts";
import { DataError } from "../../../core/base/errors.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { HANG_MS } from "../../hang.ts";
import { withScratch } from "../../scratch.ts";
import { jsonLines, tokensInMemory } from "./testing.ts";

const OPTIONS: BatchOptions = {
  ...{ batch: 2, tokens: 8, seed: 7 },
  ...{ shuffle: true, pack: true, longRows: "error" },
};
const ORDERED = { ...OPTIONS, shuffle: false, epochs: 1 };

/** A source of one store. */
const sourceOf = (documents: readonly (readonly number[])[], more: Partial<BatchSource> = {}) => ({
  stores: [tokensInMemory(documents)],
  ...more,
});

/** Random documents whose ids are all different: id = base + running number; some are untrained. */
function uniqueDocuments(count: number, base = 1, seed = 1, most = 20): number[][] {
  const random = new RandomStream(seed);
  let id = base;
  const stored = () => random.integer(4) === 0 ? ~id++ : id++;
  const document = () => Array.from({ length: random.integer(most + 1) }, stored);
  return Array.from({ length: count }, document);
}

/** The batches up to the end of a finite run. */
function* batchesOf(stream: BatchStream): Generator<Batch> {
  for (let batch = stream.next(); batch; batch = stream.next()) yield batch;
}

/** Trained targets of a batch. */
const trainedIn = ({ targets, weights }: Batch) =>
  [...targets].filter((_, slot) => weights[slot] === 1);

Deno.test("a batch says what follows what, and where documents begin", () => {
  const stream = new BatchStream([sourceOf([[1, 2, ~3, 4], [5, 6, 7], [8, 9]])], ORDERED);
  const { pieces, ...batch } = stream.next()!;
  assertEquals(batch, {
    rows: 2,
    tokens: 8,
    filledRows: 2,
    ids: Int32Array.of(1, 2, 3, 4, 5, 6, 7, 0, 8, 9, 0, 0, 0, 0, 0, 0),
    positions: Int32Array.of(0, 1, 2, 3, 0, 1, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0),
    targets: Int32Array.of(2, 0, 4, 0, 6, 7, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0),
    weights: Float32Array.of(1, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0),
    predicted: 5,
    used: 9,
  });
  assertEquals(pieces[1], { row: 0, slot: 4, length: 3, source: 0, document: 1, start: 0 });
  assertEquals(stream.next(), undefined);
  assertEquals(stream.epoch, 1);
});

Deno.test("every epoch trains every target once, in rows of whole documents", () => {
  for (let seed = 0; seed < 12; seed++) {
    const documents = uniqueDocuments(150, 1, seed), kind = seed % 2 ? "text" : "tokens";
    const stores = [
      tokensInMemory(documents.slice(0, 70), kind, "a"),
      tokensInMemory(documents.slice(70), kind, "b"),
    ];
    const expected = documents.flatMap((ids) => ids.slice(1).filter((id) => id >= 0));
    const plain = documents.flat().map((id) => id < 0 ? ~id : id);
    const options = { ...OPTIONS, batch: 3, tokens: 12, seed, epochs: 2 };
    const stream = new BatchStream([{ stores }], options);
    const batches = [...batchesOf(stream)], found = batches.flatMap(trainedIn);
    assertEquals(found.length, batches.reduce((sum, { predicted }) => sum + predicted, 0));
    for (const half of [found.slice(0, expected.length), found.slice(expected.length)]) {
      assertEquals(half.toSorted((a, b) => a - b), expected);
    }
    assertEquals(batches.length, stream.countBatches());
    for (const { ids, positions, targets, weights, filledRows } of batches) {
      for (let slot = 0; slot < ids.length; slot++) {
        const from = slot - positions[slot]!;
        assert(Math.floor(from / 12) === Math.floor(slot / 12));
        // Ids are consecutive inside a document, from its first slot on.
        if (positions[slot]! > 0) assertEquals(ids[slot]! - ids[from]!, positions[slot]);
        if (weights[slot] === 1) assertEquals(targets[slot], ids[slot]! + 1);
        else assertEquals([targets[slot], weights[slot]], [0, 0]);
        if (ids[slot]! > 0) assert(plain.includes(ids[slot]!));
      }
      assert(filledRows === 3 || batches.at(-1)!.ids === ids);
    }
  }
});

Deno.test("epochs differ in order, seeds too, and order is kept on request", () => {
  const documents = uniqueDocuments(60);
  const idsOf = (options: Partial<BatchOptions>) => {
    const stream = new BatchStream([sourceOf(documents)], { ...OPTIONS, batch: 1, ...options });
    return (epoch: number) => {
      const found: number[] = [];
      while (stream.epoch <= epoch) found.push(...stream.next()!.ids);
      return found;
    };
  };
  const shuffled = idsOf({});
  const [first, second] = [shuffled(0), shuffled(1)];
  assertNotEquals(first, second);
  assertNotEquals(first, idsOf({ seed: 8 })(0));
  assertEquals(first, idsOf({})(0));
  const ordered = idsOf({ shuffle: false, pack: false });
  const once = ordered(0);
  assertEquals(once, ordered(1));
  const starts = once.filter((id, i) => i % 8 === 0 && id > 0);
  assertEquals(starts, starts.toSorted((a, b) => a - b));
});

Deno.test("a long document's pieces are not trained in a row", () => {
  const document = Array.from({ length: 800 }, (_, i) => i + 1);
  const stream = new BatchStream([sourceOf([document])], { ...OPTIONS, batch: 100, epochs: 1 });
  const starts = stream.next()!.pieces.map(({ start }) => start);
  assertEquals(starts.length, 100);
  assertNotEquals(starts, starts.toSorted((a, b) => a - b));
});

Deno.test("a run stopped anywhere continues as if it had not been", () => {
  const sources = [
    sourceOf(uniqueDocuments(40, 1, 1), { weight: 3 }),
    sourceOf(uniqueDocuments(15, 5000, 2), { weight: 1 }),
  ];
  const variants: [BatchSource[], Partial<BatchOptions>][] = [
    [sources, {}],
    [sources, { epochs: 3 }],
    [sources.slice(0, 1), { epochs: 3 }],
    [sources.slice(0, 1), { shuffle: false }],
    [sources, { pack: false }],
  ];
  for (const [used, more] of variants) {
    const open = () => new BatchStream(used, { ...OPTIONS, batch: 3, ...more });
    const whole = open(), cursors = [], batches: Batch[] = [];
    while (batches.length < 80) {
      cursors.push(JSON.parse(JSON.stringify(whole.cursor)));
      const batch = whole.next();
      if (!batch) break;
      batches.push(batch);
    }
    assert(whole.epoch >= 2);
    const resumed = open();
    for (const at of cursors.keys()) {
      const stream = at % 2 === 0 ? open() : resumed;
      stream.seek(cursors[at]);
      assertEquals(stream.cursor, cursors[at]);
      const rest = batches.slice(at, at + 4);
      for (const batch of rest) assertEquals(stream.next(), batch);
      if (batches.length < 80 && at > batches.length - 4) assertEquals(stream.next(), undefined);
    }
  }
});

Deno.test("a cursor of other data or of other options is refused", () => {
  const documents = uniqueDocuments(20), source = sourceOf(documents);
  const stream = new BatchStream([source], OPTIONS), { cursor } = stream;
  const changes: Partial<BatchOptions>[] = [
    ...[{ seed: 8 }, { tokens: 9 }, { shuffle: false }, { pack: false }],
    { longRows: "drop" },
  ];
  const other = (key: string) => ({ stores: [{ ...source.stores[0]!, key }] });
  const others = [
    new BatchStream([other("changed")], OPTIONS),
    new BatchStream([{ ...source, documents: Uint32Array.from(Array(19).keys()) }], OPTIONS),
    new BatchStream([source, source], OPTIONS),
    new BatchStream([{ ...source, weight: 1 }, { ...source, weight: 2 }], OPTIONS),
    ...changes.map((more) => new BatchStream([source], { ...OPTIONS, ...more })),
  ];
  for (const other of others) {
    const expected = `expected "${cursor.fingerprint.slice(0, 12)}"`;
    assertThrows(() => other.seek(cursor), DataError, expected);
  }
  assertEquals(new Set(others.map(({ fingerprint }) => fingerprint)).size, others.length);
  // Batch size and number of epochs may change.
  new BatchStream([source], { ...OPTIONS, batch: 5, epochs: 2 }).seek(cursor);
  const damaged = [
    { ...cursor, sources: [] },
    { ...cursor, sources: [{ epoch: -1, row: 0, rows: 0 }] },
    { ...cursor, sources: [{ epoch: 0, row: 1e6, rows: 0 }] },
    { ...cursor, fingerprint: undefined },
    null,
  ];
  for (const bad of damaged) {
    assertThrows(() => stream.seek(bad as typeof cursor), DataError);
  }
});

Deno.test("a mixture keeps its shares at all times", () => {
  const weights = [5, 3, 0.5];
  const sources = weights.map((weight, i) =>
    sourceOf(uniqueDocuments(30 + 10 * i, 1 + 10000 * i, i), { weight })
  );
  const stream = new BatchStream(sources, { ...OPTIONS, batch: 1 });
  const taken = [0, 0, 0];
  for (let row = 1; row <= 1000; row++) {
    const { pieces: [piece], ids } = stream.next()!;
    taken[piece!.source]!++;
    assertEquals(Math.floor(ids[0]! / 10000), piece!.source);
    weights.forEach((weight, i) => assert(Math.abs(taken[i]! - row * weight / 8.5) < 1.5));
  }
  // Each source goes through its own epochs: one is behind the others.
  const epochs = stream.cursor.sources.map(({ epoch }) => epoch);
  assert(epochs[0]! > epochs[2]!);
  assertEquals(stream.cursor.sources.map(({ rows }) => rows), taken);
});

Deno.test("a row comes from the source that lags farthest behind, the first among equals", () => {
  const sources = [3, 1].map((weight, i) => sourceOf(uniqueDocuments(30, 1, i), { weight }));
  const stream = new BatchStream(sources, { ...OPTIONS, batch: 8 });
  const rows = new Map(stream.next()!.pieces.map(({ row, source }) => [row, source]));
  assertEquals([...rows.values()], [0, 0, 1, 0, 0, 0, 1, 0]);
});

Deno.test("a finite mixture is as many rows as its sources have", () => {
  const sources = [
    sourceOf(uniqueDocuments(40), { weight: 1 }),
    sourceOf(uniqueDocuments(15, 5000), { weight: 1 }),
  ];
  const stream = new BatchStream(sources, { ...OPTIONS, batch: 4, epochs: 2 });
  const rows = [...batchesOf(stream)].reduce((sum, { filledRows }) => sum + filledRows, 0);
  assertEquals(rows, 2 * stream.rowsPerEpoch);
  assertEquals(stream.countBatches(), Math.ceil(rows / 4));
  assertEquals(new BatchStream(sources, OPTIONS).countBatches(), undefined);
});

Deno.test("chosen documents alone are trained, and those without a target are skipped", () => {
  const documents = [[1, 2], [3, ~4], [5], [], [6, 7], [8, 9]];
  const trained = (chosen?: Uint32Array) =>
    [...batchesOf(new BatchStream([sourceOf(documents, { documents: chosen })], ORDERED))]
      .flatMap(trainedIn);
  assertEquals(trained(), [2, 7, 9]);
  assertEquals(trained(Uint32Array.of(0, 1, 4)), [2, 7]);
  const none = () => void trained(Uint32Array.of(1, 2, 3));
  assertThrows(none, DataError, "none of 3 documents has a trained token that fits");
});

Deno.test("prompts and answers are never cut, tokens only when packed", () => {
  const documents = [[1, 2, 3], [~1, ~2, ~3, ~4, ~5, ~6, ~7, ~8, 9, 10]];
  const open = (kind: "completion" | "tokens" | "text", more: Partial<BatchOptions>) =>
    new BatchStream([{ stores: [tokensInMemory(documents, kind)] }], { ...ORDERED, ...more });
  for (const pack of [true, false]) {
    const words = "row 2 does not fit into a row: 10 tokens, expected at most 8";
    assertThrows(() => open("completion", { pack }), DataError, words);
    const dropped = open("completion", { pack, longRows: "drop" });
    assertEquals([dropped.shortened, trainedIn(dropped.next()!)], [1, [2, 3]]);
    // Cut short, the last slot still predicts the first trained token.
    const cut = open("completion", { pack, longRows: "truncate" });
    assertEquals(trainedIn(cut.next()!), [2, 3, 9]);
    // One slot less and nothing trained is left.
    const less = open("completion", { pack, longRows: "truncate", tokens: 7 });
    assertEquals(trainedIn(less.next()!), [2, 3]);
    const text = trainedIn(open("text", { pack, batch: 3 }).next()!);
    assertEquals(text.toSorted((a, b) => a - b), [2, 3, 9, 10]);
  }
  assertEquals(trainedIn(open("tokens", { pack: true }).next()!), [2, 3, 10, 9]); // a fuller row
  assertThrows(() => open("tokens", { pack: false }), DataError, "row 2");
});

Deno.test("the longest row is what unpacked rows need", () => {
  const documents = [[1, 2, 3], [4, 5, 6, 7, 8], [9]];
  const open = (more: Partial<BatchOptions>) =>
    new BatchStream([sourceOf(documents)], { ...ORDERED, ...more });
  assertEquals(open({}).longestRow, 8);
  const wide = open({ pack: false });
  assertEquals(wide.longestRow, 5);
  assertEquals(open({ pack: false, tokens: 5 }).next()!.pieces, wide.next()!.pieces);
});

Deno.test("trained tokens of rows are known before they are read, over all epochs", () => {
  const documents = uniqueDocuments(60, 1, 5),
    options = { ...OPTIONS, batch: 1, tokens: 24, epochs: 3 };
  const open = () => new BatchStream([sourceOf(documents)], options);
  const counts = [...batchesOf(open())].map(({ predicted }) => predicted);
  assertEquals(open().trainedRows(Infinity), counts);
  assertEquals(open().trainedRows(10), counts.slice(0, 10));
});

Deno.test("a run of a trillion tokens is not looked through, nor one that trains nearly all", () => {
  const options = { ...OPTIONS, batch: 1, tokens: 24 }, began = performance.now();
  const open = (documents: number[][]) => new BatchStream([sourceOf(documents)], options);
  assertEquals(open(uniqueDocuments(60, 1, 5)).trainedRows(1e12 / 24), undefined);
  assertEquals(open([Array.from({ length: 4000 }, (_, i) => i)]).trainedRows(100), undefined);
  assert(performance.now() - began < HANG_MS);
});

Deno.test("a split is disjoint, whole, and the same for the same seed", () => {
  const split = splitDocuments(1000, 0.1, 3);
  assertEquals([split.train.length, split.eval.length], [900, 100]);
  assertEquals(new Set([...split.train, ...split.eval]).size, 1000);
  assertEquals(split, splitDocuments(1000, 0.1, 3));
  assertNotEquals(split.eval, splitDocuments(1000, 0.1, 4).eval);
  assertEquals(split.eval, split.eval.toSorted());
  assertEquals([0, 1].map((fraction) => splitDocuments(3, fraction, 1).eval.length), [1, 2]);
  assertThrows(() => splitDocuments(1, 0.5, 1), DataError);
});

Deno.test("more files than may be open at once are read all the same", () =>
  withScratch(async (folder) => {
    const path = `${folder}/rows.jsonl`, cacheFolder = `${folder}/cache`;
    Deno.writeTextFileSync(path, jsonLines([{ tokens: [1, 2] }]));
    const { key } = await openTokens(path, { cacheFolder });
    const opening = Array.from({ length: 150 }, () => openCachedTokens(key, cacheFolder));
    const stores = await Promise.all(opening);
    const stream = new BatchStream([{ stores }], { ...ORDERED, tokens: 300, batch: 1 });
    assertEquals([...stream.next()!.ids], Array(150).fill([1, 2]).flat());
    if (Deno.build.os !== "linux") return;
    const open = [...Deno.readDirSync("/proc/self/fd")].filter(({ name }) => {
      try {
        return Deno.readLinkSync(`/proc/self/fd/${name}`).startsWith(folder);
      } catch {
        return false;
      }
    });
    assertEquals(open, []);
  }));

Deno.test("skip leaves a stream where next does, and reads no tokens", () => {
  const documents = [uniqueDocuments(40), uniqueDocuments(25, 5000, 2)];
  const open = (stores: BatchSource["stores"][]) =>
    new BatchStream(
      stores.map((each, i) => ({ stores: each, weight: i + 1 })),
      { ...OPTIONS, batch: 3, epochs: 2 },
    );
  const read = documents.map((each) => [tokensInMemory(each, "text")]);
  const unread = read.map(([store]) => [{
    ...store!,
    read: () => {
      throw new Error("tokens of a skipped batch were read");
    },
  }]);
  const [walked, skipped] = [open(read), open(unread)];
  assertEquals(walked.fingerprint, skipped.fingerprint);
  while (walked.next()) {
    assert(skipped.skip());
    assertEquals(skipped.cursor, walked.cursor);
  }
  assertEquals(skipped.skip(), false);
});
