/**
 * Whether attention runs on warpgroups: found out by running both kernels on the device at hand.
 *
 * Takes the sizes of an attention that either kernel could compute; returns whether
 * `attention_wgmma` gave what `attention_mma` gives, and sooner. Both run on made-up numbers of
 * that shape, bounded so that a trial takes a fraction of a second; sizes of one class share a
 * trial, and what was found is kept in memory and on disk.
 *
 * Slots that no query sees hold NaN, since a kernel that lets one of them through is wrong in a way
 * that finite numbers would hide.
 */
import { EnvironmentError } from "../../base/errors.ts";
import { hashOf } from "./cubin_cache.ts";
import { CudaError } from "./errors.ts";
import { kernelSource } from "./kernel_sources.ts";
import { kernelNamed, runsOn, type Sizes } from "./kernel_table.ts";
import type { Choices } from "./lowering/types.ts";
import type { Outcome, TrialFiles, TrialRecord } from "./trial_files.ts";
import { Race, type RaceContext } from "./trial_race.ts";

/** The kernel that is always right, and the one that has to show that it pays. */
const [KNOWN, NEW] = ["attention_mma", "attention_wgmma"] as const;
/** How far a result may be off, of the largest: its last bit in bf16 and that of the weights. */
const TOLERANCE = 2 ** -7;
/** How far the logarithm of a sum may be off, which both kernels compute in f32. */
const NORMALIZER_TOLERANCE = 1e-3;
/** Launches of each kernel that are timed. */
const ROUNDS = 5;

/** What trials run with. */
export interface TrialContext extends RaceContext {
  /** Where records are kept; in memory only without. */
  readonly files?: TrialFiles | undefined;
}

export class Trials {
  readonly #context: TrialContext;
  readonly #known = new Map<string, boolean>();

  /** Runs nothing before it is asked. */
  constructor(context: TrialContext) {
    this.#context = context;
  }

  /** Whether attention of these sizes is to run on warpgroups. */
  prefersWarpgroups(sizes: Sizes): boolean {
    const shape = shapeClass(sizes);
    const known = this.#known.get(shape) ?? this.#decide(shape, sizes) === "faster";
    this.#known.set(shape, known);
    return known;
  }

  #decide(shape: string, sizes: Sizes): Outcome {
    const { driver, files } = this.#context;
    const device = driver.deviceInfo().name;
    const key = hashOf([device, String(driver.version), shape, ...sources()]);
    const recorded = files?.read(key);
    if (recorded) return recorded.outcome;
    let race: Race;
    try {
      race = new Race(this.#context, [KNOWN, NEW], sizes);
    } catch (error) {
      // No memory left, or no compiler: nothing was found out, so the next process asks again.
      if (error instanceof EnvironmentError) return "slower";
      throw error;
    }
    files?.write(key, { device, shape, outcome: "began" });
    const found = judge(race);
    files?.write(key, { device, shape, ...found });
    return found.outcome;
  }
}

/** What a device chooses: nothing new, always the new, or what trials say, where it can be chosen. */
export function choicesOf(
  wgmma: boolean | "trial",
  architecture: string,
  context: TrialContext,
): Choices {
  if (!runsOn(kernelNamed(NEW).file, architecture)) return {};
  if (wgmma !== "trial") return { wgmma: () => wgmma };
  const trials = new Trials(context);
  return { wgmma: (sizes) => trials.prefersWarpgroups(sizes) };
}

/**
 * Runs both kernels and frees what they ran on.
 * @throws {CudaError} when a kernel fails; then the whole context is lost
 */
function judge(race: Race): Pick<TrialRecord, "outcome" | "milliseconds"> {
  try {
    const [expected, found] = [race.results(KNOWN), race.results(NEW)];
    const agrees = isNear(found.out, expected.out, TOLERANCE * largest(expected.out)) &&
      isNear(found.normalizer, expected.normalizer, NORMALIZER_TOLERANCE);
    if (!agrees) return { outcome: "wrong" };
    const milliseconds = race.times([KNOWN, NEW], ROUNDS);
    return {
      outcome: milliseconds[NEW]! < milliseconds[KNOWN]! ? "faster" : "slower",
      milliseconds,
    };
  } catch (error) {
    if (!(error instanceof CudaError)) throw error;
    const hint = "run it again: a kernel that failed in its trial is not used any more";
    const { message, code, status, hints } = error;
    throw new CudaError(message, { code, status, hints: [hint, ...hints] });
  } finally {
    race.close();
  }
}

/** Sizes that share a trial: heads as they are, the rest by powers of two. */
export function shapeClass({ HEAD_DIM, G, T, S }: Sizes): string {
  const bucket = (size: number) => 2 ** Math.ceil(Math.log2(size));
  return `HEAD_DIM ${HEAD_DIM}, G ${G}, ${bucket(G! * T!)} queries, ${bucket(S!)} slots`;
}

/** Everything the two kernels are compiled from. */
function sources(): string[] {
  return [KNOWN, NEW].map((entry) => kernelSource(kernelNamed(entry).file))
    .flatMap(({ text, headers }) => [text, ...headers.values()]);
}

function largest(values: Float32Array): number {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

/** What is no number is near nothing. */
function isNear(found: Float32Array, expected: Float32Array, distance: number): boolean {
  return found.every((value, i) => Math.abs(value - expected[i]!) <= distance);
}
