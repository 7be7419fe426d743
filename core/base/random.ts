/**
 * Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy
 * as 1, 2, 3").
 *
 * A block of four words is a pure function of seed, stream and position, so a tensor filled in pieces,
 * in another order or on another machine has the same values. There is no state to carry along, only a
 * position.
 */

/** Multipliers and key increments of the paper. */
const M0 = 0xd2511f53, M1 = 0xcd9e8d57;
const W0 = 0x9e3779b9, W1 = 0xbb67ae85;
const ROUNDS = 10;

/** 2⁻³² to 2⁰, by leading zeros: the factor that scales a word to a number from ½ to 1. */
const POWERS = Float64Array.from({ length: 33 }, (_, zeros) => 2 ** (zeros - 32));

/** Upper 32 bits of the product of two unsigned 32-bit integers, as a signed integer. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff, aHigh = a >>> 16, bLow = b & 0xffff, bHigh = b >>> 16;
  // No sum below passes 32 bits, so integer arithmetic, which is several times faster, is exact.
  const middle = (Math.imul(aHigh, bLow) + (Math.imul(aLow, bLow) >>> 16)) | 0;
  const carried = (Math.imul(aLow, bHigh) + (middle & 0xffff)) | 0;
  return (Math.imul(aHigh, bHigh) + (middle >>> 16) + (carried >>> 16)) | 0;
}

/** One block: four words from a counter of four words and a key of two. */
export function philox(
  c0: number,
  c1: number,
  c2: number,
  c3: number,
  k0: number,
  k1: number,
  out: Uint32Array,
): void {
  for (let round = 0; round < ROUNDS; round++) {
    const high0 = multiplyHigh(M0, c0), low0 = Math.imul(M0, c0);
    const high1 = multiplyHigh(M1, c2), low1 = Math.imul(M1, c2);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 = (k0 + W0) | 0;
    k1 = (k1 + W1) | 0;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/**
 * Two independent normal draws from two words (Box and Muller).
 *
 * Logarithm, sine and cosine are polynomials here: those of `Math` may differ in the last bit from
 * engine to engine, while sums, products and square roots are exact everywhere. They are good to
 * 10⁻⁷, and faster.
 */
function gaussianPair(
  word: number,
  turn: number,
  standardDeviation: number,
  out: Float64Array,
  at: number,
): void {
  // −ln of (word + ½)·2⁻³²: x·2⁻ᶻ with x from ½ to 1, and ln x = ln √½ + 2·artanh s.
  const zeros = Math.clz32(word);
  const x = (word + 0.5) * POWERS[zeros]!;
  const s = (x - Math.SQRT1_2) / (x + Math.SQRT1_2), s2 = s * s;
  // Two short sums, which the processor computes side by side, instead of a long one.
  const s4 = s2 * s2;
  const artanh = s * (1 + s4 * (1 / 5 + s4 * (1 / 9 + s4 * (1 / 13))) +
    s2 * (1 / 3 + s4 * (1 / 7 + s4 * (1 / 11 + s4 * (1 / 15)))));
  const minusLog = (zeros + 0.5) * Math.LN2 - 2 * artanh;
  const radius = standardDeviation * Math.sqrt(2 * minusLog);

  // The upper bit of `turn` picks the half of the circle, the others an angle from −π/2 to π/2.
  const angle = ((turn & 0x7fffffff) - 0x3fffffff - 0.5) * (Math.PI * 2 ** -31), a2 = angle * angle;
  const sine = angle * (1 - a2 * (1 / 6) * (1 - a2 * (1 / 20) * (1 - a2 * (1 / 42) *
              (1 - a2 * (1 / 72) * (1 - a2 * (1 / 110))))));
  const cosine = 1 - a2 * (1 / 2) * (1 - a2 * (1 / 12) * (1 - a2 * (1 / 30) *
              (1 - a2 * (1 / 56) * (1 - a2 * (1 / 90) * (1 - a2 * (1 / 132))))));
  const side = turn >>> 31 === 0 ? radius : -radius;
  out[at] = side * cosine;
  out[at + 1] = side * sine;
}

/** One independent sequence of draws; streams of one seed never overlap. */
export class RandomStream {
  /** Words drawn so far; set it to continue where another run stopped. */
  position = 0;
  readonly #key: readonly [number, number];
  readonly #stream: readonly [number, number];
  readonly #block = new Uint32Array(4);
  readonly #pair = new Float64Array(2);
  #blockIndex = -1;

  /** `seed` is a non-negative safe integer; `stream` a name or a number, as told apart. */
  constructor(seed: number, stream: string | number = 0) {
    this.#key = split(seed);
    // Bit 31 keeps named streams apart from numbered ones.
    const [low, high] = typeof stream === "number" ? split(stream) : hashName(stream);
    this.#stream = [low, typeof stream === "number" ? high : (high | 0x80000000) >>> 0];
  }

  /** The next 32 random bits. */
  word(): number {
    const index = Math.floor(this.position / 4);
    if (index !== this.#blockIndex) this.#load(index);
    return this.#block[this.position++ % 4]!;
  }

  /** A number strictly between 0 and 1, on a grid of 52 bits. */
  uniform(): number {
    const high = this.word() >>> 6, low = this.word() >>> 6;
    return (high * 2 ** 26 + low + 0.5) * 2 ** -52;
  }

  /** An integer from 0 to `n` − 1, without bias, for `n` up to 2³². */
  integer(n: number): number {
    if (!(Number.isInteger(n) && n >= 1 && n <= 2 ** 32)) {
      throw new RangeError(`no integer below ${n}`);
    }
    const limit = Math.floor(2 ** 32 / n) * n;
    for (;;) {
      const word = this.word();
      if (word < limit) return word % n;
    }
  }

  /** A draw from the standard normal distribution. */
  normal(): number {
    gaussianPair(this.word(), this.word(), 1, this.#pair, 0);
    return this.#pair[0]!;
  }

  /**
   * Fills `values` with normal draws: element i of the stream's sequence from element `start` on.
   *
   * Uses two words per two values (both halves of Box and Muller's pair), so the sequence differs
   * from that of `normal()`. Independent of `position`.
   */
  fillNormal(values: Float32Array, standardDeviation: number, start = 0): void {
    const [c2, c3] = this.#stream, [k0, k1] = this.#key;
    const block = new Uint32Array(4), normals = new Float64Array(4);
    for (let i = 0; i < values.length;) {
      const index = Math.floor((start + i) / 4), first = start + i - 4 * index;
      philox(index | 0, Math.floor(index / 2 ** 32), c2 | 0, c3 | 0, k0 | 0, k1 | 0, block);
      gaussianPair(block[0]!, block[1]!, standardDeviation, normals, 0);
      gaussianPair(block[2]!, block[3]!, standardDeviation, normals, 2);
      const count = Math.min(4 - first, values.length - i);
      for (let k = 0; k < count; k++) values[i + k] = normals[first + k]!;
      i += count;
    }
  }

  #load(index: number): void {
    const low = index % 2 ** 32, high = Math.floor(index / 2 ** 32);
    const [c2, c3] = this.#stream, [k0, k1] = this.#key;
    philox(low, high, c2, c3, k0, k1, this.#block);
    this.#blockIndex = index;
  }
}

/** Lower and upper 32 bits of a non-negative safe integer. */
function split(value: number): [number, number] {
  return [value % 2 ** 32, Math.floor(value / 2 ** 32)];
}

/** 64-bit FNV-1a hash of a name. */
function hashName(name: string): [number, number] {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(name)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return [Number(hash & 0xffffffffn), Number(hash >> 32n)];
}
