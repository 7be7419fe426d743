/**
 * Complex numbers and the functions of school mathematics on them, principal values throughout.
 *
 * Nothing is checked. A division by zero or an overflow yields a value that is not finite, which
 * the caller takes for undefined.
 */

/** A complex number. */
export interface Complex {
  readonly re: number;
  readonly im: number;
}

const I: Complex = { re: 0, im: 1 };
const ONE: Complex = { re: 1, im: 0 };

/** A real number. */
export const real = (re: number): Complex => ({ re, im: 0 });

export const add = (a: Complex, b: Complex): Complex => ({ re: a.re + b.re, im: a.im + b.im });
export const negate = ({ re, im }: Complex): Complex => ({ re: -re, im: -im });
export const subtract = (a: Complex, b: Complex): Complex => add(a, negate(b));
export const conjugate = ({ re, im }: Complex): Complex => ({ re, im: -im });
export const size = ({ re, im }: Complex): number => Math.hypot(re, im);

/** a · b. */
export function multiply(a: Complex, b: Complex): Complex {
  return { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re };
}

/** a / b. */
export function divide(a: Complex, b: Complex): Complex {
  // Scaled, so that squares neither overflow nor vanish.
  const scale = Math.max(Math.abs(b.re), Math.abs(b.im));
  const unit = { re: b.re / scale, im: b.im / scale };
  const norm = unit.re ** 2 + unit.im ** 2;
  const product = multiply(a, conjugate(unit));
  return { re: product.re / norm / scale, im: product.im / norm / scale };
}

/** eᶻ. */
export function exp({ re, im }: Complex): Complex {
  const radius = Math.exp(re);
  return im === 0 ? real(radius) : { re: radius * Math.cos(im), im: radius * Math.sin(im) };
}

/** The natural logarithm, its imaginary part in (−π, π]. */
export function ln(z: Complex): Complex {
  return { re: Math.log(size(z)), im: Math.atan2(z.im + 0, z.re) }; // + 0: no cut below −0
}

/** baseᵉ; 0⁰ is 1. */
export function power(base: Complex, exponent: Complex): Complex {
  const isWhole = exponent.im === 0 && Number.isInteger(exponent.re);
  if (isWhole && Math.abs(exponent.re) <= 1024) {
    const result = wholePower(base, Math.abs(exponent.re));
    return exponent.re < 0 ? divide(ONE, result) : result;
  }
  if (base.re === 0 && base.im === 0) return exponent.re > 0 ? base : real(NaN);
  if (exponent.re === 0.5 && exponent.im === 0) return squareRoot(base);
  return exp(multiply(exponent, ln(base)));
}

/** By repeated squaring, more exact than logarithms. */
function wholePower(base: Complex, exponent: number): Complex {
  let result = ONE;
  for (let n = exponent, square = base; n > 0; n = Math.floor(n / 2)) {
    if (n % 2 === 1) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

function squareRoot(z: Complex): Complex {
  if (z.im === 0) {
    return z.re >= 0 ? real(Math.sqrt(z.re)) : { re: 0, im: Math.sqrt(-z.re) };
  }
  const radius = size(z);
  const re = Math.sqrt((radius + z.re) / 2);
  return { re, im: Math.sign(z.im) * Math.sqrt((radius - z.re) / 2) };
}

const timesI = (z: Complex): Complex => multiply(I, z);
const overI = (z: Complex): Complex => divide(z, I);
const half = (z: Complex): Complex => ({ re: z.re / 2, im: z.im / 2 });
const reciprocal = (z: Complex): Complex => divide(ONE, z);
const square = (z: Complex): Complex => multiply(z, z);

const sinh = (z: Complex): Complex => half(subtract(exp(z), exp(negate(z))));
const cosh = (z: Complex): Complex => half(add(exp(z), exp(negate(z))));
const tanh = (z: Complex): Complex => divide(sinh(z), cosh(z));
const sin = (z: Complex): Complex => z.im === 0 ? real(Math.sin(z.re)) : overI(sinh(timesI(z)));
const cos = (z: Complex): Complex => z.im === 0 ? real(Math.cos(z.re)) : cosh(timesI(z));
const tan = (z: Complex): Complex => divide(sin(z), cos(z));

const arsinh = (z: Complex): Complex => ln(add(z, squareRoot(add(square(z), ONE))));
const arcosh = (z: Complex): Complex =>
  ln(add(z, multiply(squareRoot(subtract(z, ONE)), squareRoot(add(z, ONE)))));
const artanh = (z: Complex): Complex => half(subtract(ln(add(ONE, z)), ln(subtract(ONE, z))));
const arcsin = (z: Complex): Complex => overI(arsinh(timesI(z)));
const arccos = (z: Complex): Complex => subtract(real(Math.PI / 2), arcsin(z));
const arctan = (z: Complex): Complex => overI(artanh(timesI(z)));

/** Functions of one argument with names of their own in LaTeX. */
export const FUNCTIONS = {
  ...{ exp, ln, sin, cos, tan, sinh, cosh, tanh, arcsin, arccos, arctan, arsinh, arcosh, artanh },
  csc: (z: Complex) => reciprocal(sin(z)),
  sec: (z: Complex) => reciprocal(cos(z)),
  cot: (z: Complex) => divide(cos(z), sin(z)),
  arccsc: (z: Complex) => arcsin(reciprocal(z)),
  arcsec: (z: Complex) => arccos(reciprocal(z)),
  arccot: (z: Complex) => arctan(reciprocal(z)),
} as const;

/** Lanczos' coefficients for g = 7. */
const LANCZOS = [
  ...[0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313],
  ...[-176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6],
  1.5056327351493116e-7,
];

/** z! for any complex number, good to about twelve digits. */
export function factorial(z: Complex): Complex {
  if (z.re < -0.5) {
    // Euler's reflection: (−1−z)! · z! = −π / sin πz.
    const sine = sin({ re: Math.PI * z.re, im: Math.PI * z.im });
    return divide(real(-Math.PI), multiply(sine, factorial(subtract(real(-1), z))));
  }
  const series = LANCZOS.slice(1).reduce(
    (sum, coefficient, i) => add(sum, divide(real(coefficient), add(z, real(i + 1)))),
    real(LANCZOS[0]!),
  );
  const t = add(z, real(7.5));
  const root = real(Math.sqrt(2 * Math.PI));
  const growth = multiply(power(t, add(z, real(0.5))), exp(negate(t)));
  return multiply(multiply(root, growth), series);
}
