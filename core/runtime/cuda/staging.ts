/**
 * Small copies between host and device, in stream order and without waiting.
 *
 * The bytes go through one piece of pinned memory, from which the device fetches them by itself. A
 * decoding step writes a few hundred bytes and reads as many: this way it waits once, for its
 * result.
 *
 * The memory is used in a ring, and before it is used again everything issued so far has to be
 * done, so one write in a few thousand waits.
 */
import type { Driver, PinnedMemory } from "./driver/driver.ts";

/** Bytes of the ring. */
const RING = 1 << 20;
/** Larger copies are no faster this way. */
const LARGEST = 1 << 16;
/** Starts are multiples of this. */
const ALIGNMENT = 64;

/** Pinned memory for the copies of one stream. */
export class Staging {
  readonly #driver: Driver;
  readonly #stream: bigint;
  #pinned: PinnedMemory | undefined;
  #next = 0;

  /** Takes its memory at the first copy. */
  constructor(driver: Driver, stream: bigint) {
    [this.#driver, this.#stream] = [driver, stream];
  }

  /** Whether copies of this size are made here. */
  takes(bytes: number): boolean {
    return bytes <= LARGEST;
  }

  /** Copies to the device; `source` may be changed at once. */
  upload(target: bigint, source: ArrayBufferView<ArrayBuffer>): void {
    const { byteLength } = source;
    const { address, buffer, at } = this.#take(byteLength);
    const bytes = new Uint8Array(source.buffer, source.byteOffset, byteLength);
    new Uint8Array(buffer, at, byteLength).set(bytes);
    this.#driver.uploadAsync(target, address, byteLength, this.#stream);
  }

  /** Copies from the device once everything issued before is done, and waits. */
  download(target: ArrayBufferView<ArrayBuffer>, source: bigint): void {
    const { byteLength } = target;
    const { address, buffer, at } = this.#take(byteLength);
    this.#driver.downloadAsync(address, source, byteLength, this.#stream);
    this.#driver.synchronize(this.#stream);
    const bytes = new Uint8Array(buffer, at, byteLength);
    new Uint8Array(target.buffer, target.byteOffset, byteLength).set(bytes);
  }

  /** Returns the memory; the stream must be done. */
  close(): void {
    if (this.#pinned) this.#driver.freePinned(this.#pinned);
    this.#pinned = undefined;
  }

  #take(bytes: number): { address: bigint; buffer: ArrayBuffer; at: number } {
    const pinned = this.#pinned ??= this.#driver.allocatePinned(RING);
    if (this.#next + bytes > RING) {
      this.#driver.synchronize(this.#stream);
      this.#next = 0;
    }
    const at = this.#next;
    this.#next += Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
    return { address: pinned.address + BigInt(at), buffer: pinned.buffer, at };
  }
}
