/** A request under way, and how its next token is chosen from the outputs of a step. */
import { notFinite } from "../base/errors.ts";
import { GREEDY, sample, samplingNumbers } from "../base/sampling.ts";
import type { ModelConfig } from "../model/config.ts";
import type { ForwardOptions } from "../model/forward.ts";
import type { Device, HostArray } from "../runtime/device.ts";
import {
  applyLogitRules,
  applyMask,
  hasLogitRules,
  SeenTokens,
  type TokenMask,
} from "./logit_rules.ts";
import { tokenLogprobs } from "./logprobs.ts";
import type { FinishReason, GenerationRequest, TokenEvent, TokenLogprobs } from "./request.ts";
import { Drafter } from "./speculation.ts";

/** A request and what has been generated for it. */
export interface Sequence {
  readonly index: number;
  readonly request: GenerationRequest;
  /** New tokens that request and context allow. */
  readonly limit: number;
  /** Tokens in the cache, or on their way there. */
  used: number;
  /** New tokens so far. */
  readonly answer: number[];
  /** Present where rules need them. */
  readonly seen: SeenTokens | undefined;
  /** Present where tokens are drafted. */
  readonly drafter: Drafter | undefined;
  /** Mask of the tokens that may come next, where they are limited; undefined while it is not known yet. */
  mask?: TokenMask | undefined;
  /** Resolves when the mask, or why there is none, is known. */
  maskReady?: Promise<void>;
  maskError?: unknown;
  /** Choice of the next token, whose logits are there before the mask. */
  deferred?: (() => Choice) | undefined;
}

/** A chosen token with what the request wants to know about it. */
export type Choice = Pick<TokenEvent, "token" | "logprobs" | "weights">;

/** The outputs of a step: the row of each sequence is one of the selected tokens. */
export type Outputs = ReadonlyMap<string, HostArray>;

/** Begins a request whose tokens were checked; `speculates` says if tokens are drafted. */
export function openSequence(
  config: ModelConfig,
  index: number,
  request: GenerationRequest,
  speculates: boolean,
): Sequence {
  const room = config.maxPositionEmbeddings - request.tokens.length;
  // The token after a full context is chosen, but never fed back.
  const limit = Math.min(request.maxTokens, Math.max(room, request.promptLogprobs ? 1 : 0));
  const seen = hasLogitRules(request.sampling) ? new SeenTokens(request.tokens) : undefined;
  const drafter = speculates ? new Drafter(request.tokens) : undefined;
  return {
    index,
    request,
    limit,
    used: 0,
    answer: [],
    seen,
    drafter,
    mask: request.constraint?.first,
  };
}

/** Returns whether only the host can choose the token of a request, or has to look at logits. */
export function needsLogits(request: GenerationRequest): boolean {
  const { sampling, constraint, topLogprobs } = request;
  return hasLogitRules(sampling) || constraint !== undefined || topLogprobs !== undefined;
}

/** Adds a chosen token to the answer, and asks for the mask of the next one. */
export function append(sequence: Sequence, token: number): void {
  const { answer, request: { constraint, eosTokenIds } } = sequence;
  answer.push(token);
  sequence.seen?.add(token);
  sequence.drafter?.push(token);
  if (!constraint || eosTokenIds.includes(token)) return;
  sequence.mask = undefined;
  sequence.maskReady = constraint.after([...answer]).then(
    (mask) => void (sequence.mask = mask),
    (error) => void (sequence.maskError = error),
  );
}

/** Returns whether the next token can be chosen as soon as its logits are there. */
export function isReady({ request: { constraint }, mask, maskError }: Sequence): boolean {
  return !constraint || mask !== undefined || maskError !== undefined;
}

/**
 * The head that serves all these requests. Where reading logits is a copy, the device picks the tokens
 * if it can.
 */
export function headFor(device: Device, requests: readonly GenerationRequest[]): ForwardOptions {
  if (requests.some(needsLogits)) return { head: "logits" };
  const { samplesTokens, readbackIsCopy } = device.traits;
  const weights = requests.some(({ streamWeights }) => streamWeights);
  if (samplesTokens) return weights ? { head: "sample", weights } : { head: "sample" };
  const greedy = requests.every(({ sampling }) => sampling.temperature === 0);
  return { head: greedy && readbackIsCopy ? "greedy" : "logits" };
}

/** Returns the numbers by which a device chooses the next token of a request; any for a free row. */
export function numbersOf(request: GenerationRequest | undefined): number[] {
  const { sampling, random } = request ?? { sampling: GREEDY, random: { uniform: () => 0 } };
  return samplingNumbers(sampling, random);
}

/** Chooses the next token of a sequence from row `row` of a step's outputs. */
export function choose(
  config: ModelConfig,
  outputs: Outputs,
  row: number,
  sequence: Sequence,
): Choice {
  const { request: { sampling, random, topLogprobs, streamWeights } } = sequence;
  const weights = streamWeights ? weightsOf(config, outputs, row) : undefined;
  const logits = outputs.get("logits");
  if (!logits) return { token: tokenOf(outputs, row), weights };
  const V = config.vocabSize;
  const own = logits.subarray(row * V, (row + 1) * V);
  const { seen, mask, maskError } = sequence;
  if (maskError !== undefined) throw maskError;
  const changed = seen ? applyLogitRules(own, sampling, seen) : own;
  const token = sample(mask ? applyMask(changed, mask) : changed, sampling, random);
  const logprobs: TokenLogprobs | undefined = topLogprobs === undefined
    ? undefined
    : tokenLogprobs(own, token, topLogprobs);
  return { token, weights, logprobs };
}

function weightsOf({ streams: P }: ModelConfig, outputs: Outputs, row: number): Float32Array {
  const all = outputs.get("weights");
  return all ? Float32Array.from(all.subarray(row * P, (row + 1) * P)) : Float32Array.of(1);
}

function tokenOf(outputs: Outputs, row: number): number {
  const sampled = outputs.get("tokens");
  if (sampled) return checked(sampled[row]!);
  return checked(Number.isNaN(outputs.get("logprobs")![row]) ? -1 : outputs.get("argmax")![row]!);
}

/** A token; devices say by −1 that there was a NaN. */
export function checked(token: number): number {
  if (token < 0) throw notFinite("choose a token", "a NaN logit");
  return token;
}

/** Returns whether a sequence may have another token after the one that is under way. */
export function hasMore({ answer, limit }: Sequence): boolean {
  return answer.length + 1 < limit;
}

/** Why a sequence ends with its last token; undefined when it continues. */
export function finishReason({ request, answer, limit }: Sequence): FinishReason | undefined {
  const last = answer.at(-1)!;
  if (request.eosTokenIds.includes(last)) return "eos";
  if (request.shouldStop?.(last)) return "stop";
  return answer.length >= limit ? "length" : undefined;
}
