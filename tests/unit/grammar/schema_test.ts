/** The grammar of each keyword of JSON Schema: texts that it allows, texts that it does not, refusals. */
import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { parseExactJson } from "../../../core/base/exact_json.ts";
import { networkOf } from "../../../core/grammar/network.ts";
import { schemaGrammar } from "../../../core/grammar/schema.ts";
import { acceptorOf } from "./acceptor.ts";
import { Dice, randomSchema } from "../../schema_fuzzing/schemas.ts";
import {
  apiSchemas,
  namedSchemas,
  supported,
  supportedTool,
  tryDocuments,
  tryTexts,
} from "../../schema_fuzzing/try.ts";

/** Returns a function that tells whether a text is allowed by a schema, whose text keeps its digits. */
function acceptor(schema: string): (text: string) => boolean {
  return acceptorOf(schemaGrammar(parseExactJson(schema)));
}

type Row = readonly [schema: string, allowed: readonly string[], others: readonly string[]];

const STRINGS: readonly Row[] = [
  ['{"type":"string"}', ['""', '"\\u00e9\\/\\n"', '"\\ud83d\\ude00"', '"é🙂"', '"\u007f"'], [
    ...['"\n"', '"\\ud83d"', '"\\ude00"', '"\\ud83d\\u0041"', '"\\x"', '"', '"a'],
  ]],
  ['{"type":"string","minLength":1}', ['"She said \\"go\\" once."', '"\\ud83d\\ude00"'], ['""']],
  [
    '{"type":"string","minLength":2,"maxLength":3}',
    ['"ab"', '"abc"', '"🙂🙂🙂"', '"\\ud83d\\ude00a"', '"\\"\\""'],
    ['"a"', '"abcd"', '"\\ud83d\\ude00"'],
  ],
  ['{"maxLength":1}', ['""', '"a"'], ['"ab"', "1"]],
  ['{"type":"string","pattern":"^yes$|^no$"}', ['"yes"', '"no"'], ['"yes', '"ye"', '"yesno"']],
  ['{"type":"string","pattern":"^[^,]+$"}', ['"say \\"hi\\""', '"\\n"', '"é🙂"'], ['"a,b"', '""']],
  ['{"type":"string","pattern":"a.c"}', ['"xabcy"', '"a\\\\c"', '"a\\tc"'], ['"ac"', '"a\\nc"']],
  ['{"type":"string","pattern":"^\\\\S+$"}', ['"\\"\\\\"', '"é"'], ['" "', '""', '"\\u00a0"']],
  ['{"type":"string","pattern":"^(a|b){2,3}$"}', ['"ab"', '"bba"'], ['"a"', '"abab"']],
  ['{"type":"string","pattern":"^[\\\\w-]+\\\\.[^\\\\d]$"}', ['"a-1.x"'], ['"a.1"', '"é.x"']],
  ['{"type":"string","pattern":"^\\\\u{1F642}\\\\uD83D\\\\uDE42\\\\x41$"}', ['"🙂🙂A"'], ['"🙂"']],
  ['{"type":"string","format":"date"}', ['"2024-02-29"', '"2000-02-29"', '"2023-12-31"'], [
    ...['"2023-02-29"', '"1900-02-29"', '"2023-13-01"', '"2023-04-31"'],
  ]],
  ['{"pattern":"^(ab)*c?$","minLength":2,"maxLength":5}', ['"ab"', '"abc"', '"abab"', '"ababc"'], [
    ...['"c"', '""', '"ababab"', "1"],
  ]],
  ['{"pattern":"b","maxLength":3}', ['"b"', '"\\"b\\""', '"🙂b🙂"'], ['"abcd"', '"aaa"']],
  ['{"pattern":"^[a-c]+$","minLength":300}', [`"${"abc".repeat(100)}"`], [`"${"a".repeat(299)}"`]],
  ['{"format":"date","pattern":"^2","maxLength":10}', ['"2024-02-29"'], ['"1999-12-31"', '"2"']],
  ['{"$ref":"#/$defs/d","format":"date","$defs":{"d":{"type":"string"}}}', ['"2024-02-29"'], [
    '"a"',
  ]],
  ['{"enum":["2024-02-29","x"],"format":"date"}', ['"2024-02-29"'], ['"x"']],
  ['{"allOf":[{"pattern":"^a"},{"pattern":"b$"}],"maxLength":4}', ['"ab"', '"a\\nb"'], [
    ...['"a"', '"b"', '"aaaab"'],
  ]],
  ['{"pattern":"^\\\\d{3}\\\\-[\\\\-\\\\_]\\\\@$"}', ['"123--@"', '"123-_@"'], ['"123@"']],
  ['{"type":"string","format":"json-pointer"}', ['"/a\\"b"'], ['"/a"b"']],
];

const NUMBERS: readonly Row[] = [
  ['{"type":"integer"}', ["0", "-7", "123"], ["-0", "01", "1.0", "1e2", '"1"']],
  ['{"type":"integer","minimum":-180,"maximum":180}', ["-180", "180", "0", "99", "-7"], [
    ...["185", "-181", "1000", "-0", "007"],
  ]],
  ['{"type":"integer","minimum":18,"maximum":120}', ["18", "99", "100", "120"], ["17", "121", "9"]],
  ['{"type":"integer","exclusiveMinimum":1.5,"exclusiveMaximum":4}', ["2", "3"], ["1", "4"]],
  ['{"type":"integer","minimum":9007199254740993}', ["9007199254740993", "99999999999999999999"], [
    ...["9007199254740992", "5", "-9007199254740994"],
  ]],
  ['{"type":"integer","maximum":-1e3}', ["-1000", "-1001", "-20000"], ["-999", "0", "1000"]],
  ['{"type":"number"}', ["0", "-1.5", "1e21", "1e-7", "1.5E+300", "-0"], [
    "1e309",
    "1.",
    ".5",
    "01",
  ]],
  ['{"type":"number","minimum":0.5,"maximum":10.25}', [
    ...["0.5", "0.50", "1", "10.25", "10.250", "10.2", "9.999999", "10"],
  ], ["0.4", "0", "0.49999", "10.26", "10.3", "11", "-1", "1e1"]],
  ['{"type":"number","exclusiveMinimum":0}', ["0.1", "1", "0.0001"], ["0", "0.0", "-1", "-0"]],
  ['{"type":"number","exclusiveMaximum":1}', ["0.9999999999999999", "-5", "0"], [
    ...["1", "1.0", "0.99999999999999999999"],
  ]],
  ['{"type":"number","minimum":-1.5,"maximum":2}', ["-1.5", "-1", "-0", "2.0", "-0.3", "1.9"], [
    ...["-1.6", "2.1", "-2", "2.01"],
  ]],
];

const MULTIPLES: readonly Row[] = [
  ['{"type":"integer","multipleOf":7}', ["0", "7", "-14", "7000007"], ["1", "-0", "15", "07"]],
  ['{"type":"number","multipleOf":25,"minimum":-50,"exclusiveMaximum":1000}', [
    ...["-50", "-25", "0", "975"],
  ], ["-75", "1000", "10", "2.5"]],
];

const VALUES: readonly Row[] = [
  ['{"enum":[9007199254740993,"a\\"b",null,1.0]}', ["9007199254740993", '"a\\"b"', "null", "1"], [
    ...["9007199254740992", "1.0"],
  ]],
  ['{"const":{"b":1,"2":[],"1":{}}}', ['{"b":1,"2":[],"1":{}}', '{ "b": 1, "2": [ ], "1": {}}'], [
    ...['{"1":{},"2":[],"b":1}'],
  ]],
  ['{"enum":["a",1,null],"type":["string","null"]}', ['"a"', "null"], ["1"]],
  ['{"const":1,"enum":[1.0,2]}', ["1"], ["2"]],
  ['{"type":["integer","null"]}', ["1", "null"], ['"a"', "1.5"]],
  ["true", ["1", "[{}]", '"a"'], ["[", "nul"]],
  ["{}", ['{"a":[1,{"b":null}]}', "[ ]"], ["{a:1}"]],
];

const OBJECTS: readonly Row[] = [
  ['{"type":"object"}', ["{}", '{"a":[1,{"b":null}]}', '{ "a" : 1e5 }'], ["[]", '{"a":1,}']],
  ['{"properties":{"b":{"type":"integer"},"2":{},"1":{}},"required":["b","2"]}', [
    ...['{"b": 1, "2":2,"1":3}', '{"b":1,"2":[]}'],
  ], ['{"2":2,"b":3}', '{"b":1}', '{"b":1,"2":2,"c":3}']],
  ['{"properties":{"a":{"type":"string"}},"additionalProperties":true}', [
    ...['{"a":"x","b":1}', "{}", '{"b":1}', '{"aa":1}', '{"":1}', '{"b":1,"b":2}'],
  ], ['{"a":1}', '{"b":1,"a":2}', '{"\\u0061":1}', '{"a":"x","a":1}']],
  ['{"additionalProperties":{"type":"integer"},"required":["z"]}', ['{"z":1}', '{"z":1,"y":2}'], [
    ...["{}", '{"y":1}', '{"z":"a"}'],
  ]],
  ['{"properties":{"a":{},"b":{},"c":{}},"minProperties":2,"maxProperties":2}', [
    ...['{"a":1,"b":1}', '{"a":1,"c":1}', '{"b":1,"c":1}'],
  ], ["{}", '{"a":1}', '{"a":1,"b":2,"c":3}']],
  ['{"additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2}', [
    ...['{"a":1}', '{"a":1,"b":2}'],
  ], ["{}", '{"a":1,"b":2,"c":3}', '{"a":"x"}']],
  ['{"properties":{"a\\"b":{},"é":{}}}', ['{"a\\"b":1,"é":2}'], ['{"e":1}', '{"\\u00e9":2}']],
  ['{"additionalProperties":{"type":"integer"},"propertyNames":{"type":"string"}}', ['{"a":1}'], [
    '{"a":"x"}',
  ]],
  [
    '{"additionalProperties":{"type":"integer"},"propertyNames":{"enum":["b","a"]},"required":["b"]}',
    [...['{"b":1}', '{"b":1,"a":2}']],
    ["{}", '{"a":1}', '{"b":1,"c":1}'],
  ],
  ['{"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":2}}', ['{"ab":1}', "{}"], [
    ...['{"abc":1}', '{"A":1}'],
  ]],
  ['{"properties":{"a":{}},"propertyNames":false}', ["{}"], ['{"a":1}', '{"b":1}']],
  ['{"patternProperties":{"^x":{"type":"null"}},"additionalProperties":false}', ['{"x1":null}'], [
    ...['{"y":null}', '{"x":1}'],
  ]],
  [
    '{"properties":{"a":{},"b":{}},"additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]}',
    ['{"a":1}', '{"b":1}', '{"a":1,"b":2}'],
    ["{}", '{"c":1}'],
  ],
  ['{"properties":{"a":false,"b":{}}}', ['{"b":1}', "{}"], ['{"a":1}']],
];

const ARRAYS: readonly Row[] = [
  ['{"type":"array"}', ["[]", "[1, [2]]"], ["[1,]", "{}"]],
  [
    '{"items":{"type":"boolean"},"minItems":2,"maxItems":3}',
    ["[true,false]", "[true, true, true]"],
    [...["[]", "[true]", "[true,true,true,true]", "[1,2]"]],
  ],
  ['{"prefixItems":[{"type":"boolean"},{"enum":["x"]}],"minItems":1}', ["[true]", '[true,"x"]'], [
    ...["[]", '[true,"x",1]', '["x"]'],
  ]],
  ['{"prefixItems":[{"type":"null"}],"items":{"type":"integer"},"maxItems":3}', [
    "[]",
    "[null,1,2]",
  ], [...["[1]", "[null,1,2,3]"]]],
];

const UNIQUE: readonly Row[] = [
  ['{"items":{"enum":["a","b",1,1.0]},"uniqueItems":true,"minItems":1}', [
    ...['["a"]', '["b", "a",1]', '[1,"a"]'],
  ], ["[]", '["a","a"]', "[1,1]", '["c"]']],
  ['{"items":{"type":["boolean","null"]},"uniqueItems":true,"maxItems":2}', ["[]", "[null,true]"], [
    ...["[true,true]", "[true,false,null]"],
  ]],
  ['{"items":{"enum":[1,2,3,4,5,6,7,8,9]},"uniqueItems":true}', ["[1,9]", "[2,3,4]"], ["[9,1]"]],
  ['{"type":"array","uniqueItems":true,"maxItems":1}', ["[]", '["x"]'], ["[1,2]"]],
  ['{"items":{"type":"integer"},"uniqueItems":false}', ["[1,1]"], ["[true]"]],
  ['{"prefixItems":[{"type":"null"}],"minItems":3}', ["[null,1,2]"], ["[null]", "[null,1]"]],
];

const REFERENCES: readonly Row[] = [
  ['{"$defs":{"a":{"type":"integer"}},"$ref":"#/$defs/a","maximum":3,"title":"x"}', ["3"], ["4"]],
  ['{"properties":{"n":{"$ref":"#","maxProperties":0}}}', ['{"n":{}}'], ['{"n":{"n":{}}}']],
  ['{"allOf":[{"minimum":3},{"minimum":4,"maximum":9},{"maximum":7}]}', ["4", "7"], ["3", "8"]],
  ['{"allOf":[{"properties":{"a":{"minimum":1}}},{"properties":{"a":{"maximum":2}}}]}', [
    '{"a":1}',
  ], ['{"a":0}', '{"a":3}']],
  ['{"$defs":{"A":{"$anchor":"foo","type":"integer"}},"$ref":"#foo"}', ["3"], ['"x"']],
  ['{"$defs":{"a/b c~":{"type":"integer"}},"properties":{"x":{"$ref":"#/$defs/a~1b%20c~0"}}}', [
    ...['{"x":1}'],
  ], ['{"x":"1"}']],
  ['{"prefixItems":[{"type":"null"},{"$ref":"#/prefixItems/0"}]}', ["[null,null]"], ["[null,1]"]],
  ['{"properties":{"n":{"$ref":"#"}}}', ['{"n":{"n":{}}}'], ['{"n":1}']],
  ['{"anyOf":[{"type":"null"},{"items":{"$ref":"#"}}]}', ["[null,[[]]]"], ["[1]"]],
  ['{"properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]}', [
    ...['{"a":1}', '{"b":1}', '{"a":1,"b":1}'],
  ], ["{}"]],
  [
    '{"oneOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},{"properties":{"k":{"const":"b"}},"required":["k"]}]}',
    [...['{"k":"a"}', '{"k":"b"}']],
    ['{"k":"c"}'],
  ],
  ['{"allOf":[{"type":"integer"},{"minimum":5}]}', ["5", "77"], ["4"]],
  ['{"allOf":[{"$ref":"#/$defs/x"}],"description":"x","$defs":{"x":{"type":"null"}}}', ["null"], [
    "1",
  ]],
];

const TABLES = { STRINGS, NUMBERS, MULTIPLES, VALUES, OBJECTS, ARRAYS, UNIQUE, REFERENCES };

for (const [name, rows] of Object.entries(TABLES)) {
  Deno.test(`schemas allow what they say: ${name.toLowerCase()}`, () => {
    for (const [schema, allowed, others] of rows) {
      const accepts = acceptor(schema);
      for (const text of allowed) assert(accepts(text), `${schema} does not allow ${text}`);
      for (const text of others) assert(!accepts(text), `${schema} allows ${text}`);
    }
  });
}

Deno.test("every integer range around zero is exact", () => {
  for (
    const [low, high] of [[-180, 180], [0, 150], [18, 120], [2000, 2030], [-5, -1], [99, 1001]]
  ) {
    const accepts = acceptor(`{"type":"integer","minimum":${low},"maximum":${high}}`);
    for (let value = -1200; value <= 2200; value++) {
      assertEquals(accepts(String(value)), low! <= value && value <= high!, `${low} ${value}`);
    }
  }
});

Deno.test("blanks between elements are bounded", () => {
  const accepts = acceptor('{"type":"array"}');
  assert(accepts(`[${" ".repeat(12)}1${"\n".repeat(12)}]`));
  assert(!accepts(`[${" ".repeat(13)}1]`));
});

Deno.test("a keyword that is not enforced is refused by its name", () => {
  const many = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, {}]));
  const refused: readonly (readonly [unknown, RegExp])[] = [
    ...["not", "if", "then", "else", "contains", "dependentRequired", "dependentSchemas"].flatMap(
      (keyword) =>
        [{}, true, ...(keyword === "not" ? [] : [false])].map((value) =>
          [{ [keyword]: value }, new RegExp(`keyword "${keyword}"`)] as const
        ),
    ),
    [{ items: { type: "string" }, uniqueItems: true }, /"uniqueItems" .* unless items are an enum/],
    [{ type: "number", multipleOf: 0.01 }, /"multipleOf" .* for 0.01/],
    [{ type: "integer", multipleOf: 99991 }, /"multipleOf" .* needs too many states/],
    [
      { pattern: "(a|b){9}c.*", minLength: 4000, maxLength: 9000 },
      /"maxLength" .* too many states/,
    ],
    [{ properties: { a: {} }, propertyNames: { maxLength: 3 } }, /"propertyNames" .* "properties"/],
    [{ patternProperties: { a: {}, b: {} } }, /"patternProperties" .* one pattern alone/],
    [{ required: ["z"], properties: { a: {} } }, /"required" .* for "z"/],
    [{ propertyNames: false, required: ["z"] }, /"required" .* for "z"/],
    [{ type: "array", allOf: [{ type: "object" }] }, /allows no value/],
    [{ $ref: "https://example.com/x.json" }, /"\$ref" .* for "https:\/\/example\.com\/x\.json"/],
    [{ $ref: "#" }, /"\$ref" .* leads back to itself/],
    [{ anyOf: [{ $ref: "#" }, { type: "null" }] }, /"\$ref" .* leads back to itself/],
    [{ $ref: "#", maximum: 3 }, /"\$ref" .* leads back to itself/],
    [{ properties: { n: { $ref: "#" } }, required: ["n"] }, /allows no value that ends/],
    [false, /allows no value/],
    [{ type: "string", pattern: "^(?=a)" }, /"pattern" .* with lookaround/],
    [{ type: "string", pattern: "(a)\\1" }, /"pattern" .* with "\\1"/],
    [{ type: "string", pattern: "\\bword" }, /"pattern" .* with "\\b"/],
    [{ type: "string", pattern: "\\p{L}" }, /"pattern" .* with "\\p"/],
    [{ type: "string", pattern: "a^" }, /"pattern" .* with "\^" or "\$" inside/],
    [{ type: "string", pattern: "((a{1,99}){1,99}){1,99}" }, /"pattern" .* more than 1024 places/],
    [{ oneOf: [{ type: "integer" }, { type: "number" }] }, /"oneOf"/],
    [{ oneOf: [{ properties: { a: {} } }, { type: "string" }] }, /"oneOf"/],
    [{ allOf: [{ uniqueItems: true }, { uniqueItems: 1 }] }, /"allOf" .* in several parts/],
    [
      { properties: many(500), minProperties: 200, maxProperties: 400 },
      /"minProperties" .* more properties than/,
    ],
    [{ additionalProperties: true, minProperties: 2 }, /"minProperties" .* additional/],
    [{ exclusiveMinimum: true }, /"exclusiveMinimum" .* for true/],
    [{ minLength: -1 }, /"minLength" .* for -1/],
    [{ items: [{}] }, /"items" .* as a list/],
    [{ properties: { a: { $id: "x" } } }, /"\$id"/],
    [{ additionalProperties: false, anyOf: [{ properties: { a: {} } }] }, /"anyOf" .* "additional/],
    [{ enum: [1, 2, 3], maximum: 2 }, /"maximum" .* beside "enum"/],
    [{ type: "string", const: 5 }, /"const" .* no value fits/],
    [{ type: "strin" }, /"type" .* for "strin"/],
    [{ type: "string", pattern: "(" }, /"pattern" .* Unterminated group/],
    [{ type: "array", minItems: 3, maxItems: 2 }, /"minItems" .* above "maxItems"/],
    [{ $ref: "#/nowhere" }, /"\$ref" .* "#\/nowhere", which does not hold a schema/],
    [{ description: "x".repeat(70_000) }, /at most 65536/],
    [JSON.parse(`${'{"items":'.repeat(130)}{}${"}".repeat(130)}`), /deeper than 128 levels/],
  ];
  for (const [schema, message] of refused) {
    const error = assertThrows(
      () => networkOf(schemaGrammar(schema)),
      DataError,
      "",
      JSON.stringify(schema),
    );
    assertMatch(error.message, message);
  }
});

Deno.test("texts along the masks of 60 schemas are valid, and valid documents are along the masks", () => {
  const random = Array.from({ length: 20 }, (_, seed) => randomSchema(new Dice(5000 + seed)));
  let texts = 0, documents = 0;
  for (const [seed, schema] of [...random, ...apiSchemas()].entries()) {
    const grammar = supported(schema);
    if (!grammar) continue;
    texts += tryTexts(grammar, new Dice(seed), 2);
    documents += tryDocuments(grammar, new Dice(seed), 4);
  }
  assert(texts > 100 && documents > 200, `${texts} texts, ${documents} documents`);
});

/** Schemas of pydantic 2 and zod 4 that are refused, with the keyword; docs/serving.md lists the kinds. */
const REFUSED: Readonly<Record<string, RegExp>> = {
  "pydantic set of int": /"uniqueItems"/,
  "pydantic multiple of 0.5": /"multipleOf" .* for 0.5/,
  "zod never in object": /"not"/,
  "zod email max": /"maxLength" .* too many states/,
  "zod emoji": /"pattern" .* lookaround/,
  "zod duration": /"pattern" .* lookaround/,
  "zod step": /"multipleOf" .* for 0.01/,
};

Deno.test("schemas that pydantic and zod make are taken, and texts along their masks are valid", () => {
  let texts = 0;
  for (const [seed, { name, schema }] of namedSchemas("libraries").entries()) {
    const refusal = REFUSED[name];
    if (refusal) {
      const error = assertThrows(() => networkOf(schemaGrammar(schema)), DataError, "", name);
      assertMatch(error.message, refusal);
      continue;
    }
    const grammar = supported(schema);
    assert(grammar !== undefined, name);
    texts += tryTexts(grammar!, new Dice(seed), 1);
  }
  assert(texts > 150, `${texts} texts`);
});

Deno.test("calls of tools are valid by their parameters but for keywords that are named", () => {
  const random = Array.from({ length: 40 }, (_, seed) => randomSchema(new Dice(7000 + seed)));
  let texts = 0;
  for (const [seed, schema] of [...random, ...apiSchemas("libraries")].entries()) {
    const tool = supportedTool(schema);
    if (tool) texts += tryTexts(tool, new Dice(seed), 1);
  }
  assert(texts > 40, `${texts} texts`);
});
