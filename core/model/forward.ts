/**
 * The program of inference: prefill, decoding and scoring are one.
 *
 * It appends T tokens to each of B sequences, starting at slot `start[b]` of the KV cache, and computes
 * results for the `select`ed tokens only. Sequences may have different lengths: what lies in the cache
 * after a sequence's last token is never read, and is overwritten by its next tokens.
 */
import { Builder } from "../graph/builder.ts";
import type { Program } from "../graph/program.ts";
import { concat, type Value } from "../graph/value.ts";
import { repeatStreams } from "../ops/repeat_streams.ts";
import { sampleTokens } from "../ops/sample.ts";
import { tokenLogprobs } from "../ops/token_logprobs.ts";
import { SAMPLING_NUMBERS } from "../base/sampling.ts";
import { type ModelConfig, plainConfig } from "./config.ts";
import { mixAndProject, parameterDeclarer, runLayers, tablesByRows } from "./parscale.ts";
import { type BlockContext, NO_STATES, STATE_KINDS, type States } from "./block_context.ts";
import { startOf, stateShapes } from "./delta_net.ts";

/** Sizes of one forward program. */
export interface ForwardSizes {
  /** B: sequences. */
  readonly batch: number;
  /** T: new tokens per sequence. */
  readonly tokens: number;
  /** S: slots of the KV cache; at least `start + tokens` of every sequence. */
  readonly capacity: number;
  /** N: tokens for which results are computed. */
  readonly selected: number;
}

/** Results of a forward program for the selected tokens. */
export interface ForwardOptions {
  /**
   * `logits`: `logits` [N, V]. `score`: `logprobs` [N] of the input `targets` [N], and `argmax` [N].
   * `greedy`: `argmax` [N] and `logprobs` [N] of it, which is NaN where a logit is.
   * `streams`: besides these two `stream_logprobs` [N, P], what each stream says when it is alone.
   * `sample`: `tokens` [N], chosen as the input `sampling` [N, 6] says; see core/ops/sample.ts.
   * `none`: no results, for a caller that reads keys and values; the output layer is not loaded.
   */
  readonly head: "logits" | "score" | "greedy" | "streams" | "sample" | "none";
  /** True if `sample` returns the aggregation weights, as all other heads do. */
  readonly weights?: boolean;
  /** Element type of the KV cache; f32 unless the device wants another. */
  readonly cacheType?: "f32" | "bf16" | "f16" | undefined;
  /** True if attention finds slots through the input `table` [B, S]; see `Visible.table`. */
  readonly table?: boolean;
  /**
   * True for a program that runs without an engine, of one sequence and one selected token: a sequence at
   * slot 0 begins with the states that delta nets start from, which `buildStart` writes otherwise, and tokens
   * after the selected one change no states.
   */
  readonly standsAlone?: boolean;
  /** Adds `trace.layer<i>` outputs, the residual stream after each layer, for tests. */
  readonly trace?: boolean;
}

/**
 * Builds the forward program.
 *
 * Inputs, all i32: `ids` [B, T]; `start` [B], the slot of the first new token; `positions` [B, T],
 * `start[b] + t`; `select` [N], flat indices b·T + t; for `score` and `streams` `targets` [N]; where
 * the option says so `table` [B, S]; for `sample`, in f32, `sampling` [N, 6]. State: `keys.<layer>`,
 * `values.<layer>` [P·B, K, S, D], with B rows in layer 0 where the streams share it. A model with delta
 * nets also has `counts` [B], tokens of each sequence that change its states, and beside a table `sources`
 * [B], the sequence whose states each continues; they are `conv.<layer>` and `delta.<layer>` in f32, see
 * `StateKind`.
 * Outputs: see `ForwardOptions.head`; with P > 1 also `weights` [N, P], the aggregation weights, unless
 * only tokens are wanted or the aggregator is linear and has none.
 */
export function buildForward(
  config: ModelConfig,
  sizes: ForwardSizes,
  options: ForwardOptions,
): Program {
  const { batch: B, tokens: T, capacity: S, selected: N } = sizes;
  const { streams: P, hiddenSize: C } = config;
  const { cacheType = "f32" } = options;
  const g = new Builder(`forward.${options.head}`);
  const ids = g.input("ids", { dtype: "i32", shape: [B, T] });
  const start = g.input("start", { dtype: "i32", shape: [B] });
  const chosen = g.input("select", { dtype: "i32", shape: [N] });
  const positions = g.input("positions", { dtype: "i32", shape: [B, T] });
  const table = options.table ? g.input("table", { dtype: "i32", shape: [B, S] }) : undefined;
  const counts = !config.delta
    ? undefined
    : options.standsAlone
    ? chosen.add(1)
    : g.input("counts", { dtype: "i32", shape: [B] });

  const starts = new Map([[P * B, repeatStreams(start, P)], [B, start]]);
  const cached = (kind: string, layer: number, update: Value) => {
    const [rows, , K, D] = update.shape as [number, number, number, number];
    const buffer = g.state(`${kind}.${layer}`, { dtype: cacheType, shape: [rows, K, S, D] });
    const slots = update.transpose([0, 2, 1, 3]).cast(cacheType);
    const written = buffer.writeSlots(slots, starts.get(rows)!);
    g.update(`${kind}.${layer}`, written);
    return written.cast("f32");
  };
  const context: BlockContext = {
    config,
    parameter: parameterDeclarer(g, config),
    visible: { last: positions, table },
    tables: tablesByRows(config, positions),
    keep: cached,
    states: counts
      ? cachedStates(g, config, {
        counts,
        starts: options.standsAlone ? starts.get(P * B)! : undefined,
        sources: table && g.input("sources", { dtype: "i32", shape: [B] }),
      })
      : NO_STATES,
  };
  const trace = (name: string, value: Value) => {
    if (options.trace) g.output(`trace.${name}`, value);
  };

  const x = runLayers(context, ids, (layer, value) => trace(`layer${layer}`, value));
  if (options.head === "none") return g.build();
  // Everything after the last layer is per token, so only the selected tokens take part.
  const selected = x.reshape([P, B * T, C]).gather(chosen, 1); // [P, N, C]
  const { logits, weights } = mixAndProject(context, selected, trace);
  const isAsked = options.head !== "sample" || options.weights === true;
  if (weights && isAsked) g.output("weights", weights);
  if (options.head === "logits") g.output("logits", logits);
  else if (options.head === "sample") {
    const sampling = g.input("sampling", { dtype: "f32", shape: [N, SAMPLING_NUMBERS] });
    g.output("tokens", sampleTokens(logits, sampling));
  } else {
    const best = logits.argmax(-1).reshape([N]);
    g.output("argmax", best);
    const targets = options.head === "greedy"
      ? best
      : g.input("targets", { dtype: "i32", shape: [N] });
    g.output("logprobs", tokenLogprobs({ logits, targets }));
    if (options.head === "streams") {
      g.output("stream_logprobs", streamLogprobs(context, selected, targets));
    }
  }
  return g.build();
}

/** States of delta nets in the cache. */
function cachedStates(
  g: Builder,
  { streams: P, delta }: ModelConfig,
  { counts, starts, sources }: {
    /** [B] */
    readonly counts: Value;
    /** [P·B]; given where a sequence at slot 0 begins with the states that it starts from. */
    readonly starts: Value | undefined;
    /** The sequence whose states each continues, [B]. */
    readonly sources: Value | undefined;
  },
): States {
  const buffers = new Map<string, Value>();
  return {
    counts: repeatStreams(counts, P),
    before(kind, layer, start) {
      const name = `${kind}.${layer}`, B = counts.shape[0]!;
      const own = stateShapes(delta!)[kind], shape = [P * B, ...own];
      const buffer = g.state(name, { dtype: "f32", shape });
      buffers.set(name, buffer);
      const continued = sources
        ? buffer.reshape([P, B, ...own]).gather(sources, 1).reshape(shape)
        : buffer;
      if (!starts) return continued;
      const isNew = starts.lessEqual(0).reshape(shape.map((size, axis) => axis === 0 ? size : 1));
      return isNew.select(start(), continued);
    },
    after(kind, layer, state) {
      const name = `${kind}.${layer}`;
      g.update(name, buffers.get(name)!.assign(state));
    },
  };
}

/**
 * The program that gives states to new sequences: input `isNew` [B] i32, 1 for each; states as those of the
 * forward program.
 */
export function buildStart(config: ModelConfig, batch: number): Program {
  const { streams: P } = config;
  const g = new Builder("start");
  const isNew = g.input("isNew", { dtype: "i32", shape: [batch] });
  const parameter = parameterDeclarer(g, config);
  config.delta!.layers.forEach((isDelta, layer) => {
    if (!isDelta) return;
    for (const kind of STATE_KINDS) {
      const shape = stateShapes(config.delta!)[kind];
      const name = `${kind}.${layer}`, type = [P, batch, ...shape];
      const buffer = g.state(name, { dtype: "f32", shape: [P * batch, ...shape] });
      const start = startOf({ config, parameter }, kind, layer, g);
      const flags = isNew.reshape([1, batch, ...shape.map(() => 1)]);
      const own = start.reshape([start.shape[0]!, 1, ...shape]);
      const state = flags.lessEqual(0).select(buffer.reshape(type), own);
      g.update(name, buffer.assign(state.reshape(buffer.shape)));
    }
  });
  return g.build();
}

/**
 * Log-probabilities of the targets under each stream by itself: x [P, N, C] → [N, P]. A stream alone
 * is a plain model, so its own normed hidden state goes straight to the output matrix. One after the
 * other, since [P, N, V] would be the largest tensor by far.
 */
function streamLogprobs(context: BlockContext, x: Value, targets: Value): Value {
  const [P, N] = x.shape as [number, number, number];
  const alone = { ...context, config: plainConfig(context.config) };
  const columns = Array.from({ length: P }, (_, p) => {
    const { logits } = mixAndProject(alone, x.slice(0, p, p + 1));
    return tokenLogprobs({ logits, targets }).reshape([N, 1]);
  });
  return P === 1 ? columns[0]! : concat(columns, 1);
}
