/**
 * Prompts of problems, and the stop strings of answers: direct completion as in EvalPlus.
 */
import { strip } from "../../python/text.ts";
import type { Benchmark, CodeProblem } from "./problems.ts";

const STOPS = [
  "<|endoftext|>",
  "<|endofmask|>",
  "</s>",
  "\nif __name__",
  "\ndef main(",
  "\nprint(",
];

const OWN_STOPS: Readonly<Record<Benchmark, readonly string[]>> = {
  humaneval: ["\ndef ", "\nclass ", "\nimport ", "\nfrom ", "\nassert "],
  mbpp: ['\n"""', "\nassert"],
};

/** Most new tokens of an answer. */
export const CODE_TOKENS = 768;

/** Returns the text that a model is to complete, without a chat template. */
export function codePrompt({ prompt }: CodeProblem): string {
  return `${strip(prompt)}\n`;
}

/** Texts that end an answer. */
export function codeStops(benchmark: Benchmark): readonly string[] {
  return [...STOPS, ...OWN_STOPS[benchmark]];
}

/** Characters of an answer that count at most. */
const LONGEST = 10000;

/** An answer up to the earliest stop, its tabs as four spaces. */
export function truncate(text: string, stops: readonly string[]): string {
  const ends = stops.map((stop) => text.indexOf(stop)).filter((index) => index >= 0);
  const kept = text.slice(0, Math.min(text.length, ...ends));
  // Characters, not UTF-16 units.
  const cut = kept.length > LONGEST ? [...kept].slice(0, LONGEST).join("") : kept;
  return cut.replaceAll("\t", "    ");
}
