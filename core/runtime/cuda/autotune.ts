/**
 * Autotuning: whether attention runs on warpgroups, decided by running both kernels on the device.
 *
 * `attention_wgmma` is used where it agrees with `attention_mma` and is faster. Sizes of one class share a
 * decision, which is kept in memory and beside the compiled kernels. A record is written before the
 * benchmark starts, so that a kernel which crashes the process is not run again. Slots outside the mask
 * hold NaN in the benchmark: a kernel that reads one is found out.
 */
import { cacheFolder } from "../../base/cache_folder.ts";
import { EnvironmentError } from "../../base/errors.ts";
import { renameSync } from "../../base/platform/rename.ts";
import { AttentionBenchmark, type BenchmarkContext } from "./attention_benchmark.ts";
import { hashOf } from "./cubin_cache.ts";
import { CudaError } from "./driver/errors.ts";
import { mma, wgmma } from "./kernels/attention/kernels.ts";
import type { Sizes } from "./kernels/define.ts";
import type { Choices } from "./lowered.ts";

/** The kernel that is always right, and the candidate. */
const [KNOWN, NEW] = [mma, wgmma];
/** Tolerance relative to the largest result: the last bit in bf16 and that of the weights. */
const TOLERANCE = 2 ** -7;
/** Absolute tolerance of the log-sum-exp, which both kernels compute in f32. */
const NORMALIZER_TOLERANCE = 1e-3;
/** Launches of each kernel that are timed. */
const ROUNDS = 5;

/** Context of the benchmarks. */
export interface AutotuneContext extends BenchmarkContext {
  /** Where decisions are kept; without it in memory only. */
  readonly files?: AutotuneRecords | undefined;
}

export class Autotuner {
  readonly #context: AutotuneContext;
  readonly #known = new Map<string, boolean>();

  /** Runs nothing before it is asked. */
  constructor(context: AutotuneContext) {
    this.#context = context;
  }

  /** Whether attention of these sizes runs on warpgroups. */
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
    let benchmark: AttentionBenchmark;
    try {
      benchmark = new AttentionBenchmark(this.#context, [KNOWN, NEW], sizes);
    } catch (error) {
      // No memory left, or no compiler: nothing is decided, so the next process tries again.
      if (error instanceof EnvironmentError) return "slower";
      throw error;
    }
    files?.write(key, { device, shape, outcome: "began" });
    const found = compare(benchmark);
    files?.write(key, { device, shape, ...found });
    return found.outcome;
  }
}

/** The choices of a device: the known kernel, always the new one, or what autotuning decides. */
export function choicesOf(
  wgmma: boolean | "autotune",
  architecture: string,
  context: AutotuneContext,
): Choices {
  if (NEW.file.architecture !== architecture) return {};
  if (wgmma !== "autotune") return { wgmma: () => wgmma };
  const autotuner = new Autotuner(context);
  return { wgmma: (sizes) => autotuner.prefersWarpgroups(sizes) };
}

/**
 * Runs both kernels and frees what they ran on.
 * @throws {CudaError} when a kernel fails; then the whole context is lost
 */
function compare(benchmark: AttentionBenchmark): Pick<AutotuneRecord, "outcome" | "milliseconds"> {
  try {
    const [expected, found] = [benchmark.results(KNOWN), benchmark.results(NEW)];
    const agrees = isNear(found.out, expected.out, TOLERANCE * largest(expected.out)) &&
      isNear(found.normalizer, expected.normalizer, NORMALIZER_TOLERANCE);
    if (!agrees) return { outcome: "wrong" };
    const [before, after] = benchmark.times([KNOWN, NEW], ROUNDS) as [number, number];
    return {
      outcome: after < before ? "faster" : "slower",
      milliseconds: { [KNOWN.entry]: before, [NEW.entry]: after },
    };
  } catch (error) {
    if (!(error instanceof CudaError)) throw error;
    const hint = "run it again: a kernel that failed in its benchmark is no longer used";
    const { message, code, status, hints } = error;
    throw new CudaError(message, { code, status, hints: [hint, ...hints] });
  } finally {
    benchmark.close();
  }
}

/** Class of sizes that share a decision: heads as they are, the rest by powers of two. */
export function shapeClass({ HEAD_DIM, G, T, S }: Sizes): string {
  const bucket = (size: number) => 2 ** Math.ceil(Math.log2(size));
  return `HEAD_DIM ${HEAD_DIM}, G ${G}, ${bucket(G! * T!)} queries, ${bucket(S!)} slots`;
}

/** Everything the two kernels are compiled from. */
function sources(): string[] {
  return [KNOWN, NEW].flatMap(({ file: { text, headers } }) => [text, ...headers.values()]);
}

function largest(values: Float32Array): number {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

/** Whether all values are within a distance; NaN never is. */
function isNear(found: Float32Array, expected: Float32Array, distance: number): boolean {
  return found.every((value, i) => Math.abs(value - expected[i]!) <= distance);
}

/** Outcome of a benchmark; `began` where it has not ended. */
export type Outcome = "began" | "faster" | "slower" | "wrong";

/** One decision. */
export interface AutotuneRecord {
  /** Name of the device. */
  readonly device: string;
  /** Class of sizes, in words. */
  readonly shape: string;
  readonly outcome: Outcome;
  /** Of one launch, by kernel. */
  readonly milliseconds?: Readonly<Record<string, number>>;
}

const OUTCOMES: readonly unknown[] = ["began", "faster", "slower", "wrong"] satisfies Outcome[];
const SUFFIX = ".json";

/** Records in one folder. */
export class AutotuneRecords {
  readonly folder: string;

  /** Nothing is made before something is written. */
  constructor(folder: string) {
    this.folder = folder;
  }

  /** A record written before; undefined when there is none or its file is damaged. */
  read(key: string): AutotuneRecord | undefined {
    return this.#parse(`${key}${SUFFIX}`);
  }

  /** Keeps a record in place of the last one. */
  write(key: string, record: AutotuneRecord): void {
    Deno.mkdirSync(this.folder, { recursive: true });
    const temporary = `${this.folder}/${key}.${crypto.randomUUID()}`;
    Deno.writeTextFileSync(temporary, `${JSON.stringify(record)}\n`);
    renameSync(temporary, `${this.folder}/${key}${SUFFIX}`);
  }

  /** All records, in no order that means something. */
  list(): AutotuneRecord[] {
    try {
      const names = [...Deno.readDirSync(this.folder)].map(({ name }) => name);
      return names.filter((name) => name.endsWith(SUFFIX)).sort()
        .flatMap((name) => this.#parse(name) ?? []);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return [];
      throw error;
    }
  }

  #parse(name: string): AutotuneRecord | undefined {
    try {
      const found = JSON.parse(Deno.readTextFileSync(`${this.folder}/${name}`));
      return OUTCOMES.includes(found?.outcome) ? found as AutotuneRecord : undefined;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound || error instanceof SyntaxError) return undefined;
      throw error;
    }
  }
}

/** Records of this machine. */
export function autotuneRecords(): AutotuneRecords {
  return new AutotuneRecords(`${cacheFolder((name) => Deno.env.get(name))}/autotune`);
}

/** For `doctor`: benchmarks that disagreed or did not end; empty without any. */
export function describeFailures(records: readonly AutotuneRecord[]): string {
  const failed = records.filter(({ outcome }) => outcome === "wrong" || outcome === "began");
  const words = { wrong: "disagreed", began: "did not end" } as Record<Outcome, string>;
  return failed.map(({ device, shape, outcome }) =>
    `attention on warpgroups ${words[outcome]} on ${device} (${shape}) and is not used`
  ).join("; ");
}
