/** A study for readers: text above the table of observations, the table, LaTeX rows. */
import type { Law, LawKind } from "../../../core/analysis/law.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { writeText } from "../../output/sink.ts";
import { type Column, formatNumber, plainTable } from "../../output/table.ts";
import {
  answerOf,
  comparisonOf,
  namesOf,
  parameterIntervals,
  resultOf,
  rowsOf,
  SCHEMA,
} from "./result.ts";
import type { Study } from "./study.ts";

const COLUMNS: readonly Column[] = [
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

/** Writes the result in the format that was asked for. */
export async function showStudy(study: Study, io: Io, invocation: Invocation): Promise<void> {
  const { format } = invocation;
  const isDocument = format === "json" || format === "jsonl";
  using report = openReport(io, invocation, {
    schema: SCHEMA,
    ...(!isDocument && { columns: COLUMNS }),
  });
  if (isDocument) return await report.finish(resultOf(study));
  report.remark(textOf(study));
  for (const row of rowsOf(study)) report.row(row);
  await report.finish();
}

/** Writes the rows of a LaTeX table. */
export function writeLatex(study: Study, io: Io, { out, overwrite }: Invocation): void {
  const lines = rowsOf(study).map(({ streams, n_params, predicted, loss, error }) => {
    const n = n_params.toLocaleString("en-US");
    const losses = [predicted, loss, error].map((value) => fixed(value));
    return `${[streams, n, ...losses].join(" & ")} \\\\\n`;
  });
  writeText(io, lines.join(""), out, overwrite);
}

/** Four decimals without a negative zero, in LaTeX's minus. */
function fixed(value: number): string {
  const text = value.toFixed(4);
  return Number(text) === 0 ? "0.0000" : text.replace(/^-/, () => "$-$");
}

/** Everything above the table. */
function textOf(study: Study): string {
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
  const { best: { law }, bootstrap } = study;
  const names = namesOf(law);
  const line = (title: string, valueOf: (name: string, key: keyof Law) => number) => ({
    title,
    ...Object.fromEntries(
      names.map(([name, key]) => [name, showParameter(name, valueOf(name, key))]),
    ),
  });
  const rows = [line("estimate", (_, key) => law[key] as number)];
  if (bootstrap !== undefined && bootstrap.laws.length > 0) {
    const intervals = parameterIntervals(study);
    rows.push(line("2.5 %", (name) => intervals[name]!.low));
    rows.push(line("50 %", (name) => intervals[name]!.median));
    rows.push(line("97.5 %", (name) => intervals[name]!.high));
  }
  return plainTable([{ key: "title", title: "" }, ...names.map(([key]) => ({ key }))], rows);
}

function qualityText({ best: { huberLoss, r2, fit }, bootstrap }: Study): string {
  const lines = [`Huber loss ${huberLoss.toExponential(4)}, R^2 ${r2.toFixed(6)}`];
  if (fit !== undefined) {
    const { startsConverged, starts, secondBest } = fit;
    const other = secondBest === undefined
      ? ""
      : `; the next optimum has ${secondBest.huberLoss.toExponential(4)}`;
    lines.push(`${startsConverged} of ${starts} starts reach it${other}`);
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
