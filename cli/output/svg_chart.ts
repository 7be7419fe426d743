/**
 * Curves as an SVG file, drawn by Vega-Lite.
 *
 * Takes the series of a text chart and a title; returns one SVG document that needs nothing from
 * elsewhere. Series differ by dash as well as by colour.
 */
import type { Series } from "./chart.ts";
import { COLORS, DASHES, FRAME, NEAR_LEGEND, renderSvg } from "./vega.ts";

/** How an SVG chart looks. */
export interface SvgChartOptions {
  readonly title: string;
  /** Pixels of the plot, without axes, title and legend. */
  readonly width: number;
  readonly height: number;
  readonly xLabel: string;
  readonly yLabel: string;
  /** A logarithmic x axis; points at or below 0 are left out. */
  readonly logX?: boolean;
  /** A logarithmic y axis; points at or below 0 are left out. */
  readonly logY?: boolean;
}

/** Series with more points than this have no dots, which would hide the line. */
const MOST_DOTS = 30;

/** Draws the series as an SVG document. */
export async function renderSvgChart(
  series: readonly Series[],
  options: SvgChartOptions,
): Promise<string> {
  return await renderSvg(chartSpec(series, options));
}

/** One row of Vega's table. */
interface PointRow {
  readonly series: string;
  readonly segment: number;
  readonly x: number;
  readonly y: number;
}

/** Points as a table. Vega joins all points of a group, so each gap starts a new group. */
function pointRows(series: readonly Series[], { logX, logY }: SvgChartOptions): PointRow[] {
  return series.flatMap(({ label, points }) => {
    let segment = 0;
    const rows: PointRow[] = [];
    for (const [x, y] of points) {
      const drawn = Number.isFinite(x) && Number.isFinite(y) && !(logX && x <= 0) &&
        !(logY && y <= 0);
      if (drawn) rows.push({ series: label, segment, x, y });
      else segment++;
    }
    return rows;
  });
}

/** Ranges as a table, where a series has one. */
function bandRows(series: readonly Series[], { logX, logY }: SvgChartOptions) {
  return series.flatMap(({ label, band = [] }) =>
    band.filter(([x, low]) => !(logX && x <= 0) && !(logY && low <= 0))
      .map(([x, low, high]) => ({ series: label, x, low, high }))
  );
}

function chartSpec(series: readonly Series[], options: SvgChartOptions) {
  const { title, width, height, xLabel, yLabel, logX = false, logY = false } = options;
  const domain = series.map(({ label }) => label);
  const bands = bandRows(series, options);
  const few = series.filter(({ points }) => points.length <= MOST_DOTS);
  // Colour and dash share one legend, which Vega makes when both say the same about it.
  const bySeries = (range: readonly unknown[], kind: "color" | "dash") => ({
    field: "series",
    type: "nominal" as const,
    sort: null,
    scale: {
      domain,
      range: series.map(({ style }, i) => range[(style?.[kind] ?? i) % range.length]),
    },
    legend: { ...NEAR_LEGEND, symbolType: "stroke", symbolSize: 900, symbolOpacity: 1 },
  });
  return {
    ...FRAME,
    title,
    width,
    height,
    data: { values: pointRows(series, options) },
    encoding: {
      x: {
        field: "x",
        type: "quantitative",
        title: xLabel,
        axis: { labelExpr: "replace(format(datum.value, '~s'), 'G', 'B')" },
        scale: logX ? { type: "log", nice: false } : { zero: false, nice: false },
      },
      y: {
        field: "y",
        type: "quantitative",
        title: yLabel,
        scale: logY ? { type: "log", nice: false } : { zero: false },
      },
      color: bySeries(COLORS, "color"),
      detail: { field: "segment", type: "nominal" },
    },
    layer: [
      ...(bands.length === 0 ? [] : [{
        data: { values: bands },
        mark: { type: "area", opacity: 0.2 },
        encoding: {
          y: { field: "low", type: "quantitative" },
          y2: { field: "high" },
          detail: { field: "series", type: "nominal" },
        },
      }]),
      {
        mark: { type: "line", strokeWidth: 2 },
        encoding: { strokeDash: bySeries(DASHES, "dash") },
      },
      {
        transform: [{ filter: { field: "series", oneOf: few.map(({ label }) => label) } }],
        mark: { type: "point", filled: true, size: 50, opacity: 1 },
      },
    ],
  };
}
