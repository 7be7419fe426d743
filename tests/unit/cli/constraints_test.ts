/** Constraints between flags: what is missing, what excludes each other, what has no effect. */
import { assertEquals, assertRejects } from "@std/assert";
import { flagsOf } from "../../../cli/framework/command.ts";
import { commonFlags } from "../../../cli/framework/common.ts";
import { constraintNotes } from "../../../cli/framework/help.ts";
import { MisuseError } from "../../../cli/framework/misuse.ts";
import { parse } from "../../../cli/framework/parse.ts";
import { resolve } from "../../../cli/framework/resolve.ts";
import type { FlagTable } from "../../../cli/framework/table.ts";
import { commands } from "../../../cli/commands/mod.ts";

const words = { summary: "S", details: "D." };
const table = {
  ...commonFlags,
  resume: { type: "switch", requires: ["folder"], ...words },
  folder: { type: "path", ...words },
  mode: { type: "choice", choices: ["infer", "train"], default: "infer", ...words },
  rows: { type: "int", default: 8, requires: ["mode=train"], ...words },
  what: { type: "choice", choices: ["decode", "train"], list: "comma", ...words },
  params: { type: "string", requires: ["what=train"], ...words },
  beams: { type: "int", default: 1, conflictsWith: ["temperature", "FILE"], ...words },
  temperature: { type: "number", default: 0, ...words },
  "top-k": { type: "int", default: 0, onlyWith: ["temperature"], ...words },
} as const satisfies FlagTable;
const command = {
  name: "try",
  arguments: [{ name: "FILE", summary: "rows" }],
  atLeastOneOf: [["folder", "mode=train", "FILE"]],
};

const run = (line: string, env: Record<string, string> = {}) =>
  resolve(parse(line.split(" "), table), table, command, (name) => env[name]);

/** Lines, and what is said against them; nothing where they run. */
const LINES: readonly (readonly [line: string, ...messages: string[]])[] = [
  ["--resume x", "`--resume` needs `--folder`"],
  ["--resume --folder f"],
  ["--rows 4 x", "`--rows 4` needs `--mode train`"],
  ["--rows 4 --mode train"],
  ["--params all --what decode x", "`--params all` needs `--what train`"],
  ["--params all --what decode,train x"], // one value of a list is enough
  ["--rows 8 --folder f"], // a flag at its default is not set
  ["--beams 4 --temperature 1 --folder f", "`--beams 4` cannot be combined with `--temperature`"],
  ["--beams 4 x", "`--beams 4` cannot be combined with FILE"],
  ["--beams 1 --temperature 1 --folder f"],
  ["--temperature 1", "`try` needs `--folder`, `--mode train` or FILE"],
  ["x"],
];

for (const [line, ...messages] of LINES) {
  Deno.test(`${line}: ${messages.join(", ") || "runs"}`, async () => {
    if (messages.length === 0) return void await run(line);
    const error = await assertRejects(() => run(line), MisuseError) as MisuseError;
    assertEquals(error.problems.map(({ message }) => message), messages);
  });
}

Deno.test("a flag without effect is a warning, a variable that does not fit is ignored", async () => {
  assertEquals((await run("--top-k 5 x")).idle, [{ flag: "`--top-k`", needed: "`--temperature`" }]);
  assertEquals((await run("--top-k 5 --temperature 1 x")).idle, []);
  assertEquals((await run("x", { PARSCALE_TOP_K: "5" })).idle, []);
  const { values } = await run("--temperature 1 x", { PARSCALE_BEAMS: "4", PARSCALE_ROWS: "2" });
  assertEquals([values.beams, values.rows], [1, 8]);
});

Deno.test("help tells constraints", () => {
  assertEquals(constraintNotes(table.beams), ["conflicts with --temperature, FILE"]);
  assertEquals(constraintNotes(table.rows), ["requires --mode train"]);
  assertEquals(constraintNotes(table["top-k"]), ["only with --temperature"]);
});

Deno.test("constraints of every command name its own flags and arguments", async () => {
  for (const entry of commands) {
    const command = await entry.load();
    const flags = flagsOf(command);
    const names = [
      ...Object.keys(flags),
      ...(command.arguments ?? []).map(({ name }) => name.split("|")[0]!),
    ];
    const used = [
      ...Object.values(flags).flatMap(({ requires = [], conflictsWith = [], onlyWith = [] }) => [
        ...requires,
        ...conflictsWith,
        ...onlyWith,
      ]),
      ...(command.atLeastOneOf ?? []).flat(),
    ];
    const unknown = used.filter((condition) => !names.includes(condition.split("=")[0]!));
    assertEquals(unknown, [], command.name);
  }
});
