/**
 * Peak learning rates of a run, with defaults for ParScale parameters that are trained alone.
 *
 * The paper's 3e-4 is a rate for all parameters. Over a frozen backbone it leaves most of the gain of a
 * short run on the table: a step of Adam moves a parameter by about its rate, and prefixes are as large as
 * the keys of tokens. Where they start from text they are that large already; random ones, drawn with a
 * deviation of 0.02, have further to go. Measured in docs/training.md, "Learning rates".
 */
import { isParScale } from "../model/config.ts";
import { elementCount, parameterSpecs } from "../model/parameters.ts";
import type { ModelSource } from "./model_source.ts";
import type { RateKind } from "./trainable.ts";

/** Rate of all parameters; the paper's. */
export const PAPER_RATE = 3e-4;
/** Rates over a frozen backbone: of prefixes by their start, of what is added to weights, of the aggregator. */
const PREFIX_RATES = { text: 0.02, normal: 0.1 } as const;
const WEIGHT_RATE = 1e-3, AGGREGATOR_RATE = 1e-4;

/** Rates that are given; `backbone` stands for the others too. */
export type GivenRates = Readonly<Record<RateKind, number | undefined>>;

/** Rates of a run. */
export interface PeakRates {
  readonly rates: Readonly<Record<RateKind, number>>;
  /** Why the defaults are what they are; undefined where none was needed. */
  readonly reason: string | undefined;
}

/** Settles the rates of a model. */
export function peakRates(given: GivenRates, source: ModelSource): PeakRates {
  const { backbone, prefix = backbone, aggregator = backbone } = given;
  const defaults = defaultRates(source);
  const rates = {
    backbone: backbone ?? PAPER_RATE,
    prefix: prefix ?? defaults.prefix,
    aggregator: aggregator ?? defaults.aggregator,
  };
  const isOurs = prefix === undefined || aggregator === undefined;
  return { rates, reason: isOurs ? reasonOf(rates, source) : undefined };
}

/** Rates of ParScale parameters where none is given. */
export function defaultRates(
  { params, prefixStart, config: { loraRank, bitfit }, substitute }: ModelSource,
): Readonly<Record<Exclude<RateKind, "backbone">, number>> {
  // The MLP of --reparameterize is a network as others are.
  if (params === "all" || substitute) return { prefix: PAPER_RATE, aggregator: PAPER_RATE };
  const addsToWeights = loraRank > 0 || bitfit || prefixStart === undefined;
  const prefix = addsToWeights ? WEIGHT_RATE : PREFIX_RATES[prefixStart];
  return { prefix, aggregator: AGGREGATOR_RATE };
}

function reasonOf(
  { prefix, aggregator }: PeakRates["rates"],
  { params, prefixStart, config, substitute }: ModelSource,
): string | undefined {
  if (params === "all" || substitute || !isParScale(config)) return undefined;
  const start = { text: "start at the keys and values of a text", normal: "start near zero" };
  const count = parameterSpecs(config).filter(({ introduced }) => !introduced)
    .reduce((sum, { shape }) => sum + elementCount(shape), 0);
  const parts = [
    prefixStart === undefined ? `${prefix}` : `prefixes ${prefix}, which ${start[prefixStart]}`,
    ...(config.streams > 1 ? [`aggregator ${aggregator}`] : []),
  ];
  return `${parts.join("; ")}; over a frozen backbone of ${Math.round(count / 1e6)}M parameters ` +
    "(defaults measured on 135M and 0.5B)";
}
