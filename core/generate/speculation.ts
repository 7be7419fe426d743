/**
 * Prompt lookup (n-gram speculation): the tokens after the last occurrence of the last three tokens, else of
 * the last two, in prompt and answer are a draft of the next ones. A decode step computes the draft as
 * further tokens of its sequence, and keeps drafted tokens up to the first that is not chosen.
 *
 * Texts, log-probabilities and random numbers are bit for bit those of single steps, since steps with drafts
 * run only where `isExact` holds. Measured times decide the length of drafts, never the tokens.
 */
import type { Engine } from "./engine.ts";

/** Initial estimates of the share of drafted tokens that are kept, by two and by three equal tokens. */
const KEPT_AT_FIRST: readonly [number, number] = [0.5, 0.8];

/** Part of a new token in the share, and of a new step in a time. */
const KEPT_WEIGHT = 0.1, TIME_WEIGHT = 0.2;

/** Cost of another row in steps of one row, until it is measured. */
const ROW_COST = 0.2;

/** Steps after which a time is forgotten, so that a length which did not pay is tried again. */
const MEMORY_STEPS = 1000;

/** Drafts for one sequence. */
export class Drafter {
  readonly #text: number[];
  readonly #kept: [number, number] = [...KEPT_AT_FIRST];
  /** Tokens expected next, and the place of their share in `#kept`. */
  #expected: readonly number[] = [];
  #order: 0 | 1 = 0;

  /** For a prompt; its answer comes by `push`. */
  constructor(prompt: readonly number[]) {
    this.#text = [...prompt];
  }

  /** Adds a token to the text and records whether it was expected. */
  push(token: number): void {
    this.#text.push(token);
    if (this.#expected.length === 0) return;
    const isKept = this.#expected[0] === token;
    this.#kept[this.#order] += KEPT_WEIGHT * (Number(isKept) - this.#kept[this.#order]);
    this.#expected = isKept ? this.#expected.slice(1) : [];
  }

  /** Returns `count` drafted tokens, or none where the last tokens do not occur earlier in the text. */
  draft(count: number): readonly number[] {
    const text = this.#text, { length } = text;
    let from = -1;
    for (let at = length - 2; at > 0; at--) {
      if (text[at] !== text[length - 1] || text[at - 1] !== text[length - 2]) continue;
      const isThree = at > 1 && text[at - 2] === text[length - 3];
      if (from < 0 || isThree) [from, this.#order] = [at + 1, isThree ? 1 : 0];
      if (isThree) break;
    }
    const draft: number[] = [];
    // Past the end of the text the draft continues with its own tokens.
    while (from >= 0 && draft.length < count) {
      draft.push(text[from] ?? draft[from - length]!), from++;
    }
    return this.#expected = draft;
  }

  /** Expected tokens of a step with a draft of `count` tokens. */
  gain(count: number): number {
    const kept = this.#kept[this.#order];
    let tokens = 1;
    for (let i = 1; i <= count; i++) tokens += kept ** i;
    return tokens;
  }
}

/** Times of decode steps by number of sequences and tokens of each, which decide the length of drafts. */
export class StepTimes {
  readonly #times = new Map<string, { ms: number | undefined; step: number }>();
  #steps = 0;

  /** Takes the time of a step of `batch` sequences with `tokens` tokens each. */
  observe(batch: number, tokens: number, ms: number): void {
    const known = this.#times.get(`${batch} ${tokens}`);
    // The first step of a size prepares its program; later a slow one counts little.
    const mean = !known
      ? undefined
      : known.ms === undefined
      ? ms
      : known.ms + TIME_WEIGHT * (Math.min(ms, 2 * known.ms) - known.ms);
    this.#times.set(`${batch} ${tokens}`, { ms: mean, step: this.#steps++ });
  }

  /**
   * Returns the tokens per sequence that give the most tokens in a time: 1, 2, 4 and so on, up to `most` rows
   * over all sequences. `lengths` are those of the drafts.
   */
  best(
    drafters: readonly (Drafter | undefined)[],
    lengths: readonly number[],
    { most, streams }: { readonly most: number; readonly streams: number },
  ): number {
    const batch = drafters.length, longest = 1 + Math.max(...lengths);
    const single = this.#ms(batch, 1);
    let best = 1, bestRate = batch;
    for (let tokens = 2; single !== undefined && tokens < 2 * longest; tokens *= 2) {
      const size = Math.min(tokens, longest);
      if (size * batch > most) break;
      const gains = drafters.map((one, b) => one?.gain(Math.min(size - 1, lengths[b]!)) ?? 1);
      const guess = (rows: number) => 1 + ROW_COST * (rows * batch * streams - 1);
      const cost = (this.#ms(batch, size) ?? single * guess(size) / guess(1)) / single;
      const rate = gains.reduce((sum, gain) => sum + gain, 0) / cost;
      if (rate > bestRate) [best, bestRate] = [size, rate];
    }
    return best;
  }

  #ms(batch: number, tokens: number): number | undefined {
    const known = this.#times.get(`${batch} ${tokens}`);
    return known && this.#steps - known.step < MEMORY_STEPS ? known.ms : undefined;
  }
}

/** Results of `isExact`, by rows. */
const exact = new WeakMap<Engine, Map<number, Promise<boolean>>>();

/**
 * Returns whether steps of up to `rows` tokens give bit for bit the logits of single steps. That depends on
 * the kernels for a processor and a format, some of which have another one for a single row, and not on
 * values, so each engine is tried once, on made-up tokens. False where a step takes its tokens from the
 * device, where each size is a program of its own, and where states cannot be cut back.
 */
export function isExact(engine: Engine, rows: number): Promise<boolean> {
  const { samplesTokens, staticShapes } = engine.device.traits;
  if (samplesTokens || staticShapes || engine.config.delta) return Promise.resolve(false);
  // A step that exceeds the memory limit cannot have a draft.
  return exact.getOrInsertComputed(engine, () => new Map())
    .getOrInsertComputed(rows, () => tryRows(engine, rows).catch(() => false));
}

async function tryRows(engine: Engine, rows: number): Promise<boolean> {
  const { vocabSize: V } = engine.config;
  using cache = engine.createCache(1, rows);
  const logits = async (at: number, tokens: number) => {
    const select = Array.from({ length: tokens }, (_, t) => t);
    const ids = select.map((t) => 31 * (at + t) % V);
    return (await engine.forward(cache, { ids: [ids], start: [at], select })).get("logits")!;
  };
  const all = await logits(0, rows);
  for (const [at, tokens] of [[rows - 1, 1], [0, 1], [0, 2]] as const) {
    const some = await logits(at, tokens);
    if (some.some((value, i) => value !== all[at * V + i])) return false;
  }
  return true;
}
