/** Figure of a law as SVG, drawn by Vega-Lite: loss over parameters, one curve per P. */
import { predictLoss } from "../../../core/analysis/law.ts";
import { namesOf } from "./result.ts";
import type { Study } from "./study.ts";
import {
  COLORS,
  DASHES,
  FRAME,
  NEAR_LEGEND,
  PARAMETER_LABEL,
  parameterTicks,
  renderSvg,
} from "../../output/vega.ts";

const WIDTH = 560, HEIGHT = 400;
/** Points per curve. */
const STEPS = 60;
/** The paper's range of N; losses outside it widen the axis. */
const N_RANGE = [5e8, 5e9] as const;

/** Marks that differ as the colours do. */
const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "stroke"];

type Range = readonly [number, number];

/** Loss over N, one curve per P, with the observations. */
export function drawCurves(study: Study): Promise<string> {
  const { law } = study.best;
  const points = study.observations;
  const range = rangeOfN(points.map(({ n }) => n));
  const streams = [...new Set(points.map(({ p }) => p))].sort((a, b) => a - b);
  const label = (P: number) => `P=${P}`;
  const curves = streams.flatMap((P) =>
    spread(range).map((n) => ({ n, loss: predictLoss(law, n, P), series: label(P) }))
  );
  const bySeries = (values: readonly unknown[]) => ({
    field: "series",
    type: "nominal",
    scale: { domain: streams.map(label), range: streams.map((_, i) => values[i % values.length]) },
    legend: NEAR_LEGEND,
  });
  return renderSvg({
    ...frameOf(study),
    encoding: {
      x: {
        field: "n",
        type: "quantitative",
        title: "parameters N",
        scale: { type: "log", domain: range, nice: false },
        axis: { values: parameterTicks(range), labelExpr: PARAMETER_LABEL },
      },
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

/** The paper's range if it holds all observations, or else theirs with some air. */
function rangeOfN(values: readonly number[]): Range {
  if (values.every((n) => n >= N_RANGE[0] && n <= N_RANGE[1])) return N_RANGE;
  return [Math.min(...values) / 1.15, Math.max(...values) * 1.15];
}

/** Equal factors from one end to the other. */
function spread([from, to]: Range): number[] {
  return Array.from({ length: STEPS + 1 }, (_, i) => from * (to / from) ** (i / STEPS));
}

/** Frame with the law as title and its parameters below. */
function frameOf({ name, best: { law, r2 } }: Study) {
  const parameters = namesOf(law).map(([title, key]) => `${title} = ${law[key].toPrecision(5)}`);
  return {
    ...FRAME,
    title: {
      text: `${name}, ${law.kind} law`,
      subtitle: [...parameters, `R² = ${r2.toFixed(4)}`].join(", "),
      anchor: "start",
      fontSize: 15,
    },
    width: WIDTH,
    height: HEIGHT,
  };
}
