/** Comma-separated values as RFC 4180 defines them. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { csvRows } from "../../../core/base/csv.ts";
import { DataError } from "../../../core/base/errors.ts";

const read = (text: string, options = {}) => [...csvRows(text, "x", options)];

Deno.test("cells, quotes, line ends and separators are those of RFC 4180", () => {
  const cases: readonly (readonly [text: string, rows: string[][], options?: object])[] = [
    ["", []],
    ["a", [["a"]]],
    ["a,b\n1,2", [["a", "b"], ["1", "2"]]],
    ["a,b\r\n1,2\r\n", [["a", "b"], ["1", "2"]]],
    ["a\n\n\r\nb\n", [["a"], ["b"]]],
    [",\n", [["", ""]]],
    ["a,", [["a", ""]]],
    ["a,\nb,", [["a", ""], ["b", ""]]],
    ['""\n', [[""]]],
    ['"a","b""c",""""', [["a", 'b"c', '"']]],
    ['"a\nb",c\r\nd,"e,f"\r\n', [["a\nb", "c"], ["d", "e,f"]]],
    ['"a\r\nb"', [["a\r\nb"]]],
    ['"a",', [["a", ""]]],
    ["a;b,c\n", [["a", "b,c"]], { separator: ";" }],
    ["a\tb\n\t\n", [["a", "b"], ["", ""]], { separator: "\t" }],
    [' a, "b"\n', [["a", "b"]], { trimsStart: true }],
    [" a, b\n", [[" a", " b"]]],
  ];
  for (const [text, rows, options] of cases) assertEquals(read(text, options), rows, text);
});

Deno.test("quotes in wrong places are refused by line", () => {
  const cases = [
    ['a\n"b', "line 2 has a quote that is not closed"],
    ['a\n"b\n""\n', "line 2 has a quote that is not closed"],
    ['a\nb"c,d', "line 2 has a quote inside a cell without quotes"],
    ['"a"b,c', "line 1 has text after a quoted cell"],
  ] as const;
  for (const [text, problem] of cases) {
    assertThrows(() => read(text), DataError, `x is not valid CSV: ${problem}`);
  }
});

Deno.test("a quote that is not closed takes neither memory nor time", () => {
  const text = '1,1,"' + "\n".repeat(50_000_000);
  const before = Deno.memoryUsage().heapUsed, start = performance.now();
  assertThrows(() => read(text), DataError, "line 1 has a quote that is not closed");
  assertEquals(read(`${text}"`)[0]!.length, 3);
  assert(Deno.memoryUsage().heapUsed - before < 200e6);
  assert(performance.now() - start < 20_000);
});
