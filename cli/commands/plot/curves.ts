/** From the losses of runs to the curves of a figure: smoothing, and one curve per label. */
import type { Series } from "../../output/chart.ts";
import type { Measure, Point, RunLosses } from "./read.ts";

/** One curve: the mean of the runs of a label, with their range. */
export interface Curve {
  readonly label: string;
  readonly measure: Measure;
  readonly runs: number;
  readonly points: readonly Point[];
  /** Lowest and highest run at each point; absent for a single run. */
  readonly band?: readonly (readonly [x: number, low: number, high: number])[];
}

/** v ← β v + (1 − β) loss, beginning with the first loss, as `loss_ema` of a run. */
export function smooth(points: readonly Point[], beta: number): Point[] {
  let average: number | undefined;
  return points.map(([x, loss]) => {
    average = average === undefined ? loss : beta * average + (1 - beta) * loss;
    return [x, average];
  });
}

/** Curves in the order of their first run, training before validation. */
export function curvesOf(
  runs: readonly RunLosses[],
  { measure, ema }: { readonly measure: readonly Measure[]; readonly ema: number },
): Curve[] {
  const labels = [...new Set(runs.map(({ label }) => label))];
  return labels.flatMap((label) =>
    (["train", "eval"] as const).filter((kind) => measure.includes(kind)).flatMap((kind) => {
      const all = runs.filter((run) => run.label === label)
        .map(({ points }) => kind === "train" ? smooth(points.train, ema) : points.eval)
        .filter((points) => points.length > 0);
      return all.length === 0 ? [] : [{ label, measure: kind, runs: all.length, ...joined(all) }];
    })
  );
}

/** Mean and range at the points of the first run, over the part of the axis that all runs cover. */
function joined(runs: readonly (readonly Point[])[]): Pick<Curve, "points" | "band"> {
  const [first] = runs;
  if (runs.length === 1) return { points: first! };
  const from = Math.max(...runs.map((points) => points[0]![0]));
  const to = Math.min(...runs.map((points) => points.at(-1)![0]));
  const xs = first!.map(([x]) => x).filter((x) => x >= from && x <= to);
  const readers = runs.map(interpolator);
  const rows = xs.map((x) => ({ x, losses: readers.map((read) => read(x)) }));
  return {
    points: rows.map(({ x, losses }) => [x, losses.reduce((sum, y) => sum + y, 0) / losses.length]),
    band: rows.map(({ x, losses }) => [x, Math.min(...losses), Math.max(...losses)]),
  };
}

/** Loss between points on a straight line; asked for growing x. */
function interpolator(points: readonly Point[]): (x: number) => number {
  let i = 0;
  return (x) => {
    while (i + 1 < points.length && points[i + 1]![0] <= x) i++;
    const [x0, y0] = points[i]!, [x1, y1] = points[i + 1] ?? points[i]!;
    return x1 === x0 ? y0 : y0 + (y1 - y0) * (x - x0) / (x1 - x0);
  };
}

/** Curves as a chart takes them: one colour per label, validation dashed. */
export function seriesOf(curves: readonly Curve[]): Series[] {
  const labels = [...new Set(curves.map(({ label }) => label))];
  const both = new Set(curves.map(({ measure }) => measure)).size > 1;
  return curves.map(({ label, measure, points, band }) => ({
    label: both ? `${label}, ${measure === "train" ? "training" : "validation"}` : label,
    points,
    style: { color: labels.indexOf(label), dash: both && measure === "eval" ? 1 : 0 },
    ...(band && { band }),
  }));
}

/** At most `most` points of a curve, the last one among them. */
export function thinned<T>(points: readonly T[], most: number): readonly T[] {
  const step = Math.ceil(points.length / most);
  return points.filter((_, i) => i % step === 0 || i === points.length - 1);
}
