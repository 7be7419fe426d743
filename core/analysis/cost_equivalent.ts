/**
 * What a larger dense model with the loss of a ParScale model would cost: the paper's "22x less
 * memory increase and 6x less latency increase".
 *
 *   ratio = (equivalent − base) / (parallel − base)
 *
 * All three are means over workloads. The equivalent lies between two dense models, at a share t of
 * the way. `observed` takes t from the losses the paper measured, as the paper does; `law` from the
 * count N (k ln P + 1). Costs are then interpolated geometrically or linearly. The paper does not
 * say which; rounding the one and cutting off the other both print its numbers.
 */
import { DataError } from "../base/errors.ts";
import { type Cost, type CostShape, countShape, type Workload } from "./cost.ts";
import { memberOf, PAPER_FAMILY, type Rung, widened } from "./cost_family.ts";
import { equivalentParameters, type Law } from "./law.ts";

/** How models of equal loss are found. */
export type Match = "observed" | "law";

/** How costs between two models are found. */
export type Interpolation = "geometric" | "linear";

/** Memory and latency of one workload. */
export type CostFunction = (shape: CostShape, work: Workload) => Cost;

/** Means over workloads. */
export interface MeanCost {
  readonly memoryBytes: number;
  readonly latencyS: number;
}

/** What is compared. */
export interface EquivalentOptions {
  readonly base: CostShape;
  readonly streams: number;
  readonly prefixTokens: number;
  /** Batch and lengths to average over. */
  readonly workloads: readonly Pick<Workload, "batch" | "input" | "output">[];
  readonly match: Match;
  readonly interpolation: Interpolation;
  readonly law: Law;
}

/** The place of a model of equal loss, and what all three cost. */
export interface Equivalent {
  /** Names of the dense models it lies between. */
  readonly lower: string;
  readonly upper: string;
  /** From 0 at the lower to 1 at the upper. */
  readonly t: number;
  /** The observed loss; absent when the law matches. */
  readonly loss: number | undefined;
  /** The law's count of parameters without embeddings; absent when losses match. */
  readonly params: number | undefined;
  readonly base: MeanCost;
  readonly parallel: MeanCost;
  readonly equivalent: MeanCost;
  readonly memoryRatio: number;
  readonly latencyRatio: number;
}

interface Place extends Pick<Equivalent, "t" | "loss" | "params"> {
  readonly lower: Rung;
  readonly upper: Rung;
}

/**
 * Compares parallel scaling with parameter scaling.
 * @throws {DataError} when no dense model of that loss is known
 */
export function compareWithParameters(options: EquivalentOptions, cost: CostFunction): Equivalent {
  const place = options.match === "observed" ? placeByLoss(options) : placeByLaw(options);
  const mean = (shape: CostShape, streams: number) => meanCost(options, shape, streams, cost);
  const base = mean(options.base, 1);
  const parallel = mean(options.base, options.streams);
  const [lower, upper] = [mean(place.lower.shape, 1), mean(place.upper.shape, 1)];
  const between = options.interpolation === "linear"
    ? (a: number, b: number) => a + place.t * (b - a)
    : (a: number, b: number) => a ** (1 - place.t) * b ** place.t;
  const equivalent = {
    memoryBytes: between(lower.memoryBytes, upper.memoryBytes),
    latencyS: between(lower.latencyS, upper.latencyS),
  };
  const ratio = (key: keyof MeanCost) =>
    (equivalent[key] - base[key]) / (parallel[key] - base[key]);
  return {
    ...place,
    lower: place.lower.name,
    upper: place.upper.name,
    base,
    parallel,
    equivalent,
    memoryRatio: ratio("memoryBytes"),
    latencyRatio: ratio("latencyS"),
  };
}

/** The mean over all workloads. */
export function meanCost(
  { prefixTokens, workloads }: Pick<EquivalentOptions, "prefixTokens" | "workloads">,
  shape: CostShape,
  streams: number,
  cost: CostFunction,
): MeanCost {
  let memoryBytes = 0, latencyS = 0;
  for (const work of workloads) {
    const one = cost(shape, { ...work, streams, prefixTokens });
    memoryBytes += one.memoryBytes / workloads.length;
    latencyS += one.latencyS / workloads.length;
  }
  return { memoryBytes, latencyS };
}

function placeByLoss({ base, streams }: EquivalentOptions): Place {
  const member = memberOf(base);
  if (member === undefined) {
    throw new DataError(
      "observed losses exist only for models of the paper: " +
        PAPER_FAMILY.map(({ name }) => name).join(", "),
      { hints: ["pass `--match law`, which needs no observation"] },
    );
  }
  const loss = member.losses.get(streams);
  if (loss === undefined) {
    throw new DataError(
      `the paper has no observed loss for ${streams} streams, only for ` +
        [...member.losses.keys()].join(", "),
      { hints: ["pass `--match law`, which needs no observation"] },
    );
  }
  const dense = (rung: Rung) => rung.losses.get(1)!;
  const above = PAPER_FAMILY.findIndex((rung) => dense(rung) <= loss);
  if (above < 1) {
    throw new DataError(
      `no dense model matches ${member.name} with ${streams} streams: its loss is ${loss}, that of ` +
        `the largest dense model is ${dense(PAPER_FAMILY.at(-1)!)}`,
      { hints: ["pass `--match law`, which also knows larger models"] },
    );
  }
  const [lower, upper] = [PAPER_FAMILY[above - 1]!, PAPER_FAMILY[above]!];
  const t = (dense(lower) - loss) / (dense(lower) - dense(upper));
  return { lower, upper, t, loss, params: undefined };
}

function placeByLaw(options: EquivalentOptions): Place {
  const { base, streams, prefixTokens, law, interpolation } = options;
  const own = countShape(base, streams, prefixTokens).nonEmbedding;
  const params = equivalentParameters(law, own, streams);
  const isFamily = memberOf(base) !== undefined && params <= PAPER_FAMILY.at(-1)!.n;
  const ladder = isFamily ? PAPER_FAMILY : widened(base);
  const above = ladder.findIndex(({ n }) => n >= params);
  if (above < 1) {
    throw new DataError(
      `the dense equivalent of ${streams} streams is too large: ${params.toExponential(3)} ` +
        `parameters, expected at most ${ladder.at(-1)!.n.toExponential(3)}`,
      { hints: ["compare fewer streams"] },
    );
  }
  const [lower, upper] = [ladder[above - 1]!, ladder[above]!];
  const t = interpolation === "linear"
    ? (params - lower.n) / (upper.n - lower.n)
    : Math.log(params / lower.n) / Math.log(upper.n / lower.n);
  return { lower, upper, t, loss: undefined, params };
}
