/** What `parscale plot` does: a chart with a table, rows with all points, an SVG file. */
import { UsageError } from "../../../core/base/errors.ts";
import { renderChart } from "../../output/chart.ts";
import { PLAIN } from "../../output/color.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { openFigure } from "../../output/sink.ts";
import { type Curve, curvesOf, seriesOf, thinned } from "./curves.ts";
import { readRuns } from "./read.ts";
import type { PlotValues } from "./flags.ts";

/** More points than pixels only make the file large. */
const MOST_SVG_POINTS = 1500;
const SVG_WIDTH = 640, SVG_HEIGHT = 400;

/** Runs the command. */
export async function run(values: PlotValues, io: Io, invocation: Invocation): Promise<void> {
  if (values.svg === "-") {
    throw new UsageError("`--svg` needs a file name", { hints: ["for instance --svg loss.svg"] });
  }
  if (values.title !== undefined && values.svg === undefined) {
    throw new UsageError("`--title` needs `--svg`");
  }
  using report = openReport(io, invocation, { schema: "parscale.plot/1", columns: COLUMNS });
  using figure = openFigure(io, values.svg, invocation.overwrite);
  const curves = curvesOf(await readRuns(values, io), values);
  if (curves.length === 0) {
    throw new UsageError("`--measure eval` needs runs with a validation loss", {
      hints: ["train with --eval-data or --eval-split, or plot --measure train"],
    });
  }
  const series = seriesOf(curves);
  figure?.write(await drawFigure(curves, values));
  report.remark(renderChart(series, {
    width: io.width(),
    height: values.height,
    color: invocation.out === undefined && io.palette("stdout") !== PLAIN,
    ...axesOf(values),
  }));
  for (const curve of curves) report.row(rowOf(curve, values));
  await report.finish();
}

const COLUMNS = [
  "label",
  "measure",
  "runs",
  "last_x",
  "last_loss",
  "spread",
  "lowest_loss",
  "lowest_x",
]
  .map((key) => ({ key }));

/** The figures of the table, and all points for programs. */
function rowOf({ label, measure, runs, points, band }: Curve, { x }: PlotValues) {
  const last = points.at(-1);
  const lowest = points.reduce((best, point) => point[1] < best[1] ? point : best, last!);
  const end = band?.at(-1);
  return {
    label,
    measure,
    runs,
    unit: x,
    last_x: last?.[0] ?? null,
    last_loss: last?.[1] ?? null,
    spread: end ? end[2] - end[1] : null,
    lowest_loss: lowest?.[1] ?? null,
    lowest_x: lowest?.[0] ?? null,
    x: points.map(([at]) => at),
    loss: points.map(([, loss]) => loss),
    low: band?.map(([, low]) => low) ?? null,
    high: band?.map(([, , high]) => high) ?? null,
  };
}

function axesOf({ x, log }: PlotValues) {
  return { xLabel: x, yLabel: "loss", logX: log.includes("x"), logY: log.includes("y") };
}

async function drawFigure(curves: readonly Curve[], values: PlotValues): Promise<string> {
  const { renderSvgChart } = await import("../../output/vega.ts");
  const drawn = curves.map(({ points, band, ...rest }) => ({
    ...rest,
    points: thinned(points, MOST_SVG_POINTS),
    ...(band && { band: thinned(band, MOST_SVG_POINTS) }),
  }));
  return await renderSvgChart(seriesOf(drawn), {
    ...axesOf(values),
    width: SVG_WIDTH,
    height: SVG_HEIGHT,
    title: values.title ?? "",
  });
}
