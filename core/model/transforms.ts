/**
 * Changes of a stream to the linear layers: the input transformations of the
 * paper's ablation (appendix A), besides or instead of a prefix.
 *
 *   LoRA    y_p = W x_p + b + 2 B_p A_p x_p     A_p [r, in] normal, B_p [out, r] zero at the start
 *   BitFit  y_p = W x_p + b + c_p               c_p [out] normal at the start
 *
 * Each stream has tensors of its own, so unlike usual LoRA they cannot be merged into the weights
 * unless there is only one stream. The factor 2 is the usual α = 2r; an adapter of PEFT has its own.
 */
import type { Value } from "../graph/value.ts";
import { linear } from "../ops/linear.ts";
import { hasLora, isDeltaNet, type ModelConfig } from "./config.ts";

/** Factor of the product of the low-rank matrices. */
export const LORA_SCALE = 2;

/** Operands of a projection besides its input. */
export interface ProjectContext {
  readonly config: ModelConfig;
  readonly parameter: (name: string) => Value;
}

/** Returns whether linear layers differ from stream to stream. */
function transforms(config: ModelConfig): boolean {
  return config.loraRank > 0 || config.bitfit;
}

/**
 * Returns whether q, k and v of layer 0 are the same for all streams, which then part only at its attention;
 * so it is unless something other than keys and values of a prefix tells the streams apart.
 */
export function sharesFirstLayer(config: ModelConfig): boolean {
  return config.prefix && !transforms(config) && !isDeltaNet(config, 0);
}

/** The linear layer `name` with what each stream adds to it: x [rows·T, in] → [rows·T, out] */
export function project(context: ProjectContext, name: string, x: Value, bias = false): Value {
  const { config, parameter } = context;
  const plain = linear({
    x,
    weight: parameter(`${name}.weight`),
    bias: bias ? parameter(`${name}.bias`) : undefined,
  });
  if (!transforms(config)) return plain;
  const { streams: P } = config;
  const byStream = (flat: Value) => flat.reshape([P, flat.shape[0]! / P, flat.shape[1]!]);
  let y = byStream(plain); // [P, N, out]
  if (hasLora(config, name)) {
    const transposed = { transposeB: true };
    const low = byStream(x).matmul(parameter(`${name}.lora_a`), transposed); // [P, N, r]
    const update = low.matmul(parameter(`${name}.lora_b`), transposed);
    y = y.add(update.mul(config.lora?.scale ?? LORA_SCALE));
  }
  if (config.bitfit) {
    const own = parameter(`${name}.stream_bias`);
    y = y.add(own.reshape([P, 1, own.shape[1]!]));
  }
  return y.reshape(plain.shape);
}
