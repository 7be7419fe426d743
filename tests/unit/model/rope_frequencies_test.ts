/** Scaled rotary frequencies against their formulas, at the ends of every range. */
import { assertAlmostEquals } from "@std/assert";
import type { RopeScaling } from "../../../core/model/config.ts";
import { ropeFrequencies } from "../../../core/model/rope_frequencies.ts";

const MODEL = { headDim: 8, ropeTheta: 10 };

const YARN = {
  kind: "yarn",
  factor: 4,
  attentionFactor: 1,
  betaFast: 2000,
  betaSlow: 1,
  truncate: true,
  originalContext: 32768,
} as const;

const LLAMA3 = {
  kind: "llama3",
  factor: 8,
  lowFrequencyFactor: 1,
  highFrequencyFactor: 4,
  originalContext: 40,
} as const;

/** Shares of the unscaled frequency that are left in each pair; the rest is divided by the factor. */
const CASES: readonly (readonly [string, RopeScaling, readonly number[]])[] = [
  ["YaRN ramps up to the last dimension", YARN, [1, 1, 5 / 6, 4 / 6]],
  ["YaRN ramps from the first pair", { ...YARN, betaFast: 10_000 }, [1, 6 / 7, 5 / 7, 4 / 7]],
  ["YaRN ends where a pair turns once", { ...YARN, betaFast: 1e4, originalContext: 20 }, [
    1,
    2 / 3,
    1 / 3,
    0,
  ]],
  // Wavelengths 6.28, 11.2, 19.9 and 35.3, of which 10 and 40 are the ends of the blend.
  ["Llama 3 blends by turns", LLAMA3, [
    1,
    ...[1, 2, 3].map((i) => (40 / (2 * Math.PI * 10 ** (i / 4)) - 1) / 3),
  ]],
  ["Llama 3 divides long wavelengths", { ...LLAMA3, originalContext: 15 }, [
    (15 / (2 * Math.PI) - 1) / 3,
    (15 / (2 * Math.PI * 10 ** 0.25) - 1) / 3,
    0,
    0,
  ]],
];

for (const [name, ropeScaling, kept] of CASES) {
  Deno.test(name, () => {
    const { frequencies } = ropeFrequencies({ ...MODEL, ropeScaling });
    const scaled = kept.map((share, i) =>
      10 ** (-i / 4) * (share + (1 - share) / ropeScaling.factor)
    );
    scaled.forEach((expected, i) => assertAlmostEquals(frequencies[i]!, expected, 1e-6));
  });
}
