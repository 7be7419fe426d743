/**
 * Frequencies of the rotary position embedding, θ^(−2i/D), and their scaling for contexts longer than
 * that of pre-training.
 *
 *   llama3  short wavelengths stay, long ones are divided by the factor, between them a linear blend
 *   yarn    the same by pairs of dimensions; cosines and sines are also multiplied by a factor
 *
 * Every step is rounded to f32 as transformers rounds it, so that late positions agree.
 */
import type { ModelConfig, RopeScaling } from "./config.ts";

/** Angles per position, and what cosines and sines are multiplied by. */
export interface RopeFrequencies {
  /** [D/2], of the elements that rotate */
  readonly frequencies: readonly number[];
  readonly scale: number;
}

const { fround } = Math;

/** Frequencies of a model. */
export function ropeFrequencies(
  { headDim, rotaryDim: D = headDim, ropeTheta, ropeScaling }: Pick<
    ModelConfig,
    "headDim" | "rotaryDim" | "ropeTheta" | "ropeScaling"
  >,
): RopeFrequencies {
  const powers = Array.from({ length: D / 2 }, (_, i) => fround(ropeTheta ** fround(2 * i / D)));
  if (ropeScaling?.kind === "yarn") {
    const frequencies = yarn(powers, ropeTheta, ropeScaling);
    return { frequencies, scale: ropeScaling.attentionFactor };
  }
  const plain = powers.map((power) => fround(1 / power));
  return { frequencies: ropeScaling ? plain.map((f) => llama3(f, ropeScaling)) : plain, scale: 1 };
}

function llama3(frequency: number, scaling: RopeScaling & { kind: "llama3" }): number {
  const { factor, lowFrequencyFactor: low, highFrequencyFactor: high, originalContext } = scaling;
  const wavelength = fround(fround(2 * Math.PI) / frequency);
  if (wavelength < originalContext / high) return frequency;
  if (wavelength > originalContext / low) return fround(frequency / factor);
  const turns = fround(originalContext / wavelength);
  const share = fround(fround(turns - low) / (high - low));
  const scaled = fround(fround(fround(1 - share) * frequency) / factor);
  return fround(scaled + fround(share * frequency));
}

function yarn(
  powers: readonly number[],
  theta: number,
  scaling: RopeScaling & { kind: "yarn" },
): number[] {
  const { factor, betaFast, betaSlow, truncate, originalContext } = scaling;
  const D = 2 * powers.length;
  /** The pair that turns this often within the original context. */
  const pairOf = (turns: number) =>
    D * Math.log(originalContext / (turns * 2 * Math.PI)) / (2 * Math.log(theta));
  const [first, last] = [pairOf(betaFast), pairOf(betaSlow)];
  const low = Math.max(truncate ? Math.floor(first) : first, 0);
  const end = Math.min(truncate ? Math.ceil(last) : last, D - 1);
  const high = low === end ? end + 0.001 : end;
  return powers.map((power, i) => {
    const ramp = Math.min(1, Math.max(0, fround(fround(i - low) / fround(high - low))));
    const kept = fround(1 - ramp);
    const interpolated = fround(1 / fround(factor * power));
    return fround(fround(interpolated * fround(1 - kept)) + fround(fround(1 / power) * kept));
  });
}
