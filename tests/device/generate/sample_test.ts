/** Tokens drawn on a device: the same that the host draws from the same logits. */
import { assert, assertEquals } from "@std/assert";
import { sampleTokens } from "../../../core/ops/sample.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { Device } from "../../../core/runtime/device.ts";
import {
  GREEDY,
  sample,
  samplingNumbers,
  type SamplingOptions,
} from "../../../core/base/sampling.ts";
import { samplers } from "../devices.ts";
import { programOf, runOn } from "../programs.ts";

/** Draws one token from each of some rows. */
async function drawOn(
  device: Device,
  rows: readonly Float32Array[],
  sampling: readonly number[][],
): Promise<number[]> {
  const [N, V] = [rows.length, rows[0]!.length];
  const shapes = { logits: [N, V], sampling: [N, 6] };
  const program = programOf(
    "draw",
    shapes,
    ({ logits, sampling }) => sampleTokens(logits, sampling),
  );
  const logits = rows.flatMap((row) => Array.from(row));
  const found = await runOn(device, program, { logits, sampling: sampling.flat() });
  return Array.from(found.get("result")!);
}

/** Logits of many kinds: ordinary, flat, with ties, far apart, with impossible tokens. */
function randomRow(random: RandomStream, size: number, kind: number): Float32Array {
  return Float32Array.from({ length: size }, (_, id) => {
    const x = random.normal();
    if (kind === 1) return 0;
    if (kind === 2) return random.integer(4) - 2;
    if (kind === 3) return x * 1e4;
    if (kind === 4) return id > 0 && random.integer(3) === 0 ? -Infinity : x * 5;
    if (kind === 5) return id === 0 ? 3e38 : x * -1e30;
    return x * 3;
  });
}

for (const [name, open] of samplers) {
  Deno.test(`${name} draws the tokens that the host draws`, async () => {
    const random = new RandomStream(7, "rows");
    const pick = <T>(values: readonly T[]) => values[random.integer(values.length)]!;
    const device = open();
    let [near, all] = [0, 0];
    for (const size of [1, 5, 31, 33, 1000, 5000]) {
      const cases = Array.from({ length: size > 1000 ? 12 : 40 }, (_, i) => ({
        row: randomRow(random, size, i % 6),
        options: {
          temperature: pick([0, 0.01, 0.7, 1, 3, 100]),
          topK: pick([0, 0, 1, 3, 39, 1000]),
          topP: pick([1, 1, 1e-9, 0.3, 0.9, 0.999999]),
          minP: pick([0, 0, 0.05, 0.5, 1]),
        },
        draw: pick([0, random.uniform(), random.uniform(), 1 - 2 ** -53]),
      }));
      const drawn = await drawOn(
        device,
        cases.map(({ row }) => row),
        cases.map(({ options, draw }) => samplingNumbers(options, { uniform: () => draw })),
      );
      cases.forEach(({ row, options, draw }, i) => {
        all++;
        const expected = sample(row, options, { uniform: () => draw });
        if (drawn[i] === expected) return;
        // A border may lie a rounding away; then a draw that is a little off gives this token, too.
        near++;
        const around = [-1, 1].flatMap((side) =>
          [1e-7, 1e-6].flatMap((step) =>
            [-1e-6, 0, 1e-6].map((shift) => {
              const uniform = Math.min(Math.max(draw + side * step, 0), 1 - 2 ** -53);
              const topP = options.topP * (1 + shift);
              return sample(row, { ...options, topP }, { uniform: () => uniform });
            })
          )
        );
        const about = JSON.stringify({ i, size, options, draw, expected, drawn: drawn[i] });
        assert(around.includes(drawn[i]!), about);
      });
    }
    assert(near <= all / 20, `${near} of ${all} differ by a rounding`);
  });

  Deno.test(`${name} draws −1 where a logit is NaN, and lets the other rows be`, async () => {
    const random = new RandomStream(8, "rows");
    const rows = [0, 1, 2, 3].map(() => randomRow(random, 700, 0));
    rows[1]![699] = NaN;
    rows[3]![0] = NaN;
    const best = [...rows[0]!].indexOf(Math.max(...rows[0]!));
    const hot: SamplingOptions = { temperature: 1, topK: 0, topP: 0.9, minP: 0 };
    const numbers = [GREEDY, GREEDY, hot, hot].map((each) =>
      samplingNumbers(each, { uniform: () => 0.5 })
    );
    const tokens = await drawOn(open(), rows, numbers);
    assertEquals([tokens[0], tokens[1], tokens[3]], [best, -1, -1]);
    assertEquals(tokens[2], sample(rows[2]!, hot, { uniform: () => 0.5 }));
  });
}
