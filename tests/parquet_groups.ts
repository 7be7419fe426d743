/** Parquet tables of many row groups, of one row each. */

/** Types of Thrift's compact protocol. */
const I32 = 5, I64 = 6, BINARY = 8, LIST = 9, STRUCT = 12;

type Field = readonly [id: number, type: number, value: readonly number[]];

/** The bytes of a table with `count` row groups of the one row `text`. */
export function manyGroups(count: number, text: string): Uint8Array<ArrayBuffer> {
  const page = pageOf([...new TextEncoder().encode(text)]);
  const schema = [
    struct([4, BINARY, name("schema")], [5, I32, int(1)]),
    struct([1, I32, int(6)], [3, I32, int(0)], [4, BINARY, name("text")], [6, I32, int(0)]),
  ];
  const before = struct([1, I32, int(1)], [2, LIST, list(STRUCT, schema)], [3, I64, int(count)]);
  const groups = Array.from({ length: count }, (_, i) => groupOf(4 + i * page.length, page.length));
  const groupsField = [0x10 | LIST, ...listHead(STRUCT, count)];
  const footer = [...before.slice(0, -1), ...groupsField, ...groups.flat(), 0];
  const magic = [...new TextEncoder().encode("PAR1")];
  const pages = groups.flatMap(() => page);
  return Uint8Array.from([magic, pages, footer, littleEndian(footer.length), magic].flat());
}

/** A page of one value that is not compressed. */
function pageOf(text: readonly number[]): number[] {
  const value = [...littleEndian(text.length), ...text];
  const header = struct([1, I32, int(1)], [2, I32, int(0)], [3, I32, int(3)], [4, I32, int(3)]);
  const size = int(value.length);
  return [
    ...struct([1, I32, int(0)], [2, I32, size], [3, I32, size], [5, STRUCT, header]),
    ...value,
  ];
}

/** A row group of one page. */
function groupOf(offset: number, bytes: number): number[] {
  const column = struct(
    [1, I32, int(6)],
    [2, LIST, list(I32, [int(0)])],
    [3, LIST, list(BINARY, [name("text")])],
    [4, I32, int(0)],
    [5, I64, int(1)],
    [6, I64, int(bytes)],
    [7, I64, int(bytes)],
    [9, I64, int(offset)],
  );
  const chunk = struct([2, I64, int(offset)], [3, STRUCT, column]);
  return struct([1, LIST, list(STRUCT, [chunk])], [2, I64, int(bytes)], [3, I64, int(1)]);
}

function littleEndian(value: number): number[] {
  return [...new Uint8Array(Uint32Array.of(value).buffer)];
}

function unsigned(value: number): number[] {
  return value < 0x80 ? [value] : [value & 0x7f | 0x80, ...unsigned(value >>> 7)];
}

/** A positive integer, which is stored doubled. */
function int(value: number): number[] {
  return unsigned(2 * value);
}

function name(text: string): number[] {
  return [...unsigned(text.length), ...new TextEncoder().encode(text)];
}

function listHead(type: number, length: number): number[] {
  return length < 15 ? [length << 4 | type] : [0xf0 | type, ...unsigned(length)];
}

function list(type: number, values: readonly number[][]): number[] {
  return [...listHead(type, values.length), ...values.flat()];
}

function struct(...fields: Field[]): number[] {
  const ids = [0, ...fields.map(([id]) => id)];
  return [...fields.flatMap(([id, type, value], i) => [(id - ids[i]!) << 4 | type, ...value]), 0];
}
