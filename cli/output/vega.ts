/**
 * What all figures share: the palette, their frame, and the one renderer.
 *
 * Vega is loaded only when something is drawn, since that takes a third of a second.
 */
import type { TopLevelSpec } from "vega-lite";

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

/** Background, margins and fonts of every figure. */
export const FRAME = {
  $schema: "https://vega.github.io/schema/vega-lite/v6.json",
  background: "white",
  padding: 12,
  config: {
    font: "sans-serif",
    axis: { gridColor: "#e5e5e5", labelFontSize: 12, titleFontSize: 13, titleFontWeight: "normal" },
    title: { anchor: "start", fontSize: 14, fontWeight: "normal" },
    legend: { labelFontSize: 12, labelLimit: 400 },
    view: { stroke: null },
  },
} as const;

/** A legend inside the plot, in the corner that falling curves leave free. */
export const NEAR_LEGEND = {
  title: null,
  orient: "top-right",
  fillColor: "white",
  padding: 6,
} as const;

/** Draws a specification as one SVG document that needs nothing from elsewhere. */
export async function renderSvg(spec: object): Promise<string> {
  const [vega, { compile }] = await Promise.all([import("vega"), import("vega-lite")]);
  // The type is a union of hundreds of shapes; TypeScript widens the strings of a variable.
  const compiled = compile(spec as TopLevelSpec).spec;
  const view = new vega.View(vega.parse(compiled), { renderer: "none", logLevel: vega.Error });
  try {
    return await view.toSVG();
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
