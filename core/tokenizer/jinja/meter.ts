/**
 * Bounds of one rendering, as counted work: templates come with a checkpoint and are not trusted.
 *
 * Rendering is synchronous, so that one meter serves all renderings of a thread, one after the other.
 */

/** Longest text and list that a template makes: more than any model reads, and Jinja's own for `range`. */
const MAX_TEXT = 16 << 20, MAX_ITEMS = 100_000;

/** Digits of an integer, as Python has them for conversions to text. */
const MAX_INTEGER = 10n ** 4300n;

/** Steps of one rendering, about a second; honest ones take a few thousand. */
const MAX_STEPS = 10e6;

/** Characters that count as one step: few, so that all texts of a rendering fit into memory. */
const CHARACTERS_PER_STEP = 8;

let left = MAX_STEPS;

/** Runs a rendering with all of its steps before it. */
export function metered<T>(run: () => T): T {
  left = MAX_STEPS;
  return run();
}

/** Counts work. @throws {Error} where a rendering has done too much of it */
export function spend(steps: number): void {
  if ((left -= steps) < 0) throw new Error(`it takes more than ${MAX_STEPS / 1e6} million steps`);
}

/** Counts a text that was made or read. */
export function spendText(length: number): void {
  requireText(length);
  spend(length / CHARACTERS_PER_STEP);
}

/** Refuses a text before it is made. */
export function requireText(length: number): void {
  if (length > MAX_TEXT) throw new Error(`a text of ${length} characters is too long`);
}

/** Refuses a list before it is made. */
export function spendItems(count: number): void {
  if (count > MAX_ITEMS) throw new Error(`a list of ${count} items is too long`);
  spend(count);
}

/** Refuses integers whose arithmetic takes long. */
export function bounded(value: bigint): bigint {
  if (value > -MAX_INTEGER && value < MAX_INTEGER) return value;
  throw new Error("an integer of more than 4300 digits is too long");
}
