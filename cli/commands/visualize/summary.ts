/**
 * The statistics as a few tables, for the terminal and for the page alike.
 *
 * Takes a study; returns tables with a heading and a line on how to read them.
 */
import type { Column, Row } from "../../output/table.ts";
import { grouped } from "../../output/units.ts";
import type { Study } from "./result.ts";

/** A table with what it is about. */
export interface SummaryTable {
  readonly title: string;
  readonly columns: readonly Column[];
  readonly rows: readonly Row[];
  /** How to read it. */
  readonly note: string;
}

/** Texts listed one by one. */
const MOST_TEXTS = 50;

/** All tables, the most important first. */
export function summaryTables(study: Study): SummaryTable[] {
  return [
    streamTable(study),
    textTable(study),
    ...(study.agreement ? [agreementTable(study.agreement)] : []),
    ...(study.diversity ? [diversityTable(study.diversity, study.labels)] : []),
  ];
}

/** One line per stream. */
function streamTable({ labels, overall }: Study): SummaryTable {
  return {
    title: "Streams",
    columns: [
      { key: "stream" },
      { key: "share", title: "share of tokens", digits: 3 },
      { key: "weight", title: "mean weight", digits: 3 },
    ],
    rows: labels.map((stream, p) => ({
      stream,
      share: overall.shares[p],
      weight: overall.meanWeights[p],
    })),
    note: "share of tokens: those where the stream's weight is the largest",
  };
}

/** One line per text, and one for all. */
function textTable({ texts, each, overall }: Study): SummaryTable {
  const row = (text: unknown, of: Study["overall"]): Row => ({
    text,
    tokens: of.tokens,
    entropy: of.meanEntropy,
    of_equal: of.entropyShare,
    run: of.meanRunLength,
    chance: of.chanceRunLength,
    locality: of.locality,
  });
  const listed = texts.length < 2 ? [] : texts.slice(0, MOST_TEXTS);
  const rows = listed.map(({ id }, i) => row(String(id), each[i]!));
  const left = texts.length - listed.length;
  return {
    title: "Texts",
    columns: [
      { key: "text" },
      { key: "tokens" },
      { key: "entropy", title: "entropy (nats)", digits: 3 },
      { key: "of_equal", title: "of ln P", digits: 3 },
      { key: "run", title: "run (tokens)", digits: 2 },
      { key: "chance", title: "by chance", digits: 2 },
      { key: "locality", title: "ratio", digits: 2 },
    ],
    rows: [...rows, row("all", overall)],
    note: "run: consecutive tokens with one winner; by chance: winners drawn one by one" +
      (listed.length > 0 && left > 0 ? `; ${left} more texts are in the document of --json` : ""),
  };
}

function agreementTable(
  { shareOverlap, sameToken, sameTokenByChance, tokenPairs }: NonNullable<Study["agreement"]>,
): SummaryTable {
  const value = (x: number | undefined) => x ?? null;
  return {
    title: "Agreement between texts",
    columns: [{ key: "of" }, { key: "value", digits: 3 }, {
      key: "chance",
      title: "by chance",
      digits: 3,
    }],
    rows: [
      { of: "tokens given to the same streams", value: shareOverlap, chance: null },
      {
        of: "winners where a token stands in two texts",
        value: value(sameToken),
        chance: value(sameTokenByChance),
      },
    ],
    note: tokenPairs === 0
      ? "no token stands in two texts"
      : `${grouped(tokenPairs)} pairs of equal tokens in different texts`,
  };
}

function diversityTable(
  diversity: NonNullable<Study["diversity"]>,
  labels: readonly string[],
): SummaryTable {
  const { rho, rhoStandardError: standardError, tokens } = diversity;
  const error = standardError === undefined ? "" : ` ± ${standardError.toFixed(4)}`;
  const estimate = rho === undefined ? "unknown, as a stream never varies" : rho.toFixed(4) + error;
  const losses = [...diversity.streamLosses, diversity.meanMixtureLoss, diversity.modelLoss];
  return {
    title: `Diversity: rho ${estimate}`,
    columns: [
      { key: "of", title: "stream" },
      { key: "loss", title: "loss alone (nats)", digits: 4 },
      { key: "residual", title: "mean residual", digits: 4 },
    ],
    rows: [...labels, "mean of all", "model"].map((of, p) => ({
      of,
      loss: losses[p],
      residual: diversity.meanResiduals[p] ?? null,
    })),
    note: `${grouped(tokens)} predicted tokens; what every stream finds hard counts as ` +
      "correlation (see --help)",
  };
}
