/**
 * Small results on their way to the host while the device goes on working.
 *
 * Pinned memory that the device writes into by itself, as a ring of slots: a number, and behind it
 * the values. A kernel at the end of a step writes the values and then its number, and the host
 * reads its own memory until the number is there: no copy is waited for, and no stream.
 *
 * A device that has failed never writes, so now and then the host asks how it is; and a result that
 * not read is overwritten when the ring wraps around.
 */
import type { Driver, PinnedMemory } from "./driver/driver.ts";
import type { KernelLoader } from "./kernel_loader.ts";
import { publish } from "./kernels/next_token.ts";
import type { LaunchSite } from "./driver/launch.ts";

/** Results that may be under way. */
const SLOTS = 16;
/** Words of a slot: its number and the values. */
const SLOT_WORDS = 1024;
/** Looks into memory between two questions to the driver, which cost far more. */
const LOOKS = 4096;

interface Opened {
  readonly memory: PinnedMemory;
  readonly words: Int32Array;
  readonly site: LaunchSite;
  /** One for each slot, behind the kernel that fills it. */
  readonly events: readonly bigint[];
}

export class ResultRing {
  readonly #driver: Driver;
  readonly #stream: bigint;
  readonly #kernels: KernelLoader;
  #opened: Opened | undefined;
  #sequence = 0;

  /** Takes its memory when it is first used. */
  constructor(driver: Driver, stream: bigint, kernels: KernelLoader) {
    [this.#driver, this.#stream, this.#kernels] = [driver, stream, kernels];
  }

  /** Whether a result of so many words fits. */
  takes(count: number): boolean {
    return count < SLOT_WORDS;
  }

  /** Sends words as they are when the stream gets there; what it returns waits for them. */
  send(source: bigint, count: number): () => Int32Array {
    const { memory, words, site, events } = this.#opened ??= this.#open();
    const sequence = this.#sequence = this.#sequence % 0x7fffffff + 1;
    const slot = sequence % SLOTS;
    site.set(0, memory.device + BigInt(4 * SLOT_WORDS * slot));
    site.set(1, source);
    site.set(2, count);
    site.set(3, sequence);
    site.launch(this.#driver, this.#stream);
    this.#driver.recordEvent(events[slot]!, this.#stream);
    const at = slot * SLOT_WORDS;
    return () => {
      this.#waitFor(words, at, sequence, events[slot]!);
      return words.slice(at + 1, at + 1 + count);
    };
  }

  /** Returns the memory; the stream must be done. */
  close(): void {
    if (!this.#opened) return;
    for (const event of this.#opened.events) this.#driver.destroyEvent(event);
    this.#driver.freePinned(this.#opened.memory);
    this.#opened = undefined;
  }

  #open(): Opened {
    const memory = this.#driver.allocatePinned(4 * SLOT_WORDS * SLOTS, { mapped: true });
    const words = new Int32Array(memory.buffer).fill(0);
    const site = this.#kernels.site(publish, { count: 0, sequence: 0 }, {});
    const events = Array.from({ length: SLOTS }, () => this.#driver.createEvent());
    return { memory, words, site, events };
  }

  #waitFor(words: Int32Array, at: number, sequence: number, event: bigint): void {
    for (;;) {
      for (let look = 0; look < LOOKS; look++) {
        if (Atomics.load(words, at) === sequence) return;
      }
      if (!this.#driver.isDone(event) || Atomics.load(words, at) === sequence) continue;
      const found = Atomics.load(words, at);
      throw new Error(`result ${sequence} is missing: its slot holds ${found}`);
    }
  }
}
