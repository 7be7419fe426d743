/**
 * Rows of `parscale cost` as documents and tables, and the paper's figure as SVG: loss against
 * memory and against latency, with an arrow for each way to a lower loss.
 *
 * Vega-Lite has no arrows, so heads are triangles, turned by angles that are computed here from the
 * scales, whose domains are therefore fixed.
 */
import { peakTflops } from "../../../core/analysis/devices.ts";
import { type Column, formatNumber, type Row } from "../../output/table.ts";
import { COLORS, FRAME, legendOf } from "../../output/vega.ts";
import type { Setting } from "./setting.ts";

/** A column in GiB for a field in bytes. */
export const gib = (key: string, title: string): Column => ({
  key: `${key}_bytes`,
  title,
  digits: 3,
  show: (bytes) => bytes as number / 2 ** 30,
});

/** A column in milliseconds for a field in seconds. */
export const ms = (key: string, title: string): Column => ({
  key: `${key}_s`,
  title,
  show: (seconds) => seconds as number * 1000,
});

/** The workload of a row. */
export const WORK_COLUMNS = ["streams", "batch", "input", "output"];

/** The line above a table that says what it is about. */
export function headline({ model, on, efficiency, values: { method }, widths }: Setting): string {
  const { name, shape } = model;
  const named = name ??
    `${shape.numHiddenLayers} layers of ${shape.hiddenSize} and ${shape.intermediateSize}`;
  const tflops = peakTflops(on, Math.max(widths.weight, widths.activation));
  return `${named} on ${on.name}: ${formatNumber(on.bandwidthGbS)} GB/s x ` +
    `${efficiency.memory}, ${formatNumber(tflops)} TFLOPS x ${efficiency.flops}, ` +
    `${formatNumber(widths.weight)} bits, method ${method}`;
}

/** The inputs of a row under their JSON names, without the workload. */
export function inputsOf(setting: Setting): Row {
  const { model: { name, shape }, on, efficiency, widths } = setting;
  const { method, prefixCache, stepOverhead } = setting.values;
  const isExact = method === "exact";
  return {
    model: name ?? null,
    method,
    hidden_size: shape.hiddenSize,
    intermediate_size: shape.intermediateSize,
    num_layers: shape.numHiddenLayers,
    num_heads: shape.numAttentionHeads,
    num_kv_heads: shape.numKeyValueHeads,
    head_dim: shape.headDim,
    vocab_size: shape.vocabSize,
    tie_word_embeddings: shape.tieWordEmbeddings,
    hardware: on.name,
    bandwidth_gb_s: on.bandwidthGbS,
    tflops: on.tflops,
    capacity_gib: on.capacityGb ?? null,
    flops_efficiency: efficiency.flops,
    memory_efficiency: efficiency.memory,
    weight_bits: widths.weight,
    activation_bits: widths.activation,
    cache_bits: widths.cache,
    prefix_cache: isExact ? prefixCache : null,
    step_overhead_s: isExact ? stepOverhead : null,
  };
}

/** A point of the figure, on one of the ways to a lower loss. */
export interface Point {
  readonly way: "more parameters" | "more streams";
  readonly model: string;
  readonly streams: number;
  readonly loss: number;
  readonly memoryBytes: number;
  readonly latencyS: number;
}

const WIDTH = 560, HEIGHT = 280;
/** The ways also differ by dash and mark. */
const STYLES: Readonly<Record<Point["way"], readonly [color: string, dash: number[]]>> = {
  "more parameters": [COLORS[1], [6, 3]],
  "more streams": [COLORS[0], [1, 0]],
};

/** The quantity of a panel's x axis. */
interface Axis {
  readonly title: string;
  readonly of: (point: Point) => number;
}

const PANELS: readonly Axis[] = [
  { title: "memory (GiB)", of: ({ memoryBytes }) => memoryBytes / 2 ** 30 },
  { title: "latency (s)", of: ({ latencyS }) => latencyS },
];

/** The specification of the figure. */
export function figureSpec(
  points: readonly Point[],
  title: string,
  subtitle: readonly string[],
): object {
  return {
    ...FRAME,
    title: { text: `Loss over memory and latency: ${title}`, subtitle },
    vconcat: PANELS.map((axis) => panel(points, axis)),
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
    legend: { ...legendOf(ways, WIDTH), symbolType: "stroke", symbolSize: 900 },
  });
  const color = scale(styles.map(([ink]) => ink));
  return {
    width: WIDTH,
    height: HEIGHT,
    data: { values: rows },
    encoding: {
      x: { field: "x", type: "quantitative", title: axis.title, scale: { domain: x, nice: false } },
      y: {
        field: "loss",
        type: "quantitative",
        title: "loss (nats per token)",
        scale: { domain: y, nice: false },
      },
      color,
    },
    layer: [
      {
        mark: { type: "line", strokeWidth: 2 },
        encoding: { strokeDash: scale(styles.map(([, dash]) => dash)) },
      },
      { mark: { type: "point", filled: true, size: 45, opacity: 1 } },
      // Names stand on the free side of their line.
      named("more parameters", { align: "left", dx: 7, dy: -7 }),
      named("more streams", { align: "right", dx: -14, dy: 0 }),
      {
        data: { values: heads },
        mark: { type: "point", shape: "triangle-up", filled: true, size: 170, opacity: 1 },
        encoding: { angle: { field: "angle", type: "quantitative", scale: null } },
      },
    ],
  };
}

/** The first point of `more streams` is one of `more parameters`, which names it. */
function nameOf({ way, model, streams }: Point): string {
  if (way === "more parameters") return model;
  return streams > 1 ? `P=${streams}` : "";
}

function named(way: Point["way"], place: Readonly<Record<"align" | "dx" | "dy", unknown>>) {
  return {
    transform: [{ filter: { field: "way", equal: way } }],
    mark: { type: "text", baseline: "middle", ...place },
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
