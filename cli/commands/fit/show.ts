/** A study for readers: text above the table of observations, and the figure as SVG. */
import { type Law, type LawKind, predictLoss } from "../../../core/analysis/law.ts";
import { type Column, formatNumber, plainTable } from "../../output/table.ts";
import {
  COLORS,
  DASHES,
  FRAME,
  PARAMETER_LABEL,
  parameterTicks,
  renderSvg,
  seriesScale,
} from "../../output/vega.ts";
import { answerOf, comparisonOf, namesOf, type Study } from "./study.ts";

/** The table of observations. */
export const COLUMNS: readonly Column[] = [
  { key: "streams", title: "P" },
  { key: "n_params", title: "N" },
  { key: "predicted", digits: 4 },
  { key: "loss", title: "observed", digits: 4 },
  { key: "error", digits: 4 },
];

/** Formulas of the laws in plain letters. */
const FORMULAS: Readonly<Record<LawKind, string>> = {
  log: "L = E + (A / (N (k ln P + 1)))^alpha",
  theoretical: "L = E + (A / N)^alpha ((P - 1) rho + 1) / P",
  chinchilla: "L = E + (A / N)^alpha",
};

/** Everything above the table. */
export function textOf(study: Study): string {
  const { best: { law, fit }, observations, name, questions, bootstrap } = study;
  const source = fit === undefined
    ? "as the paper prints it"
    : `fitted to ${observations.length} losses`;
  const parts = [
    `${FORMULAS[law.kind]}\n${source}, ${name}\n`,
    parameterTable(study),
    qualityText(study),
    study.outcomes.length > 1 ? comparisonTable(study) : "",
    questions.length > 0
      ? answerTable(study) + "N is the count at the P in question, without embeddings\n"
      : "",
    fit !== undefined && bootstrap === undefined
      ? "Parameters trade off against each other: --bootstrap 500 gives intervals\n"
      : "",
  ];
  return parts.filter((part) => part !== "").join("\n");
}

/** A parameter with seven digits; A spans powers of ten. */
function showParameter(name: string, value: number): string {
  return name === "A" || value < 1e-3 ? value.toExponential(6) : value.toFixed(6);
}

function parameterTable(study: Study): string {
  const { best: { law }, intervals } = study;
  const names = namesOf(law);
  const line = (title: string, valueOf: (name: string, key: keyof Law) => number) => ({
    title,
    ...Object.fromEntries(
      names.map(([name, key]) => [name, showParameter(name, valueOf(name, key))]),
    ),
  });
  const rows = [line("estimate", (_, key) => law[key] as number)];
  if (Object.keys(intervals).length > 0) {
    rows.push(line("2.5 %", (name) => intervals[name]!.low));
    rows.push(line("50 %", (name) => intervals[name]!.median));
    rows.push(line("97.5 %", (name) => intervals[name]!.high));
  }
  return plainTable([{ key: "title", title: "" }, ...names.map(([key]) => ({ key }))], rows);
}

function qualityText({ best: { huberLoss, r2, fit }, bootstrap }: Study): string {
  const lines = [`Huber loss ${huberLoss.toExponential(4)}, R^2 ${r2.toFixed(6)}`];
  if (fit !== undefined) {
    lines.push(`${fit.startsConverged} of ${fit.starts} starts reach it`);
  }
  if (bootstrap !== undefined) {
    lines.push(`${bootstrap.laws.length} refits, ${bootstrap.dropped} without an optimum dropped`);
  }
  return lines.map((text) => `${text}\n`).join("");
}

function comparisonTable({ outcomes, best }: Study): string {
  const rows = outcomes.map((outcome) => {
    const { parameters: _, huber_loss, ...rest } = comparisonOf(outcome);
    const mark = outcome === best ? "smaller objective" : "";
    return { ...rest, huber_loss: huber_loss.toExponential(4), mark };
  });
  return plainTable([
    { key: "law" },
    { key: "huber_loss", title: "Huber loss" },
    { key: "r2", title: "R^2", digits: 6 },
    { key: "mark", title: "" },
  ], rows);
}

function answerTable(study: Study): string {
  const rows = study.questions.map((question) => {
    const { value, interval, refits_out_of_reach: beyond } = answerOf(question, study);
    const show = (number: number | undefined) =>
      number === undefined ? "-" : showAnswer(question.query, number);
    const given = Object.entries(question.given)
      .map(([name, number]) => `${name} ${formatNumber(number)}`);
    return {
      query: question.query.replaceAll("_", " "),
      given: given.join(", "),
      value: value === null ? "out of reach" : show(value),
      low: show(interval?.low),
      high: show(interval?.high),
      beyond: beyond === null || beyond === 0 ? "" : `${beyond} refits out of reach`,
    };
  });
  return plainTable([
    { key: "query" },
    { key: "given" },
    { key: "value" },
    ...(study.bootstrap === undefined ? [] : [
      { key: "low", title: "2.5 %" },
      { key: "high", title: "97.5 %" },
      { key: "beyond", title: "" },
    ]),
  ], rows);
}

function showAnswer(query: string, value: number): string {
  if (query === "loss") return value.toFixed(4);
  if (query === "saving") return `${(100 * value).toFixed(1)} %`;
  return query.startsWith("streams") && value < 1e6 ? value.toFixed(2) : value.toExponential(4);
}

const WIDTH = 560, HEIGHT = 360;
/** Points per curve. */
const STEPS = 60;
/** The paper's range of N; losses outside it extend the axis. */
const N_RANGE = [5e8, 5e9] as const;

/** Marks that differ as the colours do. */
const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "stroke"];

/** From the least to the largest. */
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
  const bySeries = (range: readonly unknown[]) => seriesScale(streams.map(label), range, WIDTH);
  return renderSvg({
    ...frameOf(study),
    encoding: {
      x: {
        field: "n",
        type: "quantitative",
        title: "parameters N (without embeddings)",
        scale: { type: "log", domain: range, nice: false },
        axis: { values: parameterTicks(range), labelExpr: PARAMETER_LABEL },
      },
      y: {
        field: "loss",
        type: "quantitative",
        title: "loss (nats per token)",
        scale: { zero: false },
      },
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
  const parameters = namesOf(law).map(([title, key]) =>
    `${title} = ${(law[key] as number).toPrecision(5)}`
  );
  return {
    ...FRAME,
    title: {
      text: `${name}, ${law.kind} law`,
      subtitle: [...parameters, `R² = ${r2.toFixed(4)}`].join(", "),
    },
    width: WIDTH,
    height: HEIGHT,
  };
}
