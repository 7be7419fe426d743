/** Texts for native libraries, and of their loader. */
const encoder = new TextEncoder();

/** A text as the zero-terminated bytes C expects. */
export function cString(text: string): Uint8Array<ArrayBuffer> {
  return encoder.encode(`${text}\0`);
}

/** The loader's words without the path, which stands before them. */
export function loaderReason(path: string, error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.includes("No such file") || text.includes("cannot open shared object")
    ? "not found"
    : text.replaceAll(path, "it").replace(/^Could not open library: /, "");
}
