/**
 * The language of a text, by naive Bayes over sequences of one to three characters.
 *
 * Like the reference, this draws sequences at random until one language stands out, seven times with
 * different smoothing, and averages. The reference draws anew in every run, so that close calls vary;
 * here the seed is fixed.
 */
import { RandomStream } from "../../../base/random.ts";
import { type Classes, gramsOf } from "./grams.ts";

/** Profiles of all languages. */
export interface LanguageProfiles {
  readonly languages: readonly string[];
  /**
   * P(gram | language) of each language that knows the gram: language, probability, language, ...
   */
  readonly grams: ReadonlyMap<string, Float64Array>;
  readonly kanji: Classes;
}

const TRIALS = 7;
/** Smoothing: its mean and spread, and the unit it is counted in. */
const ALPHA = 0.5, ALPHA_SPREAD = 0.05, BASE_FREQUENCY = 10_000;
/** A trial ends when a language is this probable, or after `MOST_DRAWS` draws. */
const CONVERGED = 0.99999, MOST_DRAWS = 1000;
/** Draws between two tests for convergence. */
const CHECK_EVERY = 5;
/** Languages less likely are not named. */
const LEAST_PROBABILITY = 0.1;

/** Answer of the reference when no language is likely enough. */
const UNKNOWN = "unknown";

/** The most probable language, or undefined when there is nothing to go by. */
export function detectLanguage(text: string, profiles: LanguageProfiles): string | undefined {
  const probabilities = languageProbabilities(text, profiles);
  if (probabilities === undefined) return undefined;
  // Of equals the last name wins, as where languages are sorted downwards by probability and name.
  const best = Math.max(...probabilities);
  return best > LEAST_PROBABILITY ? profiles.languages[probabilities.lastIndexOf(best)]! : UNKNOWN;
}

/** A probability for each language, or undefined when there is nothing to go by. */
export function languageProbabilities(
  text: string,
  { languages, grams, kanji }: LanguageProfiles,
): Float64Array | undefined {
  const known = [...gramsOf(text, kanji)].map((gram) => grams.get(gram))
    .filter((entry) => entry !== undefined);
  if (known.length === 0) return undefined;
  const random = new RandomStream(0, "language detection");
  const mean = new Float64Array(languages.length);
  for (let trial = 0; trial < TRIALS; trial++) {
    const alpha = ALPHA + random.normal() * ALPHA_SPREAD;
    const draw = () => known[random.integer(known.length)]!;
    runTrial(draw, alpha / BASE_FREQUENCY, languages.length)
      .forEach((p, i) => mean[i]! += p / TRIALS);
  }
  return mean;
}

/** Updates equal priors with one gram after the other. */
function runTrial(draw: () => Float64Array, weight: number, languages: number): Float64Array {
  const probabilities = new Float64Array(languages).fill(1 / languages);
  const factors = new Float64Array(languages);
  for (let i = 0;; i++) {
    const entry = draw();
    factors.fill(weight);
    for (let k = 0; k < entry.length; k += 2) factors[entry[k]!]! += entry[k + 1]!;
    for (let k = 0; k < languages; k++) probabilities[k]! *= factors[k]!;
    if (i % CHECK_EVERY !== 0) continue;
    if (normalizeSum(probabilities) > CONVERGED || i >= MOST_DRAWS) return probabilities;
  }
}

/** Scales to a sum of one; returns the largest. */
function normalizeSum(values: Float64Array): number {
  const sum = values.reduce((total, value) => total + value, 0);
  let largest = 0;
  for (let i = 0; i < values.length; i++) {
    values[i]! /= sum;
    largest = Math.max(largest, values[i]!);
  }
  return largest;
}
