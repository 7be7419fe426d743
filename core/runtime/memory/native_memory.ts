/** The calls of an operating system that map memory. */

/** An address; null when the system refuses. */
export type Address = Deno.PointerValue;

/** Maps memory outside the JavaScript heap. */
export interface NativeMemory {
  /** Zeroed pages that can be written. */
  allocate(byteLength: number): Address;
  /** A whole file, read-only; undefined when it cannot be opened. */
  mapFile(path: string, byteLength: number): Address | undefined;
  /** Lets go of the resident pages of a mapped file; a later read brings them back. */
  dropPages(start: Deno.PointerObject, byteLength: number): void;
  /** Returns what `allocate` or `mapFile` gave. */
  release(address: Deno.PointerObject, byteLength: number, isFile: boolean): void;
}
