// deno-lint-ignore-file no-control-regex
/** Refuses archives and compressed files where text is expected, by their first bytes or their names. */
import { DataError } from "../base/errors.ts";

/** Compression of a file that readers undo. */
export type Compression = "gzip" | "zstd";

/** Bytes from which every kind can be told. */
export const HEAD_BYTES = 262;

/** A kind of packed data: the command that unpacks a file, its first bytes, and names that always mean it. */
type Kind = readonly [name: string, unpack: string, magic: RegExp, ending?: RegExp];

const ARCHIVES: readonly Kind[] = [
  ["a tar archive", "tar -xf", /^[^]{257}ustar/, /\.(tar|tgz|tbz2?|txz|tar\.[^./\\]+)$/i],
  ["a zip archive", "unzip", /^PK(\x03\x04|\x05\x06)/, /\.zip$/i],
  ["a 7z archive", "7z x", /^7z\xbc\xaf\x27\x1c/, /\.7z$/i],
  ["a RAR archive", "unrar x", /^Rar!\x1a\x07/, /\.rar$/i],
];

const COMPRESSED: readonly Kind[] = [
  ["gzip data", "gzip -dc", /^\x1f\x8b/],
  ["Zstandard data", "zstd -dc", /^\x28\xb5\x2f\xfd/],
  ["xz data", "xz -dc", /^\xfd7zXZ\0/, /\.xz$/i],
  ["bzip2 data", "bzip2 -dc", /^BZh[1-9]1AY&SY/, /\.bz2$/i],
];

const UNDONE: Readonly<Record<Compression, string>> = { gzip: "gzip data", zstd: "Zstandard data" };

/** Place of bytes, and how their reader undoes compression. */
interface Reading {
  /** Absent for a stream. */
  readonly path?: string | undefined;
  readonly undone?: Compression | undefined;
}

/** Passes on the chunks of a text; an archive is refused by its first, as `refuseArchive` does. */
export async function* withoutArchives(
  chunks: AsyncIterable<Uint8Array>,
  file: string,
  reading?: Reading,
): AsyncGenerator<Uint8Array> {
  let isFirst = true;
  for await (const chunk of chunks) {
    if (isFirst) refuseArchive(chunk, file, reading);
    isFirst = false;
    yield chunk;
  }
}

/**
 * Refuses a file, or a stream called `file` without a path, that is an archive or compressed in another
 * way than the reader undoes.
 * @throws {DataError}
 */
export function refuseArchive(
  head: Uint8Array,
  file: string,
  { path, undone }: Reading = {},
): void {
  const first = String.fromCharCode(...head.subarray(0, HEAD_BYTES));
  const isOf = ([name, , magic, ending]: Kind) =>
    (undone === undefined || name !== UNDONE[undone]) &&
    (magic.test(first) || path !== undefined && ending?.test(path));
  const archive = ARCHIVES.find(isOf);
  const [name, unpack] = archive ?? COMPRESSED.find(isOf) ?? [];
  if (name === undefined) return;
  const command = `${unpack} ${JSON.stringify(path)}`;
  const hint = path === undefined
    ? "unpack it first, and pass the text"
    : archive
    ? `unpack it: \`${command}\`, and pass the files in it`
    : `unpack it: \`${command} > FILE\`, and pass that file`;
  throw new DataError(`${file} is ${name}, not text`, { hints: [hint] });
}
