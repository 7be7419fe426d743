/** Decimal digits of floats, rounded half to even on their exact value, as Python rounds. */

/** Most digits after the point: no template asks for more than a float has. */
const MAX_DIGITS = 1100;

/** A finite float times a power of ten, rounded; `places` may be negative. */
export function scaled(value: number, places: number): bigint {
  if (Math.abs(places) > MAX_DIGITS) throw new Error(`${places} digits are too many`);
  const [mantissa, exponent] = binaryParts(Math.abs(value));
  let above = mantissa, below = 1n;
  if (exponent > 0) above <<= BigInt(exponent);
  else below <<= BigInt(-exponent);
  if (places > 0) above *= 10n ** BigInt(places);
  else below *= 10n ** BigInt(-places);
  return roundedQuotient(above, below);
}

/** Quotient of positive integers to the nearest, half to even. */
export function roundedQuotient(above: bigint, below: bigint): bigint {
  const whole = above / below, twice = 2n * (above % below);
  return twice > below || twice === below && whole % 2n === 1n ? whole + 1n : whole;
}

/** Mantissa and power of two. */
function binaryParts(value: number): [bigint, number] {
  const bits = new BigUint64Array(new Float64Array([value]).buffer)[0]!;
  const exponent = Number(bits >> 52n), fraction = bits & (1n << 52n) - 1n;
  return exponent === 0 ? [fraction, -1074] : [fraction | 1n << 52n, exponent - 1075];
}

/** Digits without sign and with `places` after the point. */
export function fixed(value: number, places: number): string {
  const digits = String(scaled(value, places)).padStart(places + 1, "0");
  return places === 0 ? digits : `${digits.slice(0, -places)}.${digits.slice(-places)}`;
}

/** Digits without sign, one of them before the point, and the power of ten. */
export function exponential(value: number, places: number): [digits: string, exponent: number] {
  if (value === 0) return ["0".repeat(places + 1), 0];
  let exponent = Number(Math.abs(value).toExponential().split("e")[1]);
  let digits = String(scaled(value, places - exponent));
  if (digits.length > places + 1) digits = String(scaled(value, places - ++exponent));
  return [digits, exponent];
}

/** `e` format without sign. */
export function exponentText(value: number, places: number, isAlternate = false): string {
  const [digits, exponent] = exponential(value, places);
  return withExponent(digits, exponent, isAlternate);
}

function withExponent(digits: string, exponent: number, keepsPoint: boolean): string {
  const point = digits.length > 1 || keepsPoint ? "." : "";
  const power = String(Math.abs(exponent)).padStart(2, "0");
  return `${digits[0]}${point}${digits.slice(1)}e${exponent < 0 ? "-" : "+"}${power}`;
}

/** `g` format without sign: `precision` significant digits, in whichever form is short. */
export function generalText(value: number, precision: number, isAlternate = false): string {
  const significant = Math.max(1, precision);
  const [digits, exponent] = exponential(value, significant - 1);
  const isFixed = exponent >= -4 && exponent < significant;
  if (isAlternate) {
    return isFixed
      ? withPoint(fixed(value, significant - 1 - exponent))
      : withExponent(digits, exponent, true);
  }
  if (!isFixed) return withExponent(digits.replace(/(?!^)0+$/, ""), exponent, false);
  const text = fixed(value, significant - 1 - exponent);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** Like `g`, with a digit after the point in any case: the format without a letter. */
export function pointedText(value: number, precision: number): string {
  const significant = Math.max(1, precision);
  const [digits, exponent] = exponential(value, significant - 1);
  if (exponent < -4 || exponent >= significant - 1) {
    return withExponent(digits.replace(/(?!^)0+$/, ""), exponent, false);
  }
  const text = generalText(value, significant);
  return text.includes(".") ? text : `${text}.0`;
}

function withPoint(text: string): string {
  return text.includes(".") ? text : `${text}.`;
}
