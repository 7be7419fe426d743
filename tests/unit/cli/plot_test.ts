/** Curves of `parscale plot`: smoothing, logarithmic axes, styles in SVG. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { curvesOf, seriesOf, thinned } from "../../../cli/commands/plot/run.ts";
import type { Point, RunLosses, StepLoss } from "../../../cli/commands/plot/losses.ts";
import { renderChart } from "../../../cli/output/chart.ts";
import { renderSvgChart } from "../../../cli/output/vega.ts";

const BOTH = { measure: ["train", "eval"], ema: 0 } as const;

function run(
  label: string,
  train: readonly StepLoss[],
  evaluated: readonly StepLoss[] = [],
): RunLosses {
  return { path: label, label, points: { train, eval: evaluated } };
}

Deno.test("only the training loss is smoothed, and curves stand in the order of the runs", () => {
  const points: StepLoss[] = [[1, 4, 10], [2, 2, 30]];
  const smoothed = (0.5 * 10 * 4 + 30 * 2) / (0.5 * 10 + 30);
  const curves = curvesOf([run("b", points, points), run("a", points)], { ...BOTH, ema: 0.5 });
  assertEquals(
    curves.map(({ label, measure, points }) => [label, measure, points[1]![1]]),
    [["b", "train", smoothed], ["b", "eval", 2], ["a", "train", smoothed]],
  );
  const series = seriesOf(curves);
  assertEquals(series.map(({ label }) => label), ["b, training", "b, validation", "a, training"]);
  assertEquals(series.map(({ style }) => [style!.color, style!.dash]), [[0, 0], [0, 1], [1, 0]]);
  const alone = seriesOf(curvesOf([run("b", points, points)], { ...BOTH, measure: ["eval"] }));
  assertEquals(alone.map(({ label, style }) => [label, style!.dash]), [["b", 0]]);
});

Deno.test("thinning keeps the last point", () => {
  const points = Array.from({ length: 1001 }, (_, i) => i);
  const few = thinned(points, 100);
  assert(few.length <= 101 && few[0] === 0 && few.at(-1) === 1000);
  assertEquals(thinned(points, 2000), points);
});

Deno.test("a logarithmic x axis has round numbers and gives each decade the same room", () => {
  const points = [1, 10, 100, 1000].map((x) => [x, 3 - Math.log10(x)] as const);
  const size = { width: 60, height: 8, xLabel: "steps", yLabel: "loss" };
  const options = { ...size, color: false, logX: true };
  const text = renderChart([{ label: "a", points }], options);
  const axis = text.split("\n").find((line) => /\b10\b.*\b100\b/.test(line))!;
  const [ten, hundred] = [axis.indexOf("10 "), axis.indexOf("100")];
  const thousand = axis.indexOf("1000");
  assert(ten > 0 && Math.abs((thousand - hundred) - (hundred - ten)) <= 2, axis);
  const with0 = renderChart([{ label: "a", points: [[0, 9], ...points] }], options);
  assertEquals(with0, text, "a point at 0 has no place");
});

Deno.test("an SVG chart takes colour and dash from the style", async () => {
  const points: Point[] = [[1, 3], [10, 2], [100, 1]];
  const style = { color: 3, dash: 1 };
  const options = { title: "", width: 200, height: 100, xLabel: "x", yLabel: "y", logX: true };
  const svg = await renderSvgChart([{ label: "a", points, style }], options);
  assertStringIncludes(svg, "#CC79A7");
  assertStringIncludes(svg, 'stroke-dasharray="6,3"');
  assertStringIncludes(svg, ":root { color-scheme: light dark }"); // where it is opened by itself
  assert(!/NaN|undefined/.test(svg));
});
