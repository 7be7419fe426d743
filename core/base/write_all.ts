/** Writing bytes whole: one write of the system may take fewer than it is given. */

/** Writes the bytes of all `values` at the position of the file. */
export async function writeAll(
  file: Pick<Deno.FsFile, "write">,
  values: ArrayBufferView,
): Promise<void> {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
}

/** Like `writeAll` for bytes, on this thread. */
export function writeAllSync(file: Pick<Deno.FsFile, "writeSync">, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length;) done += file.writeSync(bytes.subarray(done));
}
