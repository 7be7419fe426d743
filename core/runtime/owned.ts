/**
 * Things that must be given back by hand, each once, whatever comes first: the last reference to their
 * holder is gone, they are freed, or the device is closed.
 */
export class Owned<T> {
  readonly #live = new Set<T>();
  readonly #lost: FinalizationRegistry<T>;

  /** `release` gives one back; a thing must not refer to its holder. */
  constructor(private readonly release: (thing: T) => void) {
    this.#lost = new FinalizationRegistry((thing) => {
      try {
        this.free(thing);
      } catch {
        // After a fault of the device nothing can be freed; the next call reports it.
      }
    });
  }

  /** Takes charge of a thing for as long as its holder is referred to. */
  add(holder: WeakKey, thing: T): void {
    this.#live.add(thing);
    this.#lost.register(holder, thing);
  }

  /** Gives a thing back, unless that was done before. */
  free(thing: T): void {
    if (this.#live.delete(thing)) this.release(thing);
  }

  /** Gives everything back. */
  close(): void {
    for (const thing of this.#live) this.free(thing);
  }
}
