/** Protects charts: places of points, ticks, what tells series apart, odd data, whole SVG files. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { type ChartOptions, renderChart, type Series } from "../../../cli/output/chart.ts";
import { renderSvgChart } from "../../../cli/output/vega.ts";
import { linearAxis, logAxis } from "../../../cli/output/ticks.ts";
import { replaced } from "../../replaced.ts";

const SIZE = { width: 40, height: 6 };
const OPTIONS: ChartOptions = { ...SIZE, xLabel: "step", yLabel: "loss", color: false };
const FALLING: Series = { label: "P=1", points: [[0, 10], [50, 5], [100, 0]] };
const LOW: Series = { label: "P=2", points: [[0, 0], [100, 0]] };

Deno.test("braille dots follow the curve, and letters name it in the curve and at its end", () => {
  assertEquals(
    renderChart([FALLING], OPTIONS),
    `loss
10 ┤⠉⠒⠢⠤⣀⡀
   │     ⠈⠉⠒A⢄⣀
   │           ⠉⠑⠒⠤⢄⣀
 5 ┤                 ⠉⠑⠒⠤⢄⣀
   │                       ⠉A⠒⠤⠤⣀⡀
 0 ┤                             ⠈⠉⠒⠢⠤⣀A
   └┬────────────────┬────────────────┬
    0               50               100
                   step
  A P=1
`,
  );
});

Deno.test("colour adds nothing but colour", () => {
  const plain = renderChart([FALLING, LOW], OPTIONS);
  const colored = renderChart([FALLING, LOW], { ...OPTIONS, color: true });
  assert(colored.includes("\x1b[34m") && colored.includes("\x1b[33m"));
  // deno-lint-ignore no-control-regex
  assertEquals(colored.replace(/\x1b\[\d+m/g, ""), plain);
  assert(!plain.includes("\x1b"));
  for (const text of ["A P=1", "B P=2", "step", "loss"]) assertStringIncludes(plain, text);
});

Deno.test("curves on each other take turns, so that none disappears", () => {
  const twice = [{ ...LOW, label: "a" }, { ...LOW, label: "b" }];
  const row = renderChart(twice, { ...OPTIONS, color: true }).split("\n").find((line) =>
    line.includes("A") && line.includes("B")
  );
  // deno-lint-ignore no-control-regex
  assert(/\x1b\[34m[⠉⠒⠤⣀]\x1b\[39m\x1b\[33m[⠉⠒⠤⣀]/.test(row!), row);
  assert(row!.endsWith("A\x1b[39m\x1b[33mB\x1b[39m"), row);
});

Deno.test("no line is wider than asked, and the legend wraps", () => {
  const many = Array.from({ length: 8 }, (_, i): Series => ({
    label: `series number ${i}`,
    points: [[0, i], [1000, i * 2]],
  }));
  for (const width of [40, 80, 120]) {
    const lines = renderChart(many, { ...OPTIONS, width, height: 12 }).split("\n");
    for (const line of lines) assert(line.length <= width, line);
    for (const letter of "ABCDEFGH") {
      assert(lines.some((line) => line.includes(`${letter} series number`)));
    }
  }
});

Deno.test("points that cannot be drawn leave gaps; without any there is a message", () => {
  const gap: Series = { label: "gap", points: [[0, 1], [1, 1], [2, NaN], [3, 1], [4, 1]] };
  const text = renderChart([gap], OPTIONS);
  assert(/A +⠉/.test(text), text);
  for (const points of [[], [[1, NaN]], [[Infinity, 1]]] as const) {
    assertEquals(renderChart([{ label: "x", points }], OPTIONS), "loss: no points to draw\n");
  }
  const negative: Series = { label: "x", points: [[0, -1], [1, 0]] };
  assertEquals(renderChart([negative], { ...OPTIONS, logY: true }), "loss: no points to draw\n");
  for (const value of [0, 2.5, -3e-9, 1e12]) {
    const single = renderChart([{ label: "one", points: [[7, value]] }], OPTIONS);
    assertStringIncludes(single, "A");
    assert(!single.includes("NaN"), single);
  }
});

Deno.test("a long run is drawn, and its extremes show", () => {
  const points = Array.from({ length: 200_000 }, (_, i) => [i, i === 777 ? 9 : 1] as const);
  const lines = renderChart([{ label: "spike", points }], OPTIONS).split("\n");
  assertEquals(lines.slice(1, 7).filter((line) => /[\u2801-\u28ff]/.test(line)).length, 6);
});

Deno.test("ticks are round numbers with the digits they need", () => {
  const texts = (low: number, high: number, count: number) =>
    linearAxis([low, high], count, "rounded").ticks.map(({ text }) => text).join(" ");
  assertEquals(texts(0.143, 0.198, 4), "0.14 0.16 0.18 0.20");
  assertEquals(texts(1, 143_000, 4), "0 50000 100000 150000");
  assertEquals(texts(-1.2, 1.1, 4), "-2 -1 0 1 2");
  assertEquals(texts(0, 3e-4, 3), "0.0000 0.0001 0.0002 0.0003");
  const exact = linearAxis([1, 120], 6, "exact");
  assertEquals(exact.ticks.map(({ text }) => text), ["20", "40", "60", "80", "100", "120"]);
  assertEquals([exact.place(1), exact.place(120)], [0, 1]);
});

Deno.test("a logarithmic axis has powers of ten, or finer ticks where those are too few", () => {
  const texts = (low: number, high: number, count: number) =>
    logAxis([low, high], count).ticks.map(({ text }) => text);
  assertEquals(texts(1e-3, 100, 4), ["0.001", "0.01", "0.1", "1", "10", "100"]);
  assertEquals(texts(0.12, 2.2, 6), ["0.2", "0.5", "1", "2"]);
  assertEquals(texts(2.1, 2.9, 4), ["2.2", "2.4", "2.6", "2.8"]);
  const { place } = logAxis([1, 100], 4);
  assertEquals([place(1), place(10), place(100)], [0, 0.5, 1]);
});

Deno.test("an SVG chart escapes texts, tells series apart and warns of nothing", async () => {
  const warnings: unknown[] = [];
  using _ = replaced(console, { warn: (...message) => warnings.push(message) });
  const title = "Loss <of> streams", series = [FALLING, { ...LOW, label: 'a <b> & "c"' }];
  for (const logY of [false, true]) {
    const svg = await renderSvgChart(series, { ...OPTIONS, width: 300, title, logY });
    for (const text of ["Loss &lt;of&gt; streams", "a &lt;b&gt; &amp;", "#0072B2", ">step<"]) {
      assertStringIncludes(svg, text);
    }
    if (!logY) assertStringIncludes(svg, "stroke-dasharray");
    const addresses = svg.match(/https?:[^"']+/g)!;
    assertEquals(addresses.filter((url) => !url.startsWith("http://www.w3.org/")), []);
    assert(!/NaN|undefined|<image|<script/.test(svg));
  }
  await renderSvgChart([], { ...OPTIONS, title });
  assertEquals(warnings, []);
});
