/**
 * First values of the introduced tensors: prefixes and aggregator matrices are normal with standard
 * deviation 0.02, as in the paper, and biases are zero.
 *
 * Each tensor draws from its own stream, keyed by its name, so its values depend on the seed alone
 * and not on sharding, order or which other tensors are made. The official initialiser leaves the
 * prefixes untouched, so whoever creates a ParScale model has to write every one of these.
 */
import { RandomStream } from "../random.ts";
import { elementCount, type ParameterSpec } from "./parameters.ts";

const STANDARD_DEVIATION = 0.02;

/** Values `start` to `start + count` of an introduced tensor, in row-major order. */
export function introducedValues(
  spec: ParameterSpec,
  seed: number,
  start = 0,
  count = elementCount(spec.shape) - start,
): Float32Array<ArrayBuffer> {
  if (!spec.introduced) throw new Error(`${spec.name} is not an introduced tensor`);
  const values = new Float32Array(count);
  if (!spec.name.endsWith(".bias")) {
    new RandomStream(seed, spec.name).fillNormal(values, STANDARD_DEVIATION, start);
  }
  return values;
}
