/** Typed values and their inverse. */
import { assertEquals, assertThrows } from "@std/assert";
import type { Flag } from "../../../cli/framework/table.ts";
import {
  BadValue,
  formatValue,
  parseDuration,
  parseIntRange,
  parseNumber,
  parseSize,
  readValue,
} from "../../../cli/framework/values.ts";

const words = { summary: "S", details: "D." };

function rejects(flag: Flag, raw: unknown, expected: string) {
  const error = assertThrows(() => readValue(flag, raw), BadValue) as BadValue;
  assertEquals(error.expected, expected);
}

type Parser = (text: string) => number | number[] | undefined;

/** Texts that a parser reads, with their values, and texts that it refuses. */
const PARSERS: readonly (readonly [string, Parser, Record<string, number | number[]>, string[]])[] =
  [
    [
      "numbers are plain or have an exponent or a suffix",
      parseNumber,
      {
        "512": 512,
        "-1": -1,
        "1e-4": 1e-4,
        ".5": 0.5,
        "007": 7,
        "4k": 4000,
        "1.5M": 1_500_000,
        "20B": 20e9,
        "3T": 3e12,
        "1.005k": 1005,
      },
      ["", "abc", "0x10", "1e", "4K", "1 000", "1_000", "NaN", "Infinity", "1e999"],
    ],
    [
      "sizes are bytes, binary and decimal units differ",
      parseSize,
      { "8GiB": 8 * 2 ** 30, "500MB": 500e6, "1.5KiB": 1536, "1024": 1024 },
      ["8G", "8gib", "GiB", "8 GiB", "8constructor"],
    ],
    [
      "durations are seconds",
      parseDuration,
      { "30s": 30, "5m": 300, "250ms": 0.25, "2h": 7200, "90": 90 },
      ["5 minutes"],
    ],
    [
      "integer ranges include both ends and may multiply",
      parseIntRange,
      {
        "4": [4],
        "1..4": [1, 2, 3, 4],
        "1..8*2": [1, 2, 4, 8],
        "1..7*2": [1, 2, 4],
        "3..3": [3],
        "1k..4k*2": [1000, 2000, 4000],
      },
      ["8..1", "1..8*1", "0..8*2", "1..", "..8", "1..2..3", "1.5", "1..1e9"],
    ],
  ];

for (const [name, parse, values, refused] of PARSERS) {
  Deno.test(name, () => {
    for (const [text, value] of Object.entries(values)) assertEquals(parse(text), value, text);
    for (const text of refused) assertEquals(parse(text), undefined, text);
  });
}

Deno.test("shares are percents or fractions, to the digit", () => {
  const flag: Flag = { type: "share", min: 0, max: 1, ...words };
  const cases: [string, number][] = [["5%", 0.05], ["0.05", 0.05], ["12.5%", 0.125], ["100%", 1]];
  for (const [text, value] of cases) assertEquals(readValue(flag, text), value, text);
  assertEquals(readValue(flag, 0.05), 0.05);
  for (const value of [0.05, 0.07, 0.125, 0.29, 1]) {
    assertEquals(readValue(flag, formatValue(flag, value)), value);
  }
  assertEquals(formatValue(flag, 0.07), "7%");
  for (const text of ["", "%", "5%%", "five", "101%", "-1%"]) {
    rejects(flag, text, "a share such as 5% from 0% to 100%");
  }
});

Deno.test("out of range tells the allowed range", () => {
  const tokens = { type: "int", min: 1, ...words } as const;
  assertEquals(readValue(tokens, "64"), 64);
  rejects(tokens, "0", "an integer of at least 1");
  rejects(tokens, "1.5", "an integer of at least 1");
  rejects({ type: "int", min: 1, max: 8, ...words }, "9", "an integer from 1 to 8");
  const topP = { type: "number", above: 0, max: 1, ...words } as const;
  assertEquals(readValue(topP, "1"), 1);
  rejects(topP, "0", "a number above 0 and at most 1");
  for (const number of [NaN, Infinity]) {
    assertThrows(() => readValue({ type: "number", ...words }, number), BadValue, String(number));
  }
  rejects({ type: "size", max: 2 ** 30, ...words }, "2GiB", "a size such as 8GiB of at most 1GiB");
});

Deno.test("choices and switches take their words only", () => {
  const device = { type: "choice", choices: ["auto", "cpu"], ...words } as const;
  assertEquals(readValue(device, "cpu"), "cpu");
  rejects(device, "CPU", "one of auto, cpu");
  const on = { type: "switch", ...words } as const;
  assertEquals(["true", "0", false].map((raw) => readValue(on, raw)), [true, false, false]);
  for (const word of ["banana", "constructor"]) rejects(on, word, "true or false");
  rejects(on, 1, "true or false");
});

Deno.test("lists: commas split only where declared, ranges only for integers", () => {
  const streams = { type: "int", min: 1, list: "comma", ...words } as const;
  assertEquals(readValue(streams, ["1,2", "4..6"]), [1, 2, 4, 5, 6]);
  assertEquals(readValue(streams, [1, "2..3"]), [1, 2, 3]);
  rejects(streams, "1,,2", "integers or ranges such as 1..8 of at least 1");
  const stop = { type: "string", list: "repeat", ...words } as const;
  assertEquals(readValue(stop, [",", "a,b"]), [",", "a,b"]);
  const predict = { type: "number", list: "comma", ...words } as const;
  assertEquals(readValue(predict, "1.6e9,8"), [1.6e9, 8]);
  rejects({ type: "int", ...words }, "1..8", "an integer");
  rejects({ type: "int", ...words }, [1, 2], "an integer");
});

Deno.test("values of a configuration keep their JSON type", () => {
  assertEquals(readValue({ type: "number", ...words }, 1e21), 1e21);
  assertEquals(readValue({ type: "int", ...words }, "20B"), 20e9);
  assertEquals(readValue({ type: "string", ...words }, "007"), "007");
  rejects({ type: "int", ...words }, 1.5, "an integer");
  rejects({ type: "string", ...words }, 7, "text");
  rejects({ type: "path", ...words }, { a: 1 }, "a path");
});

Deno.test("formatted values read back as themselves", () => {
  const cases: [Flag, string | number | number[]][] = [
    [{ type: "size", ...words }, 8 * 2 ** 30],
    [{ type: "size", ...words }, 1000],
    [{ type: "duration", ...words }, 0.25],
    [{ type: "number", ...words }, 1e-4],
    [{ type: "int", list: "comma", ...words }, [1, 2, 4]],
  ];
  for (const [flag, value] of cases) assertEquals(readValue(flag, formatValue(flag, value)), value);
  assertEquals(formatValue({ type: "size", ...words }, 8 * 2 ** 30), "8GiB");
});
