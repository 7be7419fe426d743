/**
 * Attention with Hopper's copies and products, on an emulated machine, against plain TypeScript.
 *
 * Slots that no query sees hold NaN. Numbers are such that bf16 has them, so that what differs is the
 * rounding of weights and results. Needs Linux and g++; elsewhere every test is skipped.
 */
import { assertEquals } from "@std/assert";
import { wgmma } from "../../../core/runtime/cuda/kernels/attention/kernels.ts";
import { emulatorPresent } from "../../emulator/mod.ts";
import { type AttentionSizes, plainAttention } from "../../emulator/plain.ts";
import { type Argument, Bench, values } from "../../emulator/testing.ts";
import { assertNear } from "./checks.ts";

const present = emulatorPresent();

/** One attention. */
interface Case extends Omit<AttentionSizes, "scale"> {
  readonly name: string;
  /** Tokens before the queries. */
  readonly past: number;
  /** Tokens of a document, where rows hold several. */
  readonly document?: number;
}

const CASES: readonly Case[] = [
  { name: "one tile", P: 1, B: 1, T: 64, S: 64, K: 1, G: 1, M: 0, D: 64, past: 0 },
  { name: "a prefix", P: 2, B: 1, T: 50, S: 50, K: 2, G: 3, M: 5, D: 64, past: 0 },
  { name: "a long prefix", P: 1, B: 2, T: 9, S: 20, K: 1, G: 2, M: 150, D: 128, past: 11 },
  { name: "wide heads", P: 1, B: 1, T: 140, S: 400, K: 1, G: 1, M: 48, D: 128, past: 200 },
  { name: "many tiles", P: 1, B: 1, T: 40, S: 900, K: 1, G: 4, M: 3, D: 64, past: 700 },
  { name: "documents", P: 1, B: 1, T: 450, S: 450, K: 1, G: 1, M: 0, D: 64, past: 0, document: 70 },
  // The later half of the last block sees the prefix, then nothing for longer than the ring is.
  { name: "a gap", P: 1, B: 1, T: 600, S: 600, K: 1, G: 1, M: 5, D: 64, past: 0, document: 576 },
];

for (const each of CASES) {
  const { name, P, B, T, S, K, G, M, D, past, document } = each;
  Deno.test({
    name: `attention on warpgroups: ${name}`,
    ignore: !present,
    fn() {
      const bench = new Bench();
      const [rows, H, scale] = [P * B, K * G, D ** -0.5];
      const last = Int32Array.from({ length: B * T }, (_, i) => past + i % T);
      const first = last.map((slot) => document ? slot - slot % document : past / 4 | 0);
      const text = (seed: number) => {
        const data = values(rows * K * S * D, seed);
        return { data, poisoned: data.map((x, i) => isSeen(Math.floor(i / D) % S) ? x : NaN) };
      };
      const isSeen = (slot: number) => first[0]! <= slot && slot <= last[T - 1]!;
      const [keys, moreValues] = [text(2), text(3)];
      const q = values(rows * T * H * D, 1).map((x) => 4 * x);
      const [prefixKeys, prefixValues] = [values(P * K * M * D, 4), values(P * K * M * D, 5)];
      const map = (data: Float32Array<ArrayBuffer>, slots: number) =>
        slots === 0 ? new Uint8Array(128) : bench.driver.encodeTensorMap({
          address: bench.put(data, "bf16"),
          sizes: [D, slots, data.length / slots / D],
          box: [64, 128, 1],
        });
      const { entry, file } = wgmma;
      const defines = { BF16: 1, HEAD_DIM: D };
      const kernel = bench.kernel(file.text, entry, { headers: file.headers, defines });
      const geometry = wgmma.geometry({ rows, G, T, K, HEAD_DIM: D });
      bench.driver.allowShared(kernel, geometry.shared!);
      const run = () => {
        const [out, normalizer] = [
          bench.empty(2 * rows * T * H * D),
          bench.empty(4 * rows * T * H),
        ];
        bench.launch(kernel, geometry, [
          ...[out, normalizer, bench.put(q, "bf16")],
          ...[map(keys.poisoned, S), map(moreValues.poisoned, S)],
          ...[bench.put(first), bench.put(last), map(prefixKeys, M), map(prefixValues, M)],
          ...[rows, B, T, S, K, G, M].map((size): Argument => ["i32", size]),
          ["f32", scale] as const,
        ]);
        return [bench.get(out, rows * T * H * D, "bf16"), bench.get(normalizer, rows * T * H)];
      };
      const [out, normalizer] = run();
      const expected = plainAttention(
        { P, B, T, S, K, G, M, D, scale },
        { q, keys: keys.data, values: moreValues.data, prefixKeys, prefixValues, first, last },
      );
      assertEquals(out!.filter(Number.isFinite).length, expected.out.length);
      assertEquals(normalizer!.filter(Number.isFinite).length, expected.normalizer.length);
      assertNear([out!, Float64Array.from(expected.out)], 2 ** -7, "out");
      assertNear([normalizer!, Float64Array.from(expected.normalizer)], 1e-5, "normalizer");
      assertEquals(run(), [out, normalizer], "twice the same");
      bench.close();
    },
  });
}
