/**
 * Attention and its gradient on the cuda device, on an emulated machine, against the reference.
 *
 * Inputs are numbers that bf16 has, so that what differs is the kernels' own rounding: errors are
 * relative to the largest number of a tensor. Slots that no query sees hold NaN, and what a table says
 * of them is not a row. Each case says which kernels it is about, and that they run is checked too.
 */
import { assertEquals } from "@std/assert";
import { differentiate, gradientName } from "../../../core/graph/differentiate.ts";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount, type Shape } from "../../../core/graph/types.ts";
import { attention } from "../../../core/ops/attention.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { ComputeType } from "../../../core/runtime/cuda/memory.ts";
import { entriesOf } from "../../unit/runtime/cuda/kernels.ts";
import { assertAgrees, drawNarrow } from "./checks.ts";
import { CUDA, testIf } from "../devices.ts";
import { type InputShape, programOf } from "../programs.ts";

/** Sizes of one attention; see core/ops/attention.ts for the letters. */
type Case = Readonly<Record<"P" | "B" | "T" | "S" | "K" | "G" | "D" | "M", number>> & {
  readonly name: string;
  /** All streams read the text of B rows. */
  readonly shared?: boolean;
  /** Tokens of a document, where rows hold several. */
  readonly document?: number;
  /** Of the sequence, the tokens that are there before the queries. */
  readonly past?: number;
  /** The first queries see no text. */
  readonly blind?: number;
  /** Slots are found through a table. */
  readonly paged?: boolean;
};

/** Type, how far results may be off, and gradients of them. */
const TYPES: Readonly<Record<ComputeType, { result: number; gradient: number }>> = {
  f32: { result: 3e-6, gradient: 1e-5 },
  bf16: { result: 2 ** -7, gradient: 2 ** -7 },
};

const TRAINING: readonly Case[] = [
  { name: "one stream", P: 1, B: 1, T: 70, S: 70, K: 1, G: 1, D: 16, M: 0 },
  { name: "short prefix", P: 2, B: 1, T: 30, S: 30, K: 2, G: 3, D: 64, M: 5 },
  { name: "long prefix", P: 2, B: 2, T: 17, S: 17, K: 1, G: 7, D: 64, M: 48 },
  { name: "shared text", P: 4, B: 2, T: 24, S: 24, K: 1, G: 12, D: 16, M: 48, shared: true },
  { name: "documents", P: 1, B: 2, T: 150, S: 150, K: 1, G: 1, D: 16, M: 5, document: 45 },
  { name: "wide heads", P: 2, B: 1, T: 26, S: 26, K: 1, G: 3, D: 128, M: 48 },
  { name: "heads of 80", P: 2, B: 1, T: 26, S: 26, K: 1, G: 3, D: 80, M: 5 },
  { name: "wide heads, shared", P: 2, B: 1, T: 40, S: 40, K: 1, G: 1, D: 128, M: 5, shared: true },
  { name: "a cache", P: 2, B: 2, T: 20, S: 150, K: 1, G: 1, D: 16, M: 48, past: 90 },
  { name: "nothing to see", P: 1, B: 1, T: 20, S: 20, K: 2, G: 3, D: 16, M: 0, blind: 4 },
];

const DECODING: readonly Case[] = [
  { name: "one token", P: 2, B: 3, T: 1, S: 300, K: 2, G: 3, D: 16, M: 48, past: 140 },
  { name: "two tokens", P: 1, B: 2, T: 2, S: 130, K: 1, G: 7, D: 16, M: 0, past: 64 },
  { name: "documents", P: 1, B: 2, T: 4, S: 200, K: 1, G: 2, D: 16, M: 0, past: 150, document: 8 },
];

const PLAIN_DECODING: readonly Case[] = [
  { name: "wide heads", P: 1, B: 1, T: 1, S: 200, K: 1, G: 7, D: 128, M: 5, past: 199 },
  { name: "shared text", P: 4, B: 1, T: 1, S: 128, K: 1, G: 1, D: 16, M: 5, past: 3, shared: true },
  { name: "much room", P: 1, B: 1, T: 1, S: 17000, K: 1, G: 2, D: 16, M: 5, past: 16990 },
  { name: "many rows", P: 4, B: 4, T: 1, S: 420, K: 4, G: 1, D: 16, M: 3, past: 200 },
  { name: "nothing to see", P: 1, B: 1, T: 4, S: 128, K: 1, G: 1, D: 16, M: 0, blind: 2 },
];

/** Among them few slots, many queries, and heads that are not multiples of 16 bytes in bf16. */
const PAGED_DECODING: readonly Case[] = [
  { name: "wide heads", P: 1, B: 4, T: 1, S: 200, K: 2, G: 7, D: 128, M: 0, past: 199 },
  { name: "shared", P: 4, B: 3, T: 1, S: 128, K: 2, G: 1, D: 64, M: 5, past: 90, shared: true },
  { name: "few slots", P: 2, B: 3, T: 1, S: 70, K: 2, G: 3, D: 16, M: 5, past: 40 },
  { name: "many queries", P: 2, B: 2, T: 20, S: 150, K: 1, G: 1, D: 64, M: 5, past: 90 },
  { name: "odd heads", P: 2, B: 2, T: 1, S: 150, K: 2, G: 1, D: 20, M: 5, past: 99, shared: true },
];

/** Heads that tensor cores cannot multiply. */
const ODD_HEADS = { name: "odd heads", P: 2, B: 2, T: 20, S: 20, K: 1, G: 3, D: 24, M: 5 };

function shapesOf({ P, B, T, S, K, G, D, M, shared }: Case): Record<string, Shape> {
  const R = shared ? B : P * B;
  return {
    q: [R, T, K * G, D],
    keys: [R, K, S, D],
    values: [R, K, S, D],
    ...(M > 0 ? { prefixKeys: [P, K, M, D], prefixValues: [P, K, M, D] } : {}),
  };
}

function forward(each: Case): Program {
  const { P, B, T, S, K, G, D, document, paged } = each;
  const weights = [P * B, T, K * G * D];
  const shapes: Record<string, InputShape> = {
    ...shapesOf(each),
    ...{ weights, last: { i32: [B, T] } },
    ...(document ? { first: { i32: [B, T] } } : {}),
    ...(paged ? { table: { i32: [B, S] } } : {}),
  };
  return programOf("attention", shapes, ({ q, keys, values, last, ...x }) => {
    const { prefixKeys, prefixValues } = x;
    const prefix = prefixKeys && { prefix: { keys: prefixKeys, values: prefixValues! } };
    const visible = { ...x, last: last! };
    const out = attention({ q: q!, keys: keys!, values: values!, visible, ...prefix });
    const product = out.mul(x.weights!).reshape([elementCount(weights)]);
    return { scalar: product.sum(0).reshape([]), out };
  });
}

/** Inputs of a case, for the reference or, with NaN where reading is not allowed, for a device. */
function inputsOf(each: Case, poison: boolean): Map<string, number[]> {
  const { B, T, S, K, D, past = 0, document, blind = 0 } = each;
  const random = new RandomStream(11, each.name);
  const draw = (count: number, size: number) => drawNarrow(random, count, size);
  const all = new Map<string, number[]>();
  for (const [name, shape] of Object.entries(shapesOf(each))) {
    all.set(name, draw(elementCount(shape), name === "q" ? 3 : 1));
  }
  all.set("weights", draw(each.P * B * T * K * each.G * D, 1));
  // Rows of a batch are one slot apart.
  const at = Array.from({ length: B * T }, (_, i) => past + i % T - Math.min(past, i / T | 0));
  all.set("last", at.map((slot, i) => i % T < blind ? -1 : slot));
  if (document) all.set("first", at.map((slot) => slot - slot % document));
  const seen = new Set<number>(); // cells b·S + s
  const table: number[] = [];
  for (let b = 0; b < B; b++) {
    const [from, to] = [all.get("first")?.[b * T] ?? 0, at[b * T + T - 1]!];
    for (let s = 0; s < S; s++) {
      const isSeen = from <= s && s <= to;
      const row = each.paged ? random.integer(B) : b;
      table.push(isSeen ? row : s % 2 === 0 ? 1e9 : -1e9);
      if (isSeen) seen.add(row * S + s);
    }
  }
  if (each.paged) all.set("table", table);
  if (!poison) return all;
  for (const name of ["keys", "values"]) {
    const data = all.get(name)!;
    for (let i = 0; i < data.length; i++) {
      const [row, position] = [Math.floor(i / (K * S * D)) % B, Math.floor(i / D) % S];
      if (!seen.has(row * S + position)) data[i] = NaN;
    }
  }
  return all;
}

const attends = (entry: string) => entry.startsWith("attention");

function attentionOf(program: Program, elements: ComputeType): Set<string> {
  return new Set(entriesOf(program, elements).filter(attends));
}

/** Requires that nothing is moved for the sake of a table. */
function assertReadsInPlace(each: Case, elements: ComputeType): void {
  const [paged, plain] = [true, false].map((paged) =>
    entriesOf(forward({ ...each, paged }), elements).filter((entry) => !attends(entry))
  );
  assertEquals(paged, plain);
}

/** Compares the results of a case, and its gradients by the inputs named. */
function test(
  name: string,
  { each, elements, entries, by = [] }: {
    each: Case;
    elements: ComputeType;
    entries: readonly string[];
    by?: readonly string[];
  },
): void {
  testIf(CUDA)(name, async () => {
    const plain = forward(each);
    const program = by.length > 0 ? differentiate(plain, { of: "scalar", by }) : plain;
    assertEquals(attentionOf(program, elements), new Set(entries));
    if (each.paged) assertReadsInPlace(each, elements);
    const { result, gradient } = TYPES[elements];
    const gradients = by.map((name) => [gradientName(name), gradient]);
    await assertAgrees(program, elements, {
      inputs: inputsOf(each, false),
      onDevice: inputsOf(each, true),
      tolerances: { out: result, ...Object.fromEntries(gradients) },
      // A query that sees nothing gives zeros here, and the mean of all values there.
      zeros: { out: (each.blind ?? 0) * each.K * each.G * each.D },
    });
  });
}

const named = (parts: string) => parts.split(" ").map((part) => `attention_${part}`);
const SPLIT = named("split combine");
const PLAIN = [...SPLIT, ...named("delta queries slots")];

for (const each of TRAINING) {
  const backward = named("queries_mma slots_mma delta");
  const entries = ["attention_mma", ...(each.blind ? [] : backward)];
  const by = each.blind ? [] : Object.keys(shapesOf(each));
  test(`bf16 on tensor cores: ${each.name}`, { each, elements: "bf16", entries, by });
}

for (const elements of ["f32", "bf16"] as const) {
  for (const each of [...DECODING, ...PLAIN_DECODING]) {
    test(`${elements}, split slots: ${each.name}`, { each, elements, entries: SPLIT });
  }
  for (const one of [...DECODING, ...PAGED_DECODING]) {
    const each = { ...one, paged: true };
    test(`${elements}, slots through a table: ${one.name}`, { each, elements, entries: SPLIT });
  }
  const odd = { each: ODD_HEADS, entries: PLAIN, by: Object.keys(shapesOf(ODD_HEADS)) };
  test(`${elements}: heads that are not multiples of 16`, { ...odd, elements });
}

for (const each of TRAINING.filter(({ name }) => ["documents", "a cache"].includes(name))) {
  const by = Object.keys(shapesOf(each));
  test(`f32: ${each.name}`, { each, elements: "f32", entries: PLAIN, by });
}
