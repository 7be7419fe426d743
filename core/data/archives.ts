/** Refuses archives and compressed files where text is expected, by their first bytes or their names. */
import { DataError } from "../base/errors.ts";

/** Compression of a file that readers undo. */
export type Compression = "gzip" | "zstd";

/** A kind of file that holds no text as it is. */
interface Packed {
  readonly name: string;
  /** First bytes, one character each. */
  readonly magic: readonly string[];
  /** Place of the magic (default 0). */
  readonly at?: number;
  /** Names that always mean this kind. */
  readonly ending?: RegExp;
  /** Command that unpacks a file in its folder, or writes its text to stdout. */
  readonly unpack: string;
}

/** Bytes from which every kind can be told. */
export const HEAD_BYTES = 262;

const ARCHIVES: readonly Packed[] = [
  {
    name: "a tar archive",
    magic: ["ustar"],
    at: 257,
    ending: /\.(tar|tgz|tbz2?|txz|tar\.[^./\\]+)$/i,
    unpack: "tar -xf",
  },
  {
    name: "a zip archive",
    magic: ["PK\x03\x04", "PK\x05\x06"],
    ending: /\.zip$/i,
    unpack: "unzip",
  },
  {
    name: "a 7z archive",
    magic: ["7z\xbc\xaf\x27\x1c"],
    ending: /\.7z$/i,
    unpack: "7z x",
  },
  { name: "a RAR archive", magic: ["Rar!\x1a\x07"], ending: /\.rar$/i, unpack: "unrar x" },
];

const COMPRESSED: readonly (Packed & { readonly compression?: Compression })[] = [
  { name: "gzip data", magic: ["\x1f\x8b"], compression: "gzip", unpack: "gzip -dc" },
  {
    name: "Zstandard data",
    magic: ["\x28\xb5\x2f\xfd"],
    compression: "zstd",
    unpack: "zstd -dc",
  },
  { name: "xz data", magic: ["\xfd7zXZ\0"], ending: /\.xz$/i, unpack: "xz -dc" },
  {
    name: "bzip2 data",
    magic: Array.from({ length: 9 }, (_, i) => `BZh${i + 1}1AY&SY`),
    ending: /\.bz2$/i,
    unpack: "bzip2 -dc",
  },
];

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
  const isOf = ({ magic, at = 0, ending }: Packed) =>
    magic.some((bytes) => first.startsWith(bytes, at)) || path !== undefined && ending?.test(path);
  const archive = ARCHIVES.find(isOf);
  const isUndone = ({ compression }: typeof COMPRESSED[number]) =>
    compression !== undefined && compression === undone;
  const packed = archive ?? COMPRESSED.find((kind) => !isUndone(kind) && isOf(kind));
  if (packed === undefined) return;
  const command = `${packed.unpack} ${JSON.stringify(path)}`;
  const hint = path === undefined
    ? "unpack it first, and pass the text"
    : archive
    ? `unpack it: \`${command}\`, and pass the files in it`
    : `unpack it: \`${command} > FILE\`, and pass that file`;
  throw new DataError(`${file} is ${packed.name}, not text`, { hints: [hint] });
}
