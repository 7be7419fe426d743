/** Carries out `parscale plot`: a chart with a table, rows with all points, an SVG file. */
import { UsageError } from "../../../core/base/errors.ts";
import type { Context } from "../../framework/context.ts";
import { renderChart, type Series } from "../../output/chart.ts";
import { Report } from "../../output/report.ts";
import type { Column } from "../../output/table.ts";
import { openFigure } from "../../output/sink.ts";
import { renderSvgChart } from "../../output/vega.ts";
import {
  type Measure,
  planPlot,
  type PlotPlan,
  type PlotValues,
  type Point,
  type RunLosses,
  type StepLoss,
} from "./plan.ts";

/** Points of a curve; more than the figure has pixels would not show. */
const MOST_SVG_POINTS = 1500;
const SVG_WIDTH = 560, SVG_HEIGHT = 360;

/** Runs the command. */
export async function run(values: PlotValues, ctx: Context): Promise<void> {
  const { io, invocation } = ctx;
  const plan = await planPlot(values, io, invocation);
  ctx.begin();
  const curves = curvesOf(plan.runs, plan);
  using report = new Report(io, invocation, {
    schema: "parscale.plot/1",
    columns: columnsOf(curves, plan),
  });
  using figure = openFigure(io, plan.svg, invocation.overwrite);
  const series = seriesOf(curves);
  figure?.write(await drawFigure(curves, plan));
  const chart = renderChart(series, {
    width: io.width(),
    height: plan.height,
    color: invocation.out === undefined && io.isColored("stdout"),
    ...axesOf(plan),
  });
  report.raw(`${chart}\n`);
  for (const curve of curves) report.row(rowOf(curve, plan));
  await report.finish();
}

/** Columns of the table; those that say nothing of these curves are left out. */
function columnsOf(curves: readonly Curve[], { ema }: PlotPlan): Column[] {
  const smoothed = curves.some(({ measure }) => measure === "train") && ema > 0;
  const averaged = curves.some(({ runs }) => runs > 1);
  return [
    { key: "label" },
    { key: "measure" },
    ...(averaged ? [{ key: "runs" }] : []),
    { key: "last_x" },
    { key: "last_loss" },
    ...(smoothed ? [{ key: "last_smoothed", title: `smoothed ${ema}` }] : []),
    ...(averaged ? [{ key: "spread" }] : []),
    { key: "lowest_loss" },
    { key: "lowest_x" },
  ];
}

/** The figures of the table, and all points for programs. */
function rowOf({ label, measure, runs, lastLoss, points, band }: Curve, { x, ema }: PlotPlan) {
  const last = points.at(-1);
  const lowest = points.reduce((best, point) => point[1] < best[1] ? point : best, last!);
  const end = band?.at(-1);
  return {
    label,
    measure,
    runs,
    unit: x,
    last_x: last?.[0] ?? null,
    last_loss: lastLoss,
    ema: measure === "train" ? ema : null,
    last_smoothed: measure === "train" ? last?.[1] ?? null : null,
    spread: end ? end[2] - end[1] : null,
    lowest_loss: lowest?.[1] ?? null,
    lowest_x: lowest?.[0] ?? null,
    x: points.map(([at]) => at),
    loss: points.map(([, loss]) => loss),
    low: band?.map(([, low]) => low) ?? null,
    high: band?.map(([, , high]) => high) ?? null,
  };
}

function axesOf({ x, measure, ema, logX, logY }: PlotPlan) {
  const smoothed = measure.includes("train") && ema > 0;
  // A terminal of 40 columns shows the whole label.
  const yLabel = smoothed ? `loss, smoothed ${ema} (nats per token)` : "loss (nats per token)";
  return { xLabel: x, yLabel, logX, logY };
}

async function drawFigure(curves: readonly Curve[], plan: PlotPlan): Promise<string> {
  const drawn = curves.map(({ points, band, ...rest }) => ({
    ...rest,
    points: thinned(points, MOST_SVG_POINTS),
    ...(band && { band: thinned(band, MOST_SVG_POINTS) }),
  }));
  return await renderSvgChart(seriesOf(drawn), {
    ...axesOf(plan),
    xLabel: `training (${plan.x})`,
    width: SVG_WIDTH,
    height: SVG_HEIGHT,
    title: plan.title ?? `Loss over ${plan.x}`,
  });
}

/** One curve: the mean of the runs of a label, with their range. */
interface Curve {
  readonly label: string;
  readonly measure: Measure;
  readonly runs: number;
  /** Mean of the last losses as they were, not smoothed. */
  readonly lastLoss: number;
  /** Points of the curve: training loss smoothed, validation loss as it is. */
  readonly points: readonly Point[];
  /** Lowest and highest run at each point; absent for a single run. */
  readonly band?: readonly (readonly [x: number, low: number, high: number])[];
}

/** Smooths losses as `loss_ema` of a run is. */
export function smooth(points: readonly StepLoss[], decay: number): Point[] {
  let sum = 0, weight = 0;
  return points.map(([x, loss, tokens = 1]) => {
    sum = decay * sum + tokens * loss;
    weight = decay * weight + tokens;
    return [x, sum / weight];
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
        .map(({ points }) => points[kind])
        .filter((points) => points.length > 0);
      if (all.length === 0) return [];
      const lastLoss = all.reduce((sum, points) => sum + points.at(-1)![1], 0) / all.length;
      const drawn = all.map((points) =>
        kind === "train" ? smooth(points, ema) : points.map(([x, loss]): Point => [x, loss])
      );
      return [{ label, measure: kind, runs: all.length, lastLoss, ...joined(label, drawn) }];
    })
  );
}

/** Mean and range at the points of the first run, over the part of the axis that all runs cover. */
function joined(
  label: string,
  runs: readonly (readonly Point[])[],
): Pick<Curve, "points" | "band"> {
  const [first] = runs;
  if (runs.length === 1) return { points: first! };
  const from = Math.max(...runs.map((points) => points[0]![0]));
  const to = Math.min(...runs.map((points) => points.at(-1)![0]));
  const xs = first!.map(([x]) => x).filter((x) => x >= from && x <= to);
  if (xs.length === 0) {
    throw new UsageError(`the runs labelled "${label}" have no step in common`, {
      hints: ["a label of its own for each run draws them apart"],
    });
  }
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
