/**
 * Curves as an SVG file, drawn by Vega-Lite.
 *
 * Takes the series of a text chart and a title; returns one SVG document that needs nothing from
 * elsewhere. Series differ by dash as well as by colour, and the colours are Okabe and Ito's, which
 * colour-blind readers can tell apart. Vega is loaded only when called, since that takes a third of
 * a second.
 */
import type { TopLevelSpec } from "vega-lite";
import type { Series } from "./chart.ts";

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

/** Okabe and Ito (2008) without yellow, which fades on white. */
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
const DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 4], [1, 3]];
/** Series with more points than this have no dots, which would hide the line. */
const MOST_DOTS = 30;

/** Draws the series as an SVG document. */
export async function renderSvgChart(
  series: readonly Series[],
  options: SvgChartOptions,
): Promise<string> {
  const [vega, { compile }] = await Promise.all([import("vega"), import("vega-lite")]);
  const { spec } = compile(chartSpec(series, options));
  const view = new vega.View(vega.parse(spec), { renderer: "none", logLevel: vega.Error });
  try {
    return await view.toSVG();
  } finally {
    view.finalize();
  }
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

function chartSpec(series: readonly Series[], options: SvgChartOptions): TopLevelSpec {
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
    legend: {
      title: null,
      symbolType: "stroke",
      symbolSize: 900,
      symbolOpacity: 1,
      labelLimit: 400,
    },
  });
  const spec = {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    title,
    width,
    height,
    background: "white",
    padding: 12,
    data: { values: pointRows(series, options) },
    encoding: {
      x: {
        field: "x",
        type: "quantitative",
        title: xLabel,
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
    config: LOOK,
  };
  // The type is a union of hundreds of shapes; TypeScript widens the strings of a variable.
  return spec as TopLevelSpec;
}

const LOOK = {
  font: "sans-serif",
  axis: {
    gridColor: "#e5e5e5",
    labelFontSize: 12,
    titleFontSize: 13,
    titleFontWeight: "normal",
  },
  legend: { labelFontSize: 12 },
  title: { fontSize: 15, anchor: "start" },
  view: { stroke: null },
};
