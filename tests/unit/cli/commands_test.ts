/** Every registered command's tables: unique, documented, parseable, and completed by all shells. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { flagsOf, loadAll } from "../../../cli/framework/command.ts";
import { commands } from "../../../cli/commands/mod.ts";
import { commonFlags, engineFlags } from "../../../cli/framework/common.ts";
import { completionScript, SHELLS } from "../../../cli/framework/completions.ts";
import { fullHelp, shortHelp } from "../../../cli/framework/help.ts";
import { parse } from "../../../cli/framework/parse.ts";
import { resolve } from "../../../cli/framework/resolve.ts";
import { camelCase, type Flag, type FlagTable, isNegatable } from "../../../cli/framework/table.ts";
import { readValue } from "../../../cli/framework/values.ts";
import { PLAIN } from "../../../cli/output/color.ts";

const loaded = await loadAll(commands);
const tables: [string, FlagTable][] = [
  ["engine flags", { ...engineFlags, ...commonFlags }],
  ...loaded.map((command): [string, FlagTable] => [command.name, flagsOf(command)]),
];

Deno.test("long names are kebab case and, with --no forms and letters, unique", () => {
  for (const [command, table] of tables) {
    const names = Object.entries(table).flatMap(([name, flag]) =>
      isNegatable(flag) ? [name, `no-${name}`] : [name]
    );
    for (const name of names) assert(/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(name), name);
    const letters = Object.values(table).flatMap(({ letter }) => letter ?? []);
    for (const list of [names, letters, names.map(camelCase)]) {
      assertEquals(new Set(list).size, list.length, command);
    }
    assertEquals(names.includes("arguments"), false, "reserved for positional arguments");
    for (const letter of letters) assert("hVvqmponPj".includes(letter), `${command} -${letter}`);
  }
});

Deno.test("every flag is documented, one line and long text", () => {
  for (const [command, table] of tables) {
    for (const [name, { summary, details }] of Object.entries(table)) {
      const where = `${command} --${name}`;
      assert(/^[A-Z]/.test(summary) && !/[.\n]$/.test(summary), where);
      assert(summary.length <= 72, where);
      assert(details.endsWith("."), where);
    }
  }
});

Deno.test("defaults fit their own flags and shorthands name existing values", () => {
  for (const [command, table] of tables) {
    for (const [name, flag] of Object.entries(table)) {
      if (flag.type === "shorthand") {
        readValue(table[flag.sets]!, flag.value);
      } else if ("default" in flag && flag.default !== undefined) {
        assertEquals(readValue(flag, flag.default), flag.default, `${command} --${name}`);
      }
    }
  }
});

Deno.test("examples are command lines that parse", () => {
  for (const command of loaded) {
    const lines = Object.values(command.examples);
    assert(lines.length > 0, command.name);
    for (const line of lines) {
      const words = line.split(/[|<>()]/).find((part) => part.trim().startsWith("parscale "))!;
      const [, name, ...args] = words.trim().split(/\s+/);
      assertEquals(name, command.name);
      const unquoted = args.join(" ").replace(
        /["']([^"']*)["']/g,
        (_, text) => text.replaceAll(" ", "_"),
      ).split(" ").filter((arg) => arg !== "");
      assertEquals(parse(unquoted, flagsOf(command)).problems, [], line);
    }
  }
});

Deno.test("presets resolve", async () => {
  for (const command of loaded) {
    for (const preset of Object.keys(command.presets ?? {})) {
      const table = Object.fromEntries(
        Object.entries(flagsOf(command)).map(([name, flag]) => {
          const { required: _, requires: _alone, ...optional } = flag;
          return [name, optional];
        }),
      ) as FlagTable;
      const free = { name: command.name, presets: command.presets! };
      const parsed = parse(["--preset", preset], table);
      const { origins } = await resolve(parsed, table, free, () => undefined);
      assert(Object.values(origins).includes("preset"), `${command.name} ${preset}`);
    }
  }
});

Deno.test("help shows every flag once and keeps to the width", () => {
  for (const command of loaded) {
    const full = fullHelp(command, { width: 80, paint: PLAIN });
    for (const [name, flag] of Object.entries<Flag>(command.flags)) {
      const long = isNegatable(flag) ? `--[no-]${name}` : `--${name}`;
      const heads = full.split("\n").filter((line) =>
        /^ {2}(-., )?--/.test(line) && line.split(/[ ,]+/).includes(long)
      );
      assertEquals(heads.length, 1, `${command.name} ${long}`);
    }
    const short = shortHelp(command, { width: 80, paint: PLAIN });
    assert(short.split("\n").length < full.split("\n").length);
  }
});

Deno.test("completions name every command and flag in every shell", () => {
  for (const shell of SHELLS) {
    const script = completionScript(shell, loaded);
    for (const command of loaded) {
      assertStringIncludes(script, command.name);
      for (const [name, flag] of Object.entries(flagsOf(command))) {
        const word = isNegatable(flag) ? `no-${name}` : name;
        assertStringIncludes(script, shell === "fish" ? `-l ${word}` : `--${word}`);
      }
    }
  }
});
