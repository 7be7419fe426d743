/**
 * The data for sentences and languages, read once when first needed.
 *
 * `fixtures/eval/pack_language_data.ts` makes the two compressed JSON files. A gram lists only the
 * languages that know it, which makes both the file and a trial several times smaller.
 */
import { EnvironmentError } from "../../../base/errors.ts";
import type { LanguageProfiles } from "./language.ts";
import type { PunktParameters } from "./punkt.ts";

/** Tools that checkers need loaded. */
export interface LanguageTools {
  readonly punkt: PunktParameters;
  readonly profiles: LanguageProfiles;
}

/** Punkt parameters as stored in the packed file. */
export interface PackedPunkt {
  readonly abbreviations: readonly string[];
  /** `first second`. */
  readonly collocations: readonly string[];
  readonly starters: readonly string[];
  /** Words by their flags, joined by blanks. */
  readonly writing: Readonly<Record<string, string>>;
}

/** Language profiles as stored in the packed file. */
export interface PackedProfiles {
  readonly languages: readonly string[];
  /** Number of grams of length 1, 2 and 3 each language was learned from. */
  readonly totals: readonly (readonly number[])[];
  /** All grams in order, joined by tabs. */
  readonly grams: string;
  /**
   * For each gram the languages that know it: a sum of powers of two, in hexadecimal, with tabs.
   */
  readonly known: string;
  /** Counts of each gram and language in order, joined by blanks. */
  readonly counts: string;
  /** Characters that stand for each other; the first of a class represents it. */
  readonly kanji: readonly string[];
}

let loading: Promise<LanguageTools> | undefined;

/**
 * Reads the shipped data, once.
 * @throws {EnvironmentError} when it cannot be read
 */
export function loadLanguageTools(): Promise<LanguageTools> {
  return loading ??= read();
}

async function read(): Promise<LanguageTools> {
  const [punkt, profiles] = await Promise.all([
    readPacked<PackedPunkt>("punkt_english.json.gz"),
    readPacked<PackedProfiles>("language_profiles.json.gz"),
  ]);
  return { punkt: unpackPunkt(punkt), profiles: unpackProfiles(profiles) };
}

async function readPacked<T>(name: string): Promise<T> {
  try {
    const bytes = await Deno.readFile(new URL(`data/${name}`, import.meta.url));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return await new Response(stream).json();
  } catch (cause) {
    loading = undefined; // so that another attempt may succeed
    throw new EnvironmentError(`cannot read the language data of ifeval: ${name}`, {
      hints: ["grant read access to the program's own files, or install it again"],
      cause,
    });
  }
}

/** Tables from the packed parameters. */
function unpackPunkt(packed: PackedPunkt): PunktParameters {
  const writing = new Map<string, number>();
  for (const [flags, words] of Object.entries(packed.writing)) {
    for (const word of words.split(" ")) writing.set(word, Number(flags));
  }
  return {
    abbreviations: new Set(packed.abbreviations),
    collocations: new Set(packed.collocations),
    starters: new Set(packed.starters),
    writing,
  };
}

/** Tables from the packed profiles. */
function unpackProfiles(packed: PackedProfiles): LanguageProfiles {
  const { languages, totals } = packed;
  const known = packed.known.split("\t"), counts = packed.counts.split(" ").map(Number);
  const grams = new Map<string, Float64Array>();
  let at = 0;
  packed.grams.split("\t").forEach((gram, i) => {
    const length = Array.from(gram).length;
    const entry: number[] = [];
    for (let bits = BigInt(`0x${known[i]}`), k = 0; bits > 0n; bits >>= 1n, k++) {
      if ((bits & 1n) === 1n) entry.push(k, counts[at++]! / totals[k]![length - 1]!);
    }
    grams.set(gram, Float64Array.from(entry));
  });
  const kanji = new Map<string, string>();
  for (const members of packed.kanji) {
    const [representative, ...others] = Array.from(members);
    for (const character of [representative!, ...others]) kanji.set(character, representative!);
  }
  return { languages, grams, kanji };
}
