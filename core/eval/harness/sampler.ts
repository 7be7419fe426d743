/**
 * Draws solved examples as CPython's `random.Random(seed).sample` does, bit for bit.
 *
 * The Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), seeded by `init_by_array`. One
 * generator serves a whole task, row after row, so what a row gets depends on every row before it.
 */

/** Seed of lm-evaluation-harness. */
export const SHOT_SEED = 1234;

const N = 624, M = 397;

/** CPython's generator, as far as samples need it. */
export class PythonRandom {
  readonly #state = new Uint32Array(N);
  #at = N;

  /** A generator in the state of `random.Random(seed)` for a seed below 2³². */
  constructor(seed: number) {
    const state = this.#state;
    state[0] = 19650218;
    for (let i = 1; i < N; i++) state[i] = Math.imul(1812433253, mixed(state[i - 1]!)) + i;
    let i = 1;
    const next = () => {
      if (++i < N) return;
      state[0] = state[N - 1]!;
      i = 1;
    };
    for (let k = 0; k < N; k++, next()) {
      state[i] = (state[i]! ^ Math.imul(mixed(state[i - 1]!), 1664525)) + seed;
    }
    for (let k = 0; k < N - 1; k++, next()) {
      state[i] = (state[i]! ^ Math.imul(mixed(state[i - 1]!), 1566083941)) - i;
    }
    state[0] = 0x80000000;
  }

  /** `count` different integers below `size`, in the order drawn. */
  sample(size: number, count: number): number[] {
    const listLimit = 21 + (count > 5 ? 4 ** Math.ceil(Math.log(3 * count) / Math.log(4)) : 0);
    const drawn: number[] = [];
    if (size <= listLimit) {
      const pool = Array.from({ length: size }, (_, i) => i);
      for (let i = 0; i < count; i++) {
        const at = this.#below(size - i);
        drawn.push(pool[at]!);
        pool[at] = pool[size - i - 1]!;
      }
      return drawn;
    }
    const taken = new Set<number>();
    while (drawn.length < count) {
      const value = this.#below(size);
      if (taken.has(value)) continue;
      taken.add(value);
      drawn.push(value);
    }
    return drawn;
  }

  #below(limit: number): number {
    const bits = 32 - Math.clz32(limit);
    for (;;) {
      const value = this.#word() >>> (32 - bits);
      if (value < limit) return value;
    }
  }

  #word(): number {
    if (this.#at === N) this.#refill();
    let y = this.#state[this.#at++]!;
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  #refill(): void {
    const state = this.#state;
    for (let i = 0; i < N; i++) {
      const y = (state[i]! & 0x80000000) | (state[(i + 1) % N]! & 0x7fffffff);
      state[i] = state[(i + M) % N]! ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    this.#at = 0;
  }
}

function mixed(word: number): number {
  return word ^ (word >>> 30);
}
