/**
 * Prefix reparameterisation (Li and Liang 2021): while training, prefixes are the output of a small
 * MLP, whose smoother surface is easier to descend; on saving they are folded into plain prefixes.
 *
 *   prefixes = W₂ silu(W₁ e + b₁) + b₂      e [P, M, R] learned, one row per stream and prefix token
 *
 * One row gives the keys and values of all L layers of softmax attention at its place: L · 2 · K · D
 * numbers. States that delta nets start from are learned as they are.
 */
import { Builder } from "../graph/builder.ts";
import type { Program } from "../graph/program.ts";
import type { Value } from "../graph/value.ts";
import { silu } from "../ops/activation.ts";
import { linear } from "../ops/linear.ts";
import { RandomStream } from "../base/random.ts";
import { attentionLayers, type ModelConfig } from "./config.ts";
import type { Substitute } from "./loss.ts";
import { elementCount, type ParameterSpec } from "./parameters.ts";

/** Tensors of the MLP with R hidden units; they exist only while training. */
export function reparameterSpecs(config: ModelConfig, R: number): ParameterSpec[] {
  const { streams: P, prefixTokens: M } = config;
  const width = rowWidth(config);
  const spec = (name: string, ...shape: number[]): ParameterSpec => ({
    name: `prefix_mlp.${name}`,
    shape,
    introduced: true,
  });
  return [
    spec("embedding", P, M, R),
    spec("0.weight", R, R),
    spec("0.bias", R),
    spec("2.weight", width, R),
    spec("2.bias", width),
  ];
}

/** First values: such that the prefixes begin about as small as the usual ones. */
export function reparameterValues(
  spec: ParameterSpec,
  R: number,
  seed: number,
): Float32Array<ArrayBuffer> {
  const values = new Float32Array(elementCount(spec.shape));
  if (spec.name.endsWith(".bias")) return values;
  const deviation = { "prefix_mlp.embedding": 1, "prefix_mlp.0.weight": R ** -0.5 }[spec.name] ??
    0.04 * R ** -0.5;
  new RandomStream(seed, spec.name).fillNormal(values, deviation);
  return values;
}

/** Puts the MLP's output in the place of every prefix. */
export function reparameterized(config: ModelConfig, R: number): Substitute {
  return (g) => {
    let prefixes: ReadonlyMap<string, Value> | undefined;
    return (name) => {
      if (!/\.prefix_[kv]$/.test(name)) return undefined;
      prefixes ??= buildPrefixes(g, config, R);
      return prefixes.get(name);
    };
  };
}

/** A program from the MLP's tensors to the prefixes, which are its outputs by their own names. */
export function buildFold(config: ModelConfig, R: number): Program {
  const g = new Builder("fold_prefixes");
  for (const [name, value] of buildPrefixes(g, config, R)) g.output(name, value);
  return g.build();
}

function buildPrefixes(g: Builder, config: ModelConfig, R: number): Map<string, Value> {
  const { streams: P, prefixTokens: M, numKeyValueHeads: K, headDim: D } = config;
  const specs = reparameterSpecs(config, R);
  const [embedding, w1, b1, w2, b2] = specs.map(({ name, shape }) =>
    g.parameter(name, { dtype: "f32", shape })
  ) as [Value, Value, Value, Value, Value];
  const hidden = silu({ x: linear({ x: embedding.reshape([P * M, R]), weight: w1, bias: b1 }) });
  const all = linear({ x: hidden, weight: w2, bias: b2 }); // [P·M, L·2·K·D]
  const prefixes = new Map<string, Value>();
  for (const [at, layer] of attentionLayers(config).entries()) {
    ["prefix_k", "prefix_v"].forEach((kind, i) => {
      const start = (2 * at + i) * K * D;
      const own = all.slice(1, start, start + K * D).reshape([P, M, K, D]);
      const name = `model.layers.${layer}.self_attn.${kind}`;
      prefixes.set(name, own.transpose([0, 2, 1, 3])); // [P, K, M, D]
    });
  }
  return prefixes;
}

function rowWidth(config: ModelConfig): number {
  const { numKeyValueHeads: K, headDim: D } = config;
  return attentionLayers(config).length * 2 * K * D;
}
