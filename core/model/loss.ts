/**
 * The program of training and validation: whole rows of tokens in, one loss out.
 *
 * A row may hold several documents one after the other. Positions count from 0 in each, which tells
 * where it begins: attention never looks across that border. The loss is a sum over tokens, not a
 * mean, so that the gradients of several micro-batches add up to exactly those of one large batch.
 */
import { Builder } from "../graph/builder.ts";
import type { Program } from "../graph/program.ts";
import type { Value } from "../graph/value.ts";
import { tokenLogprobs } from "../ops/token_logprobs.ts";
import type { ModelConfig } from "./config.ts";
import {
  mixAndProject,
  type Parameter,
  parameterDeclarer,
  runLayers,
  tablesByRows,
} from "./parscale.ts";
import { type BlockContext, NO_STATES } from "./block_context.ts";

/** Sizes of one loss program. */
export interface LossSizes {
  /** B: rows. */
  readonly batch: number;
  /** T: tokens per row. */
  readonly tokens: number;
  /** K: most tokens that count; all B·T if left out. The output matrix is multiplied by K rows. */
  readonly counted?: number | undefined;
}

/** Puts other values in the place of some parameters; undefined leaves a parameter as it is. */
export type Substitute = (g: Builder) => (name: string) => Value | undefined;

/**
 * Builds the loss program.
 *
 * Inputs: `ids` and `positions` [B, T] i32; with K < B·T `slots` [K] i32, different ones among the B·T;
 * `targets` [K] i32, the token after each; `predicted` [K] f32, 1 where that token counts and 0 where it
 * does not. Outputs: `loss`, a scalar, minus the sum of the log-probabilities of the predicted tokens; with
 * P > 1 `weight_sums` [P], the aggregation weights summed over these tokens.
 */
export function buildLoss(
  config: ModelConfig,
  { batch: B, tokens: T, counted: K = B * T }: LossSizes,
  substitute: Substitute = () => () => undefined,
): Program {
  const { streams: P, hiddenSize: C } = config;
  const N = B * T;
  const g = new Builder("loss");
  const ids = g.input("ids", { dtype: "i32", shape: [B, T] });
  const positions = g.input("positions", { dtype: "i32", shape: [B, T] });
  const targets = g.input("targets", { dtype: "i32", shape: [K] });
  const predicted = g.input("predicted", { dtype: "f32", shape: [K] });

  const declared = parameterDeclarer(g, config);
  const substituted = substitute(g);
  const parameter: Parameter = (name) => substituted(name) ?? declared(name);
  const slots = g.iota(T);
  const context: BlockContext = {
    config,
    parameter,
    // The token in slot t is number `position` of its document, which therefore begins that far before.
    visible: { first: slots.sub(positions), last: slots.broadcast([B, T]) },
    tables: tablesByRows(config, positions),
    keep: (_kind, _layer, update) => update.transpose([0, 2, 1, 3]),
    states: NO_STATES,
  };
  const x = runLayers(context, ids).reshape([P, N, C]);
  const kept = K < N ? x.gather(g.input("slots", { dtype: "i32", shape: [K] }), 1) : x;
  const { logits, weights } = mixAndProject(context, kept);
  const logprobs = tokenLogprobs({ logits, targets }).mul(predicted);
  const total = logprobs.sum(0).reshape([]);
  g.output("loss", total.mul(-1));
  if (weights) {
    const sums = predicted.reshape([1, K]).matmul(weights);
    g.output("weight_sums", sums.reshape([P]));
  }
  return g.build();
}
