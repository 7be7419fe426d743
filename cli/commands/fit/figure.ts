/**
 * Figures of a law as SVG, drawn by Vega-Lite: loss over parameters, and contours of equal loss.
 *
 * Takes a study; returns one SVG text each. Contours need no grid search: on each of them N is a
 * function of P.
 */
import { type Law, parametersForLoss, predictLoss } from "../../../core/analysis/law.ts";
import { namesOf } from "./result.ts";
import type { Study } from "./study.ts";
import {
  COLORS,
  DASHES,
  FRAME,
  INK,
  NEAR_LEGEND,
  PARAMETER_LABEL,
  parameterTicks,
  renderSvg,
} from "../../output/vega.ts";
import type { FitValues } from "./flags.ts";

const WIDTH = 560, HEIGHT = 400;
/** Points per curve. */
const STEPS = 60;
/** The paper's range of N; losses outside it widen the axis. */
const N_RANGE = [5e8, 5e9] as const;
/** Its largest P. */
const P_MAX = 8;
/** Contours when none are given. */
const LEVELS = 8;

/** Marks that differ as the colours do. */
const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "stroke"];

type Range = readonly [number, number];

/** Loss over N, one curve per P, with the observations. */
export function drawCurves(study: Study): Promise<string> {
  const { law } = study.best;
  const points = observationsOf(study);
  const range = rangeOfN(points.map(({ n }) => n));
  const streams = [...new Set(points.map(({ p }) => p))].sort((a, b) => a - b);
  const shown = streams.length > 0 ? streams : [1, 2, 4, 8];
  const label = (P: number) => `P=${P}`;
  const curves = shown.flatMap((P) =>
    spread(range, true).map((n) => ({ n, loss: predictLoss(law, n, P), series: label(P) }))
  );
  const bySeries = (values: readonly unknown[]) => ({
    field: "series",
    type: "nominal",
    scale: { domain: shown.map(label), range: shown.map((_, i) => values[i % values.length]) },
    legend: NEAR_LEGEND,
  });
  return renderSvg({
    ...frameOf(study),
    encoding: {
      x: { ...axisOfN(range), title: "parameters N" },
      y: { field: "loss", type: "quantitative", title: "loss", scale: { zero: false } },
      color: bySeries(COLORS),
    },
    layer: [
      {
        data: { values: curves },
        mark: { type: "line", strokeWidth: 2 },
        encoding: { strokeDash: bySeries(DASHES) },
      },
      {
        data: { values: points.map(({ n, p, loss }) => ({ n, loss, series: label(p) })) },
        mark: { type: "point", filled: true, size: 55, opacity: 1 },
        encoding: { shape: bySeries(SHAPES) },
      },
    ],
  });
}

/** N over P at equal losses, with the observations. */
export function drawContours(study: Study, values: FitValues): Promise<string> {
  const { law } = study.best;
  const points = observationsOf(study);
  const range = rangeOfN(points.map(({ n }) => n));
  const pMax = values.pMax ?? Math.max(P_MAX, ...points.map(({ p }) => p));
  const levels = values.levels.length > 0 ? values.levels : levelsOf(law, range, pMax);
  const lines = levels.flatMap((loss) => contour(law, loss, range, pMax));
  const names = levels.flatMap((loss) =>
    lines.filter((point) => point.loss === loss).slice(-1)
      .map((point) => ({ ...point, name: loss.toFixed(3) }))
  );
  const shades = [...levels, ...points.map(({ loss }) => loss)];
  return renderSvg({
    ...frameOf(study),
    encoding: {
      x: {
        field: "p",
        type: "quantitative",
        title: "streams P",
        scale: { domain: [1, pMax], nice: false, zero: false },
        axis: { values: wholeNumbers(pMax), format: "d" },
      },
      y: { ...axisOfN(range), title: "parameters N" },
      color: {
        field: "loss",
        type: "quantitative",
        title: "loss",
        scale: { scheme: "viridis", domain: [Math.min(...shades), Math.max(...shades)] },
        legend: { format: ".3f" },
      },
    },
    layer: [
      {
        data: { values: lines },
        mark: { type: "line", strokeWidth: 2 },
        encoding: { detail: { field: "loss", type: "nominal" } },
      },
      {
        data: { values: names },
        mark: labelMark(),
        encoding: { text: { field: "name" }, color: { value: INK } },
      },
      {
        data: { values: points.filter(({ p }) => p <= pMax) },
        mark: { type: "point", filled: true, size: 60, opacity: 1, stroke: "black" },
      },
    ],
  });
}

/** Streams that are marked: all of a few, else powers of two. */
function wholeNumbers(most: number): number[] {
  const all = Array.from({ length: Math.floor(most) }, (_, i) => i + 1);
  return most <= 16 ? all : all.filter((P) => Number.isInteger(Math.log2(P)));
}

/** Names stand at the right end of their contour. */
function labelMark() {
  return { type: "text", align: "right", dx: -3, dy: -7, fontSize: 11 };
}

interface ContourPoint {
  readonly p: number;
  readonly n: number;
  readonly loss: number;
}

/** The part of a contour that the figure shows. */
function contour(law: Law, loss: number, [low, high]: Range, pMax: number): ContourPoint[] {
  return spread([1, pMax], false).flatMap((p) => {
    const n = parametersForLoss(law, loss, p);
    return n !== undefined && n >= low && n <= high ? [{ p, n, loss }] : [];
  });
}

/** Equal steps of loss between the visible corners, which themselves are no contours. */
function levelsOf(law: Law, [low, high]: Range, pMax: number): number[] {
  const least = predictLoss(law, high, pMax), most = predictLoss(law, low, 1);
  return Array.from({ length: LEVELS }, (_, i) => least + (most - least) * (i + 1) / (LEVELS + 1));
}

function observationsOf({ used, heldOut }: Study) {
  return [...used, ...heldOut];
}

/** The paper's range if it holds all observations, or else theirs with some air. */
function rangeOfN(values: readonly number[]): Range {
  if (values.every((n) => n >= N_RANGE[0] && n <= N_RANGE[1])) return N_RANGE;
  return [Math.min(...values) / 1.15, Math.max(...values) * 1.15];
}

/** Equal steps, or equal factors, from one end to the other. */
function spread([from, to]: Range, isLogarithmic: boolean): number[] {
  return Array.from({ length: STEPS + 1 }, (_, i) => {
    const share = i / STEPS;
    return isLogarithmic ? from * (to / from) ** share : from + (to - from) * share;
  });
}

function axisOfN(domain: Range) {
  return {
    field: "n",
    type: "quantitative",
    scale: { type: "log", domain, nice: false },
    axis: { values: parameterTicks(domain), labelExpr: PARAMETER_LABEL },
  };
}

/** What both figures share: the size, the law as title, its parameters below. */
function frameOf({ name, best: { law, r2 } }: Study) {
  const parameters = namesOf(law).map(([title, key]) => `${title} = ${law[key].toPrecision(5)}`);
  const quality = r2 === undefined ? [] : [`R² = ${r2.toFixed(4)}`];
  return {
    ...FRAME,
    title: {
      text: `${name}, ${law.kind} law`,
      subtitle: [...parameters, ...quality].join(", "),
      anchor: "start",
      fontSize: 15,
    },
    width: WIDTH,
    height: HEIGHT,
  };
}
