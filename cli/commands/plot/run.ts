/** Carries out `parscale plot`: a chart with a table, rows with all points, an SVG file. */
import type { Context } from "../../framework/context.ts";
import { renderChart, type Series } from "../../output/chart.ts";
import { Report } from "../../output/report.ts";
import type { Column } from "../../output/table.ts";
import { checkFigure, openFigure } from "../../output/sink.ts";
import { renderSvgChart } from "../../output/vega.ts";
import {
  type Measure,
  type PlotValues,
  type Point,
  readLosses,
  type RunLosses,
  type StepLoss,
} from "./losses.ts";

/** Points of a curve; more than the figure has pixels would not show. */
const MOST_SVG_POINTS = 1500;
const SVG_WIDTH = 560, SVG_HEIGHT = 360;

/** Runs the command. */
export async function run(values: PlotValues, ctx: Context): Promise<void> {
  const { io, invocation } = ctx;
  checkFigure(values.svg, invocation);
  const runs = await readLosses(values, io);
  ctx.begin();
  const curves = curvesOf(runs, values);
  using report = new Report(io, invocation, {
    schema: "parscale.plot/1",
    columns: columnsOf(curves, values),
  });
  using figure = openFigure(io, values.svg, invocation.overwrite);
  const series = seriesOf(curves);
  figure?.write(await drawFigure(curves, values));
  const chart = renderChart(series, {
    width: io.width(),
    height: values.height,
    color: invocation.out === undefined && io.isColored("stdout"),
    ...axesOf(values),
  });
  report.raw(`${chart}\n`);
  for (const curve of curves) report.row(rowOf(curve, values));
  await report.finish();
}

/** Columns of the table; those that say nothing of these curves are left out. */
function columnsOf(curves: readonly Curve[], { ema }: PlotValues): Column[] {
  const smoothed = curves.some(({ measure }) => measure === "train") && ema > 0;
  return [
    { key: "label" },
    { key: "measure" },
    { key: "last_x" },
    { key: "last_loss" },
    ...(smoothed ? [{ key: "last_smoothed", title: `smoothed ${ema}` }] : []),
    { key: "lowest_loss" },
    { key: "lowest_x" },
  ];
}

/** The figures of the table, and all points for programs. */
function rowOf({ label, measure, lastLoss, points }: Curve, { x, ema }: PlotValues) {
  const last = points.at(-1);
  const lowest = points.reduce((best, point) => point[1] < best[1] ? point : best, last!);
  return {
    label,
    measure,
    unit: x,
    last_x: last?.[0] ?? null,
    last_loss: lastLoss,
    ema: measure === "train" ? ema : null,
    last_smoothed: measure === "train" ? last?.[1] ?? null : null,
    lowest_loss: lowest?.[1] ?? null,
    lowest_x: lowest?.[0] ?? null,
    x: points.map(([at]) => at),
    loss: points.map(([, loss]) => loss),
  };
}

function axesOf({ x, measure, ema, log }: PlotValues) {
  const smoothed = measure.includes("train") && ema > 0;
  // A terminal of 40 columns shows the whole label.
  const yLabel = smoothed ? `loss, smoothed ${ema} (nats per token)` : "loss (nats per token)";
  return { xLabel: x, yLabel, logX: log.includes("x"), logY: log.includes("y") };
}

async function drawFigure(curves: readonly Curve[], values: PlotValues): Promise<string> {
  const drawn = curves.map(({ points, ...rest }) => ({
    ...rest,
    points: thinned(points, MOST_SVG_POINTS),
  }));
  return await renderSvgChart(seriesOf(drawn), {
    ...axesOf(values),
    xLabel: `training (${values.x})`,
    width: SVG_WIDTH,
    height: SVG_HEIGHT,
    title: values.title ?? `Loss over ${values.x}`,
  });
}

/** Curve of one run. */
interface Curve {
  readonly label: string;
  readonly measure: Measure;
  /** The last loss as it was, not smoothed. */
  readonly lastLoss: number;
  /** Points of the curve: training loss smoothed, validation loss as it is. */
  readonly points: readonly Point[];
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

/** Curves in the order of the runs, training before validation. */
export function curvesOf(
  runs: readonly RunLosses[],
  { measure, ema }: { readonly measure: readonly Measure[]; readonly ema: number },
): Curve[] {
  return runs.flatMap(({ label, points }) =>
    (["train", "eval"] as const).filter((kind) => measure.includes(kind)).flatMap((kind) => {
      const losses = points[kind], last = losses.at(-1);
      if (last === undefined) return [];
      const drawn = kind === "train" ? smooth(losses, ema) : losses.map(([x, y]): Point => [x, y]);
      return [{ label, measure: kind, lastLoss: last[1], points: drawn }];
    })
  );
}

/** Curves as a chart takes them: one colour per label, validation dashed. */
export function seriesOf(curves: readonly Curve[]): Series[] {
  const labels = [...new Set(curves.map(({ label }) => label))];
  const both = new Set(curves.map(({ measure }) => measure)).size > 1;
  return curves.map(({ label, measure, points }) => ({
    label: both ? `${label}, ${measure === "train" ? "training" : "validation"}` : label,
    points,
    style: { color: labels.indexOf(label), dash: both && measure === "eval" ? 1 : 0 },
  }));
}

/** At most `most` points of a curve, the last one among them. */
export function thinned<T>(points: readonly T[], most: number): readonly T[] {
  const step = Math.ceil(points.length / most);
  return points.filter((_, i) => i % step === 0 || i === points.length - 1);
}
