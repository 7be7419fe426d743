/**
 * First values of parameters.
 *
 * Introduced tensors: prefixes, aggregator matrices and other transformations are normal with standard
 * deviation 0.02, as in the paper; biases and the second factor of LoRA are zero. The map of linear
 * aggregation is the average of the streams, since the output matrix of a trained model can read
 * nothing else; the paper does not give its first values. A model from scratch: matrices normal, norm
 * weights one, biases zero, and delta nets as transformers starts them.
 *
 * Each tensor draws from its own stream, keyed by its name, so its values depend on the seed alone
 * and not on sharding, order or which other tensors are made. The official initialiser leaves the
 * prefixes untouched, so creating a ParScale model has to write every one of these.
 */
import { RandomStream } from "../base/random.ts";
import type { ModelConfig } from "./config.ts";
import { elementCount, type ParameterSpec } from "./parameters.ts";

const STANDARD_DEVIATION = 0.02;

/** Rates of decay of a delta net, e^A, are drawn up to this. */
const LARGEST_RATE = 16;

/** Values `start` to `start + count` of an introduced tensor, in row-major order. */
export function introducedValues(
  spec: ParameterSpec,
  seed: number,
  start = 0,
  count = elementCount(spec.shape) - start,
): Float32Array<ArrayBuffer> {
  if (!spec.introduced) throw new Error(`${spec.name} is not an introduced tensor`);
  const values = new Float32Array(count);
  if (spec.name === "model.aggregate_layer.weight") return fillAverage(values, spec.shape, start);
  if (!/\.(bias|lora_b)$/.test(spec.name)) {
    new RandomStream(seed, spec.name).fillNormal(values, STANDARD_DEVIATION, start);
  }
  return values;
}

/** Rows of [C, P·C] that average streams: column c·P + p holds component c of stream p. */
function fillAverage(
  values: Float32Array<ArrayBuffer>,
  [C, width]: readonly number[],
  start: number,
): Float32Array<ArrayBuffer> {
  const P = width! / C!;
  return values.map((_, i) => {
    const row = Math.floor((start + i) / width!);
    const column = (start + i) % width!;
    return Math.floor(column / P) === row ? 1 / P : 0;
  });
}

/** All values of a parameter of a model that starts from nothing. */
export function scratchValues(
  spec: ParameterSpec,
  { family }: Pick<ModelConfig, "family">,
  seed: number,
  standardDeviation: number,
): Float32Array<ArrayBuffer> {
  if (spec.introduced) return introducedValues(spec, seed);
  const values = new Float32Array(elementCount(spec.shape));
  const { name } = spec;
  if (name.endsWith(".bias")) return values;
  const isLessOne = family === "qwen3_5" && !name.endsWith("linear_attn.norm.weight");
  if (/norm\.weight$/.test(name)) return isLessOne ? values : values.fill(1);
  if (name.endsWith(".dt_bias")) return values.fill(1);
  const random = new RandomStream(seed, name);
  if (name.endsWith(".A_log")) return values.map(() => Math.log(LARGEST_RATE * random.uniform()));
  random.fillNormal(values, standardDeviation);
  return values;
}
