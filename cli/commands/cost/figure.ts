/**
 * The paper's figure as SVG: loss against memory and against latency, with an arrow for each way to
 * a lower loss: more parameters, or more streams of the same model.
 *
 * Takes a setting; returns a file drawn by Vega-Lite, and the points as rows. Vega-Lite has no
 * arrows, so heads are triangles, turned by angles that are computed here from the scales, whose
 * domains are therefore fixed.
 */
import { countShape, meanCost, type Workload } from "../../../core/analysis/cost.ts";
import {
  memberOf,
  type ModelSize,
  PAPER_FAMILY,
  STACK_LAW,
  widened,
} from "../../../core/analysis/cost_family.ts";
import { exactCost } from "../../../core/analysis/cost_exact.ts";
import { paperCost } from "../../../core/analysis/cost_paper.ts";
import { predictLoss } from "../../../core/analysis/law.ts";
import { DataError } from "../../../core/base/errors.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import type { Figure } from "../../output/sink.ts";
import { COLORS, FRAME, NEAR_LEGEND, renderSvg } from "../../output/vega.ts";
import { gib, headline, isReadable, withGib } from "./estimate.ts";
import {
  checkContext,
  echoOf,
  orDefault,
  prefixTokensOf,
  questionOf,
  type Setting,
} from "./setting.ts";

/** Which way a point lies on. */
type Way = "more parameters" | "more streams";

interface Point {
  readonly way: Way;
  readonly label: string;
  readonly streams: number;
  readonly loss: number;
  readonly memoryBytes: number;
  readonly latencyS: number;
}

/** Draws the figure and reports its points. */
export async function drawFigure(
  setting: Setting,
  io: Io,
  invocation: Invocation,
  figure: Figure,
): Promise<void> {
  const points = pointsOf(setting);
  figure.write(await renderSvg(figureSpec(points, setting)));
  const readable = isReadable(invocation);
  using report = openReport(io, invocation, {
    schema: "parscale.cost-figure/2",
    ...(readable && {
      columns: [
        { key: "way" },
        { key: "model" },
        { key: "streams" },
        { key: "loss", digits: 4 },
        gib("memory", "memory GiB"),
        { key: "latency_s", title: "latency s" },
      ],
    }),
  });
  report.remark(`${headline(setting)}\n${averageText(setting)}`);
  for (const { way, label, streams, loss, memoryBytes, latencyS } of points) {
    const row = { way, model: label, streams, loss, memory_bytes: memoryBytes };
    const whole = { ...echoOf(setting), ...row, latency_s: latencyS };
    report.row(readable ? withGib(whole) : whole);
  }
  await report.finish();
}

/** The paper's lengths: its first figure has 128 to 1024 tokens in all, half of them prompt. */
const LENGTHS = [64, 128, 256, 512];

/** Batches and lengths that means are taken over. */
function averagedWorkloads(
  setting: Setting,
): readonly Pick<Workload, "batch" | "input" | "output">[] {
  const { batch, input, output } = setting.values;
  const inputs = input.length > 0 ? input : output.length > 0 ? [64] : LENGTHS;
  const lengths = inputs.flatMap((i) =>
    (output.length > 0 ? output : [i]).map((o) => ({ input: i, output: o }))
  );
  checkContext(setting, Math.max(...lengths.map((pair) => pair.input + pair.output)));
  return batch.flatMap((b) => lengths.map((pair) => ({ batch: b, ...pair })));
}

/** What was averaged, for the line above the table. */
function averageText(setting: Setting): string {
  const lengths = new Set(averagedWorkloads(setting).map((w) => `${w.input}+${w.output}`));
  return `mean over batch ${setting.values.batch.join(", ")} and ${[...lengths].join(", ")} tokens`;
}

function pointsOf(setting: Setting): Point[] {
  const { model, values } = setting;
  const member = memberOf(model.shape);
  if (member === undefined && values.match === "observed") {
    throw new DataError(
      "no observed losses for this model: the paper trained " +
        PAPER_FAMILY.map(({ name }) => name).join(", "),
      { hints: ["pass --match law, which predicts the losses of any model"] },
    );
  }
  const compute = setting.values.method === "paper" ? paperCost : exactCost;
  const workloads = averagedWorkloads(setting), prefixTokens = prefixTokensOf(setting);
  const sizes = member === undefined ? widened(model.shape) : PAPER_FAMILY;
  const base: ModelSize = member ?? { ...sizes[0]!, name: model.name ?? "model" };
  const point = (way: Way, size: ModelSize, streams: number): Point => ({
    way,
    label: size.name,
    streams,
    loss: lossOf(setting, size, streams),
    ...meanCost(
      workloads.map((work) =>
        compute(questionOf(setting, size.shape, { ...work, streams, prefixTokens }))
      ),
    ),
  });
  const streams = new Set([1, ...orDefault(values.streams, [1, 2, 4, 8])]);
  return [
    ...sizes.map((size) => point("more parameters", size, 1)),
    ...[...streams].sort((a, b) => a - b).map((P) => point("more streams", base, P)),
  ];
}

function lossOf(setting: Setting, { shape, losses }: ModelSize, streams: number): number {
  const observed = losses.get(streams);
  if (setting.values.match === "observed" && observed !== undefined) return observed;
  if (setting.values.match === "law") {
    const { nonEmbedding } = countShape(shape, streams, prefixTokensOf(setting));
    return predictLoss(STACK_LAW, nonEmbedding, streams);
  }
  throw new DataError(
    `no observed loss for ${streams} streams: the paper trained ${[...losses.keys()].join(", ")}`,
    { hints: ["pass --match law, which predicts the loss of any number of streams"] },
  );
}

const WIDTH = 360, HEIGHT = 300;
/** The ways also differ by dash and mark. */
const STYLES: Readonly<Record<Way, readonly [color: string, dash: number[]]>> = {
  "more parameters": [COLORS[1], [6, 3]],
  "more streams": [COLORS[0], [1, 0]],
};

/** The quantity of a panel's x axis. */
interface Axis {
  readonly title: string;
  readonly of: (point: Point) => number;
}

const PANELS: readonly Axis[] = [
  { title: "memory, GiB", of: ({ memoryBytes }) => memoryBytes / 2 ** 30 },
  { title: "latency, seconds", of: ({ latencyS }) => latencyS },
];

function figureSpec(points: readonly Point[], setting: Setting) {
  return {
    ...FRAME,
    title: { text: headline(setting), subtitle: averageText(setting) },
    hconcat: PANELS.map((axis) => panel(points, axis)),
    resolve: { legend: { color: "independent", strokeDash: "independent" } },
  };
}

function panel(points: readonly Point[], axis: Axis) {
  const x = domainOf(points.map(axis.of)), y = domainOf(points.map(({ loss }) => loss));
  const rows = points.map((point) => ({
    way: point.way,
    name: nameOf(point),
    x: axis.of(point),
    loss: point.loss,
  }));
  const heads = Object.keys(STYLES).flatMap((way) => {
    const [before, last] = rows.filter((row) => row.way === way).slice(-2);
    return before && last ? [{ ...last, angle: angleOf(before, last, x, y) }] : [];
  });
  const ways = Object.keys(STYLES), styles = Object.values(STYLES);
  const scale = (range: readonly unknown[]) => ({
    field: "way",
    type: "nominal",
    scale: { domain: ways, range },
    legend: { ...NEAR_LEGEND, symbolType: "stroke", symbolSize: 900 },
  });
  const color = scale(styles.map(([ink]) => ink));
  return {
    width: WIDTH,
    height: HEIGHT,
    data: { values: rows },
    encoding: {
      x: { field: "x", type: "quantitative", title: axis.title, scale: { domain: x, nice: false } },
      y: { field: "loss", type: "quantitative", scale: { domain: y, nice: false } },
      color,
    },
    layer: [
      {
        mark: { type: "line", strokeWidth: 2 },
        encoding: { strokeDash: scale(styles.map(([, dash]) => dash)) },
      },
      { mark: { type: "point", filled: true, size: 45, opacity: 1 } },
      // Names stand on the free side of their line.
      named("more parameters", { align: "left", dx: 7 }),
      named("more streams", { align: "right", dx: -9 }),
      {
        data: { values: heads },
        mark: { type: "point", shape: "triangle-up", filled: true, size: 170, opacity: 1 },
        encoding: { angle: { field: "angle", type: "quantitative", scale: null } },
      },
    ],
  };
}

/** The first point of `more streams` is one of `more parameters`, which names it. */
function nameOf({ way, label, streams }: Point): string {
  if (way === "more parameters") return label;
  return streams > 1 ? `P=${streams}` : "";
}

function named(way: Way, place: { readonly align: string; readonly dx: number }) {
  return {
    transform: [{ filter: { field: "way", equal: way } }],
    mark: { type: "text", dy: -7, ...place },
    encoding: { text: { field: "name" } },
  };
}

type Domain = readonly [number, number];

/** From the least to the largest with some air, and room for labels. */
function domainOf(values: readonly number[]): Domain {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const air = (most - least || Math.abs(most) || 1) * 0.08;
  return [least - air, most + 2 * air];
}

/** Degrees, clockwise from up, of the line between two points as it is drawn. */
function angleOf(
  from: { readonly x: number; readonly loss: number },
  to: { readonly x: number; readonly loss: number },
  [left, right]: Domain,
  [low, high]: Domain,
): number {
  const dx = (to.x - from.x) / (right - left) * WIDTH;
  const dy = (to.loss - from.loss) / (high - low) * HEIGHT;
  return Math.atan2(dx, dy) * 180 / Math.PI;
}
