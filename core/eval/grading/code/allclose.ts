/**
 * `numpy.allclose` on Python values, without numpy.
 *
 * Both sides become arrays: nested lists and tuples of one shape, of numbers only. What numpy cannot
 * make such an array of, or could only as objects, is not close to anything. Shapes broadcast, as
 * there. The relative tolerance belongs to the expected side, and NaN is close to nothing.
 */
import type { Value } from "./values.ts";

const RELATIVE = 1e-7;

type Complex = readonly [number, number];

interface Numbers {
  readonly shape: readonly number[];
  readonly data: readonly Complex[];
}

/** Returns whether every element is within `atol + 1e-7 |expected|`. */
export function allclose(actual: Value, expected: Value, atol: number): boolean {
  const [a, b] = [toNumbers(actual), toNumbers(expected)];
  if (!a || !b) return false;
  const shape = broadcast(a.shape, b.shape);
  if (!shape) return false;
  const count = shape.reduce((product, size) => product * size, 1);
  for (let index = 0; index < count; index++) {
    if (!close(at(a, shape, index), at(b, shape, index), atol)) return false;
  }
  return true;
}

function close([ar, ai]: Complex, [br, bi]: Complex, atol: number): boolean {
  if ([ar, ai, br, bi].every(Number.isFinite)) {
    return Math.hypot(ar - br, ai - bi) <= atol + RELATIVE * Math.hypot(br, bi);
  }
  return ar === br && ai === bi;
}

/** Integers beyond these have no numeric dtype. */
const [SMALLEST, LARGEST] = [-(2n ** 63n), 2n ** 64n - 1n];

function toNumbers(value: Value): Numbers | undefined {
  switch (value.kind) {
    case "bool":
    case "float":
      return { shape: [], data: [[Number(value.value), 0]] };
    case "int":
      if (value.value < SMALLEST || value.value > LARGEST) return undefined;
      return { shape: [], data: [[Number(value.value), 0]] };
    case "complex":
      return { shape: [], data: [value.value] };
    case "list":
    case "tuple": {
      const rows = value.items.map(toNumbers);
      const shape = rows[0]?.shape ?? [];
      if (!rows.every((row) => row && String(row.shape) === String(shape))) return undefined;
      return { shape: [rows.length, ...shape], data: rows.flatMap((row) => row!.data) };
    }
    default:
      return undefined;
  }
}

function broadcast(a: readonly number[], b: readonly number[]): number[] | undefined {
  const rank = Math.max(a.length, b.length);
  const shape: number[] = [];
  for (let axis = 1; axis <= rank; axis++) {
    const [x, y] = [a[a.length - axis] ?? 1, b[b.length - axis] ?? 1];
    if (x !== y && x !== 1 && y !== 1) return undefined;
    shape.unshift(x === 1 ? y : x);
  }
  return shape;
}

/** The element of `numbers` at a flat index of the broadcast shape. */
function at({ shape, data }: Numbers, whole: readonly number[], index: number): Complex {
  let position = 0;
  let stride = 1;
  for (let axis = 1; axis <= whole.length; axis++) {
    const size = whole[whole.length - axis]!;
    const own = shape[shape.length - axis];
    if (own !== undefined && own !== 1) position += (index % size) * stride;
    stride *= own ?? 1;
    index = Math.floor(index / size);
  }
  return data[position]!;
}
