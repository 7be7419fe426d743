/**
 * Turns tokens into text as they come, and notices stop strings.
 *
 * A stop string may begin in one token and end in another, so text that could still become one is
 * held back until it is decided. What follows a stop string inside the same token is dropped.
 */

/** Decodes one sequence piece by piece; incomplete characters are held back. */
export interface PieceDecoder {
  push(token: number): string;
  flush(): string;
}

/** Text of one sequence under way. */
export class TextStream {
  /** Everything decoded so far, cut before a stop string once one is found. */
  text = "";
  readonly #decoder: PieceDecoder;
  readonly #stops: readonly string[];
  readonly #longest: number;
  #shown = 0;
  #stopped = false;

  /** Empty stop strings are ignored. */
  constructor(decoder: PieceDecoder, stops: readonly string[] = []) {
    this.#decoder = decoder;
    this.#stops = stops.filter((stop) => stop !== "");
    this.#longest = this.#stops.reduce((longest, { length }) => Math.max(longest, length), 0);
  }

  /** Adds a token; true when the text now ends at a stop string. */
  push(token: number): boolean {
    this.#append(this.#decoder.push(token));
    return this.#stopped;
  }

  /** Adds what the decoder held back; to be called once, after the last token. */
  finish(): void {
    if (!this.#stopped) this.#append(this.#decoder.flush());
    this.#stopped = true;
  }

  /** Text that is certain and was not taken before. */
  take(): string {
    const held = this.#stopped ? 0 : this.#heldBack();
    const end = Math.max(this.#shown, this.text.length - held);
    const fresh = this.text.slice(this.#shown, end);
    this.#shown = end;
    return fresh;
  }

  #append(piece: string): void {
    if (piece === "") return;
    const from = Math.max(0, this.text.length - this.#longest + 1);
    this.text += piece;
    let first = Infinity;
    for (const stop of this.#stops) {
      const at = this.text.indexOf(stop, from);
      if (at >= 0) first = Math.min(first, at);
    }
    if (first === Infinity) return;
    this.text = this.text.slice(0, first);
    this.#stopped = true;
  }

  /** Length of the longest end of the text that begins a stop string. */
  #heldBack(): number {
    let held = 0;
    for (const stop of this.#stops) {
      let length = Math.min(stop.length - 1, this.text.length);
      while (length > held && !this.text.endsWith(stop.slice(0, length))) length--;
      held = Math.max(held, length);
    }
    return held;
  }
}
