/**
 * SVG figures by Vega-Lite: palette, frame, renderer, and the chart of curves.
 *
 * Vega is loaded only when something is drawn, since that takes a third of a second.
 */
import type { TopLevelSpec } from "vega-lite";
import { type AxisOptions, isDrawn, type Series } from "./chart.ts";

/** Okabe and Ito (2008) without yellow, which fades on white; colour-blind readers tell them apart. */
export const COLORS = [
  "#0072B2",
  "#D55E00",
  "#009E73",
  "#CC79A7",
  "#E69F00",
  "#56B4E9",
  "#000000",
] as const;

/** Dashes that go with the colours, so that nothing rests on colour alone. */
export const DASHES: readonly (readonly number[])[] = [
  [1, 0],
  [6, 3],
  [2, 2],
  [8, 3, 2, 3],
  [12, 4],
  [4, 4],
  [1, 3],
];

/** Colours of text and lines on a light ground. */
const INK = "#1a1a1a", FAINT = "#5c5c5c", GRID = "#dddddd";

/** Colours on a dark ground, by those on a light one. */
const DARK: Readonly<Record<string, string>> = {
  [INK]: "#ececec",
  [FAINT]: "#a8a8a8",
  [GRID]: "#3d3d3d",
  "#0072B2": "#3D9BDC",
  "#000000": "#BBBBBB",
};

/** Style of a figure: it takes the width that there is, and the colours of its reader. */
const STYLE =
  ":root { color-scheme: light dark }\n.marks { max-width: 100%; height: auto }\n@media (prefers-color-scheme: dark) {\n" +
  Object.entries(DARK).map(([light, dark]) =>
    `.marks [fill="${light}"] { fill: ${dark} }\n.marks [stroke="${light}"] { stroke: ${dark} }\n`
  ).join("") + "}";

/** Margins, fonts and colours of every figure, on the ground of the page that shows it. */
export const FRAME = {
  $schema: "https://vega.github.io/schema/vega-lite/v6.json",
  background: null,
  padding: 12,
  config: {
    font: "sans-serif",
    axis: {
      domainColor: FAINT,
      gridColor: GRID,
      labelColor: INK,
      labelFontSize: 12,
      tickColor: FAINT,
      titleColor: INK,
      titleFontSize: 13,
      titleFontWeight: "normal",
    },
    title: {
      anchor: "start",
      color: INK,
      fontSize: 14,
      fontWeight: "normal",
      subtitleColor: FAINT,
      subtitleFontSize: 12,
    },
    legend: { labelColor: INK, labelFontSize: 12, labelLimit: 560 },
    text: { color: INK, fontSize: 12 },
    view: { stroke: null },
  },
} as const;

/** Legend below a plot of `width` pixels, where it covers no data and makes no figure wide. */
export function legendOf(labels: readonly string[], width: number) {
  const widest = 70 + 7 * Math.max(...labels.map((label) => label.length), 0);
  const columns = Math.max(1, Math.min(labels.length, Math.floor(width / widest)));
  return { title: null, orient: "bottom", columns, columnPadding: 20 } as const;
}

/** Colour, dash or mark of the series; Vega makes one legend where several say the same. */
export function seriesScale(domain: readonly string[], range: readonly unknown[], width: number) {
  return {
    field: "series",
    type: "nominal" as const,
    scale: { domain, range: domain.map((_, i) => range[i % range.length]) },
    legend: legendOf(domain, width),
  };
}

/** Draws a specification as one SVG document that needs nothing from elsewhere. */
export async function renderSvg(spec: object): Promise<string> {
  const [vega, { compile }] = await Promise.all([import("vega"), import("vega-lite")]);
  // The type is a union of hundreds of shapes; TypeScript takes the strings of a variable for any string.
  const compiled = compile(spec as TopLevelSpec).spec;
  const view = new vega.View(vega.parse(compiled), { renderer: "none", logLevel: vega.Error });
  try {
    const svg = await view.toSVG();
    return svg.replace(/(?<=^<svg[^>]*>)/, `<style>\n${STYLE}\n</style>`);
  } finally {
    view.finalize();
  }
}

/** Ticks of a logarithmic axis of parameters: 0.5B, 1B, 2B, 4B; of other ranges 1, 2 and 5. */
export function parameterTicks([low, high]: readonly [number, number]): number[] {
  const within = (values: readonly number[]) => values.filter((n) => n >= low && n <= high);
  const billions = within(Array.from({ length: 10 }, (_, i) => 2.5e8 * 2 ** i));
  if (billions.length >= 2) return billions;
  const decades = Array.from({ length: 13 }, (_, i) => 10 ** i);
  return within(decades.flatMap((ten) => [ten, 2 * ten, 5 * ten]));
}

/** `0.5B`, `250M`, `50k`, for the labels of such an axis; an expression of Vega. */
export const PARAMETER_LABEL = "datum.value >= 5e8 ? datum.value / 1e9 + 'B' : " +
  "datum.value >= 1e6 ? datum.value / 1e6 + 'M' : datum.value / 1e3 + 'k'";

/** Title, size and axes of an SVG chart. */
export interface SvgChartOptions extends AxisOptions {
  readonly title: string;
  /** Pixels of the plot, without axes, title and legend. */
  readonly width: number;
  readonly height: number;
}

/** Series with more points than this have no dots, which would hide the line. */
const MOST_DOTS = 30;

/** Draws the series of a terminal chart as an SVG document. */
export async function renderSvgChart(
  series: readonly Series[],
  options: SvgChartOptions,
): Promise<string> {
  return await renderSvg(chartSpec(series, options));
}

/** Points as a table. Vega joins all points of a group, so each gap starts a new group. */
function pointRows(series: readonly Series[], options: SvgChartOptions) {
  return series.flatMap(({ label, points }) => {
    let segment = 0;
    return points.flatMap(([x, y]) => {
      if (isDrawn(x, y, options)) return [{ series: label, segment, x, y }];
      segment++;
      return [];
    });
  });
}

function chartSpec(series: readonly Series[], options: SvgChartOptions) {
  const { title, width, height, xLabel, yLabel, logX, logY } = options;
  const domain = series.map(({ label }) => label);
  const few = series.filter(({ points }) => points.length <= MOST_DOTS);
  // Colour and dash share one legend, which Vega makes when both say the same about it.
  const bySeries = (range: readonly unknown[], kind: "color" | "dash") => ({
    ...seriesScale(
      domain,
      series.map(({ style }, i) => range[(style?.[kind] ?? i) % range.length]),
      width,
    ),
    sort: null,
    legend: { ...legendOf(domain, width), symbolType: "stroke", symbolSize: 900, symbolOpacity: 1 },
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
