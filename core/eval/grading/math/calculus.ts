/**
 * Integrals, derivatives and limits of analytic functions, in floating point: by sums over a path or over
 * a circle, whose error falls exponentially with the number of points.
 */
import { add, type Complex, exp, multiply, real, size, subtract } from "./complex.ts";

type Analytic = (z: Complex) => Complex;

/** Points on a circle, and its radius: singularities are rarely as near. */
const CIRCLE_POINTS = 64, RADIUS = 1 / 16;

/** Step and extent of the tanh-sinh rule. */
const STEP = 1 / 32, EXTENT = 3;

/** Negative powers up to this one tell a pole from a gap that can be filled. */
const POLES = 3;

/** Coefficients of negative powers up to this size are rounding. */
const NEGLIGIBLE = 1e-10;

const UNDEFINED = real(NaN);

/** The integral along the line between two points. */
export function integral(f: Analytic, from: Complex, to: Complex): Complex {
  const half = multiply(subtract(to, from), real(0.5)), middle = add(from, half);
  let sum = real(0);
  for (let t = -EXTENT; t <= EXTENT; t += STEP) {
    const inner = Math.PI / 2 * Math.sinh(t);
    const weight = STEP * Math.PI / 2 * Math.cosh(t) / Math.cosh(inner) ** 2;
    const at = add(middle, multiply(half, real(Math.tanh(inner))));
    sum = add(sum, multiply(f(at), real(weight)));
  }
  return multiply(sum, half);
}

/** The derivative at a point. */
export function derivative(f: Analytic, at: Complex): Complex {
  return coefficient(f, at, 1);
}

/** The limit at a point, which is the mean over a circle about it; undefined at poles. */
export function limit(f: Analytic, at: Complex): Complex {
  const value = coefficient(f, at, 0);
  for (let pole = 1; pole <= POLES; pole++) {
    if (!(size(coefficient(f, at, -pole)) <= NEGLIGIBLE * Math.max(1, size(value)))) {
      return UNDEFINED;
    }
  }
  return value;
}

/** The limit at infinity. */
export function limitAtInfinity(f: Analytic, sign: 1 | -1): Complex {
  const inverse = (z: Complex): Complex => {
    const square = z.re ** 2 + z.im ** 2;
    return { re: sign * z.re / square, im: -sign * z.im / square };
  };
  return limit((z) => f(inverse(z)), real(0));
}

/** The coefficient of a power in the Laurent series about a point. */
function coefficient(f: Analytic, at: Complex, power: number): Complex {
  let sum = real(0);
  for (let i = 0; i < CIRCLE_POINTS; i++) {
    // Between the axes, where functions of real numbers have their cuts.
    const angle = 2 * Math.PI * (i + 0.5) / CIRCLE_POINTS;
    const point = add(at, multiply(real(RADIUS), exp({ re: 0, im: angle })));
    sum = add(sum, multiply(f(point), exp({ re: 0, im: -power * angle })));
  }
  return multiply(sum, real(RADIUS ** -power / CIRCLE_POINTS));
}
