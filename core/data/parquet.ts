/**
 * Reads documents from a Parquet table.
 *
 * A table is read from its end, and only the columns needed. A row group is read in windows of bounded
 * size, so a table of one huge group does not fill memory.
 */
import type { AsyncBuffer, Compressors, FileMetaData, RowGroup, SchemaTree } from "hyparquet";
import { openRegularFile, readExactlySync } from "../base/files.ts";
import { DataError, ParscaleError } from "../base/errors.ts";
import { type Document, DOCUMENT_KEYS, tableHint, toDocument } from "./document.ts";

/** Unpacked bytes to hold at once; below it a row group is read in one piece. */
const WINDOW_BYTES = 64 << 20;

/** Most unpacked bytes of one page; writers make pages of about a megabyte. */
const MAX_PAGE_BYTES = 256 << 20;

/** Most rows of one group, which the library keeps in memory. */
const MAX_GROUP_ROWS = 1 << 24;

/** Documents of a table. `onChunk` is called with every chunk of the file. */
export async function* readParquet(
  path: string,
  onChunk?: (chunk: Uint8Array) => void,
): AsyncGenerator<Document> {
  let row = 0;
  const rows = readTable(path, (names) => wantedColumns(names, path), onChunk);
  for await (const fields of rows) yield toDocument(fields, path, ++row);
}

/** Rows of a table as JSON would have them, with the columns that `choose` picks, or all. */
export async function* readTable(
  path: string,
  choose: (names: ReadonlySet<string>) => string[] = (names) => [...names],
  onChunk?: (chunk: Uint8Array) => void,
): AsyncGenerator<unknown> {
  using handle = openRegularFile(path);
  const table = await Table.open(toBuffer(handle, path, onChunk), path);
  const columns = choose(table.names);
  for (let group = 0; group < table.groups; group++) yield* table.rows(group, columns);
}

/** A table wherever its bytes are; only the footer is read before rows are asked for. */
export class Table {
  /** Columns at the top. */
  readonly names: ReadonlySet<string>;
  /** First row of each group. */
  readonly #firsts: readonly number[];

  private constructor(
    readonly file: AsyncBuffer,
    /** In messages. */
    readonly path: string,
    readonly metadata: FileMetaData,
    readonly schema: SchemaTree,
  ) {
    this.names = columnNames(metadata);
    let row = 0;
    this.#firsts = metadata.row_groups.map(({ num_rows }) =>
      (row += Number(num_rows)) - Number(num_rows)
    );
  }

  static async open(file: AsyncBuffer, path: string): Promise<Table> {
    const { parquetMetadataAsync, parquetSchema } = await import("hyparquet");
    return await orDataError(path, async () => {
      const metadata = await parquetMetadataAsync(file);
      const schema = parquetSchema(metadata);
      requireColumns(metadata, schema);
      return new Table(file, path, metadata, schema);
    });
  }

  get groups(): number {
    return this.metadata.row_groups.length;
  }

  /** Rows before a group. */
  rowsBefore(group: number): number {
    return this.#firsts[group]!;
  }

  /** Returns the ranges of the file that hold the columns of a group. */
  ranges(group: number, columns: readonly string[]): { start: number; end: number }[] {
    return this.metadata.row_groups[group]!.columns.flatMap(({ meta_data }) => {
      if (!meta_data || !columns.includes(meta_data.path_in_schema[0] ?? "")) return [];
      const { dictionary_page_offset, data_page_offset, total_compressed_size } = meta_data;
      const start = Number(dictionary_page_offset || data_page_offset);
      return [{ start, end: start + Number(total_compressed_size) }];
    });
  }

  /** Rows of a group. */
  async *rows(group: number, columns: string[]): AsyncGenerator<unknown> {
    const { parquetReadObjects } = await import("hyparquet");
    const compressors = limited((await import("hyparquet-compressors")).compressors);
    const { file, path } = this;
    const { rows, windows } = sizeOfGroup(this.metadata.row_groups[group]!, columns);
    if (rows < 0 || rows > MAX_GROUP_ROWS) {
      throw new DataError(
        `"${path}" has a row group of ${rows} rows, expected at most ${MAX_GROUP_ROWS}`,
      );
    }
    const metadata = this.#metadataOf(group, columns);
    const step = Math.max(1, Math.ceil(rows / windows));
    for (let rowStart = 0; rowStart < rows; rowStart += step) {
      const rowEnd = Math.min(rows, rowStart + step);
      const options = { file, metadata, columns, compressors, rowStart, rowEnd, parsers: STRICT };
      const found = await orDataError(path, () => parquetReadObjects(options));
      for (const row of found) yield toJson(row, true);
    }
  }

  /** The metadata of some columns of one group: each read goes through all groups and columns it has. */
  #metadataOf(group: number, columns: readonly string[]): FileMetaData {
    const wanted = this.schema.children.filter(({ element }) => columns.includes(element.name));
    const root = { ...this.schema.element, num_children: wanted.length };
    return {
      ...this.metadata,
      schema: [root, ...wanted.flatMap(nodesOf).map(({ element }) => element)],
      row_groups: [this.metadata.row_groups[group]!],
    };
  }
}

/** Refuses pages that say they are huge before memory is taken for them. */
function limited(compressors: Compressors): Compressors {
  return Object.fromEntries(
    Object.entries(compressors).map(([codec, decompress]) => [
      codec,
      (input: Uint8Array, length: number) => {
        if (length > MAX_PAGE_BYTES) {
          throw new Error(`a page has ${length} bytes, more than ${MAX_PAGE_BYTES}`);
        }
        return decompress(input, length);
      },
    ]),
  );
}

/** Text that is not UTF-8 is refused instead of mended. */
const STRICT = {
  stringFromBytes: (bytes: Uint8Array | undefined) =>
    bytes && new TextDecoder("utf-8", { fatal: true }).decode(bytes),
};

function toBuffer(
  handle: Deno.FsFile,
  path: string,
  onChunk?: (chunk: Uint8Array) => void,
): AsyncBuffer {
  const { size } = handle.statSync();
  return {
    byteLength: size,
    // Several slices are asked for at once; read at once, none moves another's place in the file.
    // A failure must be a promise's: thrown, it would leave the columns before it without a reader, and
    // their own failures would end the program.
    slice: (start, end = size) =>
      Promise.try(() => {
        const bytes = new Uint8Array(Math.max(0, Math.min(end, size + 1) - start));
        readExactlySync(handle, path, start, bytes);
        onChunk?.(bytes);
        return bytes.buffer;
      }),
  };
}

/** The library's errors are all about the file. */
async function orDataError<T>(path: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (cause) {
    if (cause instanceof ParscaleError || !(cause instanceof Error)) throw cause;
    throw new DataError(
      `"${path}" is not a readable Parquet table with UTF-8 text: ${cause.message}`,
      { cause, hints: ["the file may be truncated or damaged; copy it again"] },
    );
  }
}

/**
 * Every column must be in the schema. The library finds that out when it has begun to read others, whose
 * failures would then be unhandled and end the program.
 */
function requireColumns({ row_groups }: FileMetaData, schema: SchemaTree): void {
  const known = new Set(nodesOf(schema).map(({ path }) => JSON.stringify(path)));
  for (const { meta_data } of row_groups.flatMap(({ columns }) => columns)) {
    if (known.has(JSON.stringify(meta_data?.path_in_schema ?? []))) continue;
    throw new Error("a column is missing from its schema");
  }
}

function columnNames({ row_groups }: FileMetaData): Set<string> {
  return new Set(
    row_groups.flatMap(({ columns }) =>
      columns.map(({ meta_data }) => meta_data?.path_in_schema[0] ?? "")
    ),
  );
}

/** The nodes of a schema as a list, parents first. */
function nodesOf(node: SchemaTree): SchemaTree[] {
  return [node, ...node.children.flatMap(nodesOf)];
}

/** Columns of documents. */
export function wantedColumns(names: ReadonlySet<string>, path: string): string[] {
  const wanted = DOCUMENT_KEYS.filter((key) => names.has(key));
  if (wanted.length > 0 || names.size === 0) return wanted;
  const found = [...names].map((name) => `"${name}"`).join(", ");
  throw new DataError(
    `"${path}" has none of the columns "text", "tokens", "prompt" and "completion", or "messages": it has ${found}`,
    { hints: [tableHint(names)] },
  );
}

/** Rows of a group, and in how many windows to read them. */
function sizeOfGroup(
  { num_rows, columns }: RowGroup,
  wanted: readonly string[],
): { rows: number; windows: number } {
  const bytes = columns
    .filter(({ meta_data }) => wanted.includes(meta_data?.path_in_schema[0] ?? ""))
    .reduce((sum, { meta_data }) => sum + Number(meta_data?.total_uncompressed_size ?? 0), 0);
  return { rows: Number(num_rows), windows: Math.ceil(bytes / WINDOW_BYTES) || 1 };
}

/** A value as JSON has it: plain numbers and lists, and no fields that are null but a row's own. */
function toJson(value: unknown, isRow = false): unknown {
  if (typeof value === "bigint") return Number(value);
  if (ArrayBuffer.isView(value)) {
    return Array.from(value as unknown as ArrayLike<number>, (one) => toJson(one));
  }
  if (Array.isArray(value)) return value.map((one) => toJson(one));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).filter(([, field]) => isRow || field !== null)
      .map(([key, field]) => [key, toJson(field)]),
  );
}
