/** Protects the reader of JSON whose numbers and keys keep their form. */
import { assertEquals, assertThrows } from "@std/assert";
import {
  exactEntries,
  exactJsonText,
  mergeExact,
  parseExactJson,
  parsePythonJson,
  parseRowJson,
} from "../../../core/base/exact_json.ts";

Deno.test("rows keep the forms of conversations alone", () => {
  const row = '{"messages":[{"role":"user","n":1.0}],"x":2.0}';
  assertEquals(exactJsonText(parseRowJson(row)), row);
  assertEquals(exactJsonText(parseRowJson('{"tokens":[1],"x":2.0}')), '{"tokens":[1],"x":2}');
  assertEquals(parseRowJson("null"), null);
});

Deno.test("numbers keep their digits and keys their order", () => {
  const text = '{"z":0.0,"10":1e-07,"2":[9007199254740993,-0,1E5],"n":{"1":12345678901234567890}}';
  const value = parseExactJson(text);
  assertEquals(exactJsonText(value), text);
  assertEquals(exactEntries(value as Record<string, unknown>).map(([key]) => key), [
    ...["z", "10", "2", "n"],
  ]);
});

Deno.test("values are those of JSON.parse", () => {
  const text = '{"__proto__": {"5": 1.0}, "a": "\\"\\\\", "a": [true, null, "1"], "3": {}}';
  assertEquals(JSON.stringify(parseExactJson(text)), JSON.stringify(JSON.parse(text)));
  assertThrows(() => parseExactJson("{"), SyntaxError);
});

Deno.test("NaN and infinities, as Python writes them, are objects as in transformers 5.24", () => {
  const float = (name: string) => ({ __float__: name });
  const parse = (text: string) => parsePythonJson(text, JSON.parse);
  const rows: [text: string, value: unknown][] = [
    ['{"x": NaN, "y": [Infinity, -Infinity, 1]}', {
      x: float("NaN"),
      y: [float("Infinity"), float("-Infinity"), 1],
    }],
    ['{"NaN": "Infinity \\" NaN", "x": NaN}', { NaN: 'Infinity " NaN', x: float("NaN") }],
    ['"NaN"', "NaN"],
    ["NaN", float("NaN")],
  ];
  for (const [text, value] of rows) assertEquals(parse(text), value);
  for (const text of ['{"x": NaN', "nan", "NaNs", '{"x": "NaN}', "+Infinity", "inf", '"']) {
    assertThrows(() => parse(text), SyntaxError);
  }
});

Deno.test("copies keep forms, and changed values lose them", () => {
  const value = parseExactJson('{"b": 1.0, "1": 2.0, "c": 3.0}') as Record<string, unknown>;
  assertEquals(exactJsonText({ ...value, c: 4, d: 5 }), '{"b":1.0,"1":2.0,"c":4,"d":5}');
});

Deno.test("a string of many megabytes is read", () => {
  const long = '\\"x'.repeat(4 << 20);
  const value = parseExactJson(`{"a": "${long}", "b": 1.0}`) as { a: string };
  assertEquals(value.a.length, 8 << 20);
});

Deno.test("merged objects keep the forms of all", () => {
  const [a, b] = ['{"x": 1.0, "y": 2.0}', '{"y": 3, "z": 4.0}'].map((text) =>
    parseExactJson(text) as Record<string, unknown>
  );
  assertEquals(exactJsonText(mergeExact(a, undefined, b)), '{"x":1.0,"y":3,"z":4.0}');
});
