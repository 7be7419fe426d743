/** What is shown as fields with fixed names: rows per token, and the statistics of a document. */
import { type Diversity, diversityOf } from "../../../core/analysis/diversity.ts";
import {
  agreementOf,
  describeStreams,
  entropyOf,
  type StreamStatistics,
  type TextAgreement,
  winnerOf,
} from "../../../core/analysis/streams.ts";
import type { Column, Row } from "../../output/table.ts";
import type { MeasuredText } from "./measure.ts";

/** Name and version of the layout. */
export const SCHEMA = "parscale.visualize/2";

/** All texts with everything said of them. */
export interface Study {
  /** Name of the checkpoint, for headings. */
  readonly model: string;
  /** Names of the streams, in their order. */
  readonly labels: readonly string[];
  readonly texts: readonly MeasuredText[];
  /** All texts together. */
  readonly overall: StreamStatistics;
  /** One per text. */
  readonly each: readonly StreamStatistics[];
  /** Undefined for a single text. */
  readonly agreement: TextAgreement | undefined;
  /** Undefined unless asked for, and where no token has one before it. */
  readonly diversity: Diversity | undefined;
}

/** Computes the statistics. */
export function studyTexts(
  model: string,
  labels: readonly string[],
  texts: readonly MeasuredText[],
): Study {
  const predictions = texts.flatMap(({ streamLogprobs, logprobs }) =>
    streamLogprobs ? [{ streams: streamLogprobs, model: logprobs }] : []
  );
  return {
    model,
    labels,
    texts,
    overall: describeStreams(texts),
    each: texts.map((text) => describeStreams([text])),
    agreement: agreementOf(texts),
    diversity: diversityOf(predictions),
  };
}

/** One row per token. */
export function* rowsOf(text: MeasuredText, labels: readonly string[]): Generator<Row> {
  const { id, tokens, pieces, weights, logprobs, streamLogprobs } = text;
  for (const [position, token] of tokens.entries()) {
    const stream = winnerOf(weights[position]!);
    yield {
      text_id: id,
      position,
      token,
      text: pieces[position] ?? null,
      winner: labels[stream]!,
      stream,
      weights: weights[position]!,
      entropy: entropyOf(weights[position]!),
      logprob: logprobs[position - 1] ?? null,
      ...(streamLogprobs ? { stream_logprobs: streamLogprobs[position - 1] ?? null } : {}),
    };
  }
}

/** Columns of CSV and Markdown, which have one for every weight. */
export function columnsOf(labels: readonly string[]): Column[] {
  return [
    ...["text_id", "position", "token", "text", "winner"].map((key) => ({ key })),
    { key: "entropy", digits: 4 },
    { key: "logprob", digits: 4 },
    ...labels.map((label) => ({ key: `weight_${label}`, digits: 4 })),
  ];
}

/** A row with its weights side by side. */
export function flatRow(row: Row, labels: readonly string[]): Row {
  const weights = row.weights as Float32Array;
  const named = labels.map((label, p) => [`weight_${label}`, weights[p]!]);
  return { ...row, ...Object.fromEntries(named) };
}

/** Everything a document says. */
export function resultOf({ labels, texts, overall, each, agreement, diversity }: Study): Row {
  return {
    streams: labels.length,
    labels,
    statistics: statisticsOf(overall),
    texts: texts.map(({ id }, i) => ({ text_id: id, ...statisticsOf(each[i]!) })),
    agreement: agreement
      ? {
        share_overlap: agreement.shareOverlap,
        same_token: agreement.sameToken,
        same_token_by_chance: agreement.sameTokenByChance,
        token_pairs: agreement.tokenPairs,
      }
      : null,
    diversity: diversity
      ? {
        tokens: diversity.tokens,
        rho: diversity.rho,
        rho_standard_error: diversity.rhoStandardError,
        mean_residuals: diversity.meanResiduals,
        stream_losses: diversity.streamLosses,
        mean_mixture_loss: diversity.meanMixtureLoss,
        model_loss: diversity.modelLoss,
      }
      : null,
    rows: texts.flatMap((text) => [...rowsOf(text, labels)]),
  };
}

function statisticsOf(statistics: StreamStatistics): Row {
  return {
    tokens: statistics.tokens,
    shares: statistics.shares,
    mean_weights: statistics.meanWeights,
    mean_entropy: statistics.meanEntropy,
    entropy_share: statistics.entropyShare,
    mean_run_length: statistics.meanRunLength,
    chance_run_length: statistics.chanceRunLength,
    locality: statistics.locality,
  };
}
