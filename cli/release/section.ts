/**
 * Reads what `deno compile` put into a program: its settings and its tree of files.
 *
 * In: a program for any platform. Out: metadata and, by path, the bytes of every file. The layout
 * is Deno 2.9's: magic, metadata, npm snapshot, specifiers, redirects, remote modules, directory
 * tree, file bytes, magic. The magic also stands in the base program itself, so the section begins
 * at the last one that is followed by metadata.
 */
import { DataError } from "../../core/base/errors.ts";

/** The settings that a release depends on. */
export interface Metadata {
  /** A hash over the tree where the program writes itself out at its first start. */
  readonly self_extracting: string | null;
  readonly entrypoint_key: string;
  readonly permissions: Readonly<Record<string, unknown>>;
  readonly unstable_config: { readonly features: readonly string[] };
}

/** What a program carries. */
export interface Section {
  readonly metadata: Metadata;
  /** Contents by path from the root of the tree. */
  readonly files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>;
  /** Bytes of the section, with what was made of the sources. */
  readonly bytes: number;
}

const MAGIC = new TextEncoder().encode("d3n0l4nd");

/** Reads the section of a program. Throws `DataError` where there is none. */
export async function readSection(path: string): Promise<Section> {
  const program = await Deno.readFile(path);
  for (let at = lastMagic(program, program.length); at >= 0; at = lastMagic(program, at)) {
    const reader = new Reader(program, at + MAGIC.length, path);
    const metadata = reader.metadata();
    if (metadata === undefined) continue;
    reader.block(); // npm snapshot: none, since packages come from a folder
    if (reader.uint32() !== 0 || reader.uint32() !== 0 || reader.uint32() !== 0) {
      throw new DataError(`"${path}" contains remote modules`);
    }
    const entries: Entry[] = JSON.parse(new TextDecoder().decode(reader.block()));
    const contents = reader.block();
    return { metadata, files: new Map(filesOf(entries, "", contents)), bytes: reader.at - at };
  }
  throw new DataError(`"${path}" has no section made by deno compile`);
}

/** Writes the tree to a folder, as the program does at its first start. */
export async function writeTree(section: Section, folder: string): Promise<void> {
  for (const [path, bytes] of section.files) {
    const target = `${folder}/${path}`;
    await Deno.mkdir(target.slice(0, target.lastIndexOf("/")), { recursive: true });
    await Deno.writeFile(target, bytes);
  }
}

/** A node of the tree: exactly one of the three. */
interface Entry {
  readonly Dir?: { readonly n: string; readonly e: readonly Entry[] };
  /** `o` is where the bytes are: offset and length. */
  readonly File?: { readonly n: string; readonly o: readonly [number, number] };
  readonly Symlink?: { readonly n: string };
}

function* filesOf(
  entries: readonly Entry[],
  folder: string,
  contents: Uint8Array<ArrayBuffer>,
): Generator<[string, Uint8Array<ArrayBuffer>]> {
  for (const { Dir, File, Symlink } of entries) {
    if (Symlink) {
      throw new DataError(`"${folder}${Symlink.n}" is a link in a program`);
    }
    if (Dir) yield* filesOf(Dir.e, `${folder}${Dir.n}/`, contents);
    if (File) {
      const [offset, length] = File.o;
      yield [folder + File.n, contents.subarray(offset, offset + length)];
    }
  }
}

function lastMagic(bytes: Uint8Array, before: number): number {
  for (let at = before; (at = bytes.lastIndexOf(MAGIC[0]!, at - 1)) >= 0;) {
    if (MAGIC.every((byte, i) => bytes[at + i] === byte)) return at;
    if (at === 0) break;
  }
  return -1;
}

class Reader {
  readonly #bytes: Uint8Array<ArrayBuffer>;
  readonly #view: DataView;
  readonly #path: string;
  at: number;

  constructor(bytes: Uint8Array<ArrayBuffer>, at: number, path: string) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer);
    this.#path = path;
    this.at = at;
  }

  /** The metadata, or undefined where this is not the beginning of a section. */
  metadata(): Metadata | undefined {
    if (this.at + 9 > this.#bytes.length || this.#bytes[this.at + 8] !== 0x7b) return undefined;
    if (this.#view.getBigUint64(this.at, true) > 1_000_000n) return undefined;
    return JSON.parse(new TextDecoder().decode(this.block()));
  }

  uint32(): number {
    this.at += 4;
    return this.#view.getUint32(this.at - 4, true);
  }

  /** Bytes with their length in front. */
  block(): Uint8Array<ArrayBuffer> {
    const start = this.at + 8;
    const length = Number(this.#view.getBigUint64(this.at, true));
    if (start + length > this.#bytes.length) {
      throw new DataError(
        `"${this.#path}" ends within its section`,
      );
    }
    this.at = start + length;
    return this.#bytes.subarray(start, this.at);
  }
}
