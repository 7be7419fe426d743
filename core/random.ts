/**
 * Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy
 * as 1, 2, 3").
 *
 * Comes in: a seed and the name or number of a stream. Goes out: uniform, normal and integer draws.
 * A block of four words is a pure function of seed, stream and position, so a tensor filled in
 * pieces, in another order or on another machine has the same values. The surprising part is that
 * there is no state to carry along, only a position.
 */

/** Multipliers and key increments of the paper. */
const M0 = 0xd2511f53, M1 = 0xcd9e8d57;
const W0 = 0x9e3779b9, W1 = 0xbb67ae85;
const ROUNDS = 10;

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

/** One independent sequence of draws; streams of one seed never overlap. */
export class RandomStream {
  /** Words drawn so far; set it to continue where another run stopped. */
  position = 0;
  readonly #key: readonly [number, number];
  readonly #stream: readonly [number, number];
  readonly #block = new Uint32Array(4);
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
    const radius = Math.sqrt(-2 * Math.log((this.word() + 0.5) * 2 ** -32));
    return radius * Math.cos((this.word() + 0.5) * 2 ** -32 * 2 * Math.PI);
  }

  /**
   * Fills `values` with normal draws: element i of the stream's sequence from element `start` on.
   *
   * Uses two words per two values (both halves of Box and Muller's pair), so the sequence differs
   * from that of `normal()`. Independent of `position`.
   */
  fillNormal(values: Float32Array, standardDeviation: number, start = 0): void {
    const block = this.#block;
    let cosine = 0, sine = 0;
    for (let i = 0; i < values.length; i++) {
      const element = start + i;
      if (i === 0 || element % 2 === 0) {
        const index = Math.floor(element / 4);
        if (index !== this.#blockIndex) this.#load(index);
        const at = element % 4 < 2 ? 0 : 2;
        const radius = standardDeviation * Math.sqrt(-2 * Math.log((block[at]! + 0.5) * 2 ** -32));
        const angle = (block[at + 1]! + 0.5) * 2 ** -32 * 2 * Math.PI;
        cosine = radius * Math.cos(angle);
        // A square root costs a fraction of a second trigonometric function.
        sine = Math.sqrt(radius * radius - cosine * cosine) * (angle < Math.PI ? 1 : -1);
      }
      values[i] = element % 2 === 0 ? cosine : sine;
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
