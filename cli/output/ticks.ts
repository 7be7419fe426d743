/**
 * Axes of a text chart: where values lie, and which of them get a number: round ones (1, 2 or 5 times a
 * power of ten) with just the digits that tell them apart.
 */

/** A number on an axis. */
interface Tick {
  /** From 0 at the start of the axis to 1 at its end. */
  readonly at: number;
  readonly text: string;
}

/** One axis. */
export interface Axis {
  /** Place of a value, from 0 to 1. */
  readonly place: (value: number) => number;
  readonly ticks: readonly Tick[];
}

type Range = readonly [low: number, high: number];

/** A range that holds more than one value. */
function extended([low, high]: Range): Range {
  if (low < high) return [low, high];
  const margin = Math.abs(low) * 0.1 || 1;
  return [low - margin, high + margin];
}

/** The smallest of 1, 2, 5 times a power of ten not below `atLeast`. */
function roundStep(atLeast: number): number {
  const power = 10 ** Math.floor(Math.log10(atLeast));
  const factor = [1, 2, 5].find((factor) => factor * power >= atLeast * (1 - 1e-9)) ?? 10;
  return factor * power;
}

/** Numbers of equal distance with as many digits as the distance needs. */
function tickText(value: number, step: number): string {
  if (Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-4)) {
    return String(Number(value.toPrecision(6)));
  }
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return value.toFixed(digits);
}

/** Multiples of the step from low to high; counted, because sums of fractions drift. */
function multiples([low, high]: Range, step: number): number[] {
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/** An axis of equal distances; `rounded` ends at ticks, `exact` at the data. */
export function linearAxis(range: Range, ticks: number, ends: "rounded" | "exact"): Axis {
  let [low, high] = extended(range);
  const step = roundStep((high - low) / ticks);
  if (ends === "rounded") {
    low = Math.floor(low / step + 1e-9) * step;
    high = Math.ceil(high / step - 1e-9) * step;
  }
  const place = (value: number) => (value - low) / (high - low);
  return {
    place,
    ticks: multiples([low, high], step).map((value) => ({
      at: Math.min(1, Math.max(0, place(value))),
      text: tickText(value, step),
    })),
  };
}

/** An axis of equal ratios; the range is above 0. */
export function logAxis(range: Range, ticks: number): Axis {
  const [low, high] = range[0] < range[1] ? range : [range[0] / 2, range[0] * 2];
  const place = (value: number) => Math.log(value / low) / Math.log(high / low);
  const decades = multiples([Math.log10(low) - 1, Math.log10(high)], 1);
  const inside = (value: number) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9);
  // From coarse to fine: powers of ten, then 1-2-5; less than a decade may need equal distances.
  const candidates = [[1], [1, 2, 5]].map((factors) =>
    decades.flatMap((decade) => factors.map((factor) => factor * 10 ** decade)).filter(inside)
  );
  const step = roundStep((high - low) / ticks);
  const chosen =
    candidates.findLast((values) => values.length >= 3 && values.length <= 2 * ticks) ??
      multiples([low, high], step).filter(inside);
  return {
    place,
    ticks: chosen.map((value) => ({
      at: Math.min(1, Math.max(0, place(value))),
      text: tickText(value, candidates.some((values) => values.includes(value)) ? value : step),
    })),
  };
}
