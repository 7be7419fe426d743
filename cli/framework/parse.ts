/**
 * Splits an argument list into flags and positional arguments; says nothing about values. The tokenizer is
 * `parseArgs`, which guesses a great deal: it turns text into numbers, loses the value in `--lr -1` and
 * `--model -`, reads `-out` as three letters and nests dotted names. So a pass before it spells every known
 * flag as `--name=value`, which leaves nothing to guess, and every flag is declared as collected text.
 */
import { parseArgs } from "@std/cli/parse-args";
import type { Problem } from "./misuse.ts";
import { peerHint, suggestionHint } from "./suggest.ts";
import { type Flag, type FlagTable, isList, isNegatable, takesValue } from "./table.ts";
import { describeExpected } from "./values.ts";

/** Arguments as typed, not yet interpreted. */
export interface ParsedArgs {
  /** Texts by long name: all of a list in order, of others the last that was given. */
  readonly given: ReadonlyMap<string, string | readonly string[]>;
  readonly positionals: readonly string[];
  /** Help that was asked for: `-h` or `--help`. */
  readonly help: "short" | "full" | undefined;
  readonly problems: readonly Problem[];
}

interface Spelling {
  readonly args: string[];
  readonly problems: Problem[];
  help: "short" | "full" | undefined;
}

/** `-1`, `-.5`, `-` and `- item` are values; `-x` and `--x` are flags. */
function looksLikeFlag(arg: string): boolean {
  return /^--?[a-zA-Z]/.test(arg) || arg === "--";
}

/** The arguments a flag occupies besides its own: one when it takes the next as its value. */
export function consumedAfter(flag: Flag, next: string | undefined): 0 | 1 {
  return takesValue(flag) && next !== undefined && !looksLikeFlag(next) ? 1 : 0;
}

/** Rewrites one flag whose value, if any, is known; `spelled` is what the user typed. */
function spell(name: string, flag: Flag, value: string | undefined, spelled: string, to: Spelling) {
  if (flag.type === "shorthand") {
    if (value === undefined) to.args.push(`--${flag.sets}=${flag.value}`);
    else {
      to.problems.push({ message: `\`${spelled}\` takes no value` });
    }
  } else if (takesValue(flag) && (value === undefined || value === "")) {
    const message = `\`${spelled}\` needs a value: ${describeExpected(flag)}`;
    const hint = `a value that begins with a dash is written \`--${name}=-x\``;
    to.problems.push(value === undefined ? { message, hint } : { message });
  } else {
    to.args.push(`--${name}=${value ?? "true"}`);
    if (name === "help") to.help = spelled === "-h" && to.help !== "full" ? "short" : "full";
  }
}

/** Rewrites `-vq`, `-j4`, `-j 4`, `-j=4`; returns how many further arguments it used. */
function spellLetters(arg: string, next: string | undefined, table: FlagTable, to: Spelling) {
  for (let i = 1; i < arg.length; i++) {
    const letter = arg[i]!;
    const spelled = `-${letter}`;
    const entry = Object.entries(table).find(([, flag]) => flag.letter === letter);
    if (entry === undefined) {
      const message = `unknown flag \`${spelled}\`${arg.length > 2 ? ` in "${arg}"` : ""}`;
      const letters = Object.values(table).flatMap((flag) => flag.letter ?? []);
      const long = Object.hasOwn(table, arg.slice(1).split("=")[0]!);
      const hint = long
        ? `did you mean \`-${arg}\`?`
        : peerHint(letter, table) ?? `known: -${letters.join(", -")}`;
      to.problems.push({ message, hint });
      return 0;
    }
    const [name, flag] = entry;
    const rest = arg.slice(i + 1);
    if (rest.startsWith("=") || (takesValue(flag) && rest !== "")) {
      spell(name, flag, rest.replace(/^=/, ""), spelled, to);
      return 0;
    }
    const used = rest === "" ? consumedAfter(flag, next) : 0;
    spell(name, flag, used === 1 ? next : undefined, spelled, to);
    if (used === 1) return 1;
  }
  return 0;
}

/** Rewrites `--name`, `--name value`, `--name=value` and `--no-name`; `rest` is what follows. */
function spellLong(arg: string, rest: readonly string[], table: FlagTable, to: Spelling) {
  const [next] = rest;
  const equals = arg.indexOf("=");
  const name = arg.slice(2, equals < 0 ? undefined : equals);
  const value = equals < 0 ? undefined : arg.slice(equals + 1);
  const positive = name.startsWith("no-") ? name.slice(3) : "";
  if (Object.hasOwn(table, name)) {
    const flag = table[name]!;
    const used = value === undefined ? consumedAfter(flag, next) : 0;
    spell(name, flag, used === 1 ? next : value, `--${name}`, to);
    if (used === 0 || !("list" in flag) || flag.list !== "several") return used;
    const end = rest.findIndex(looksLikeFlag);
    const more = rest.slice(1, end < 0 ? undefined : end);
    for (const one of more) spell(name, flag, one, `--${name}`, to);
    return used + more.length;
  }
  if (Object.hasOwn(table, positive) && isNegatable(table[positive]!)) {
    if (value === undefined) to.args.push(`--${positive}=false`);
    else {
      to.problems.push({ message: `\`--${name}\` takes no value` });
    }
    return 0;
  }
  // Without its value, since the tokenizer would take `--no-model=x` for `--model=x`.
  to.args.push(name === "" ? arg : `--${name}`);
  return 0;
}

function spellOut(args: readonly string[], table: FlagTable): Spelling {
  const to: Spelling = { args: [], problems: [], help: undefined };
  for (let i = 0; i < args.length; i++) {
    const arg = args[i]!;
    if (arg === "--") {
      to.args.push(...args.slice(i));
      break;
    }
    if (arg.startsWith("--")) i += spellLong(arg, args.slice(i + 1), table, to);
    else if (arg.startsWith("-") && arg !== "-") i += spellLetters(arg, args[i + 1], table, to);
    else to.args.push(arg);
  }
  return to;
}

/** Long names as the user may type them, with the `--no-` forms. */
function spellings(table: FlagTable): string[] {
  return Object.entries(table).flatMap(([name, flag]) =>
    isNegatable(flag) ? [`--${name}`, `--no-${name}`] : [`--${name}`]
  );
}

/** Splits `args` by `table`; what is wrong is returned, so that values can be checked as well. */
export function parse(args: readonly string[], table: FlagTable): ParsedArgs {
  const { args: spelled, problems, help } = spellOut(args, table);
  const names = Object.keys(table);
  const positionals: string[] = [];
  const unknown = (arg: string, key?: string): boolean => {
    if (key === undefined) positionals.push(arg);
    else {
      const name = arg.slice(2).split("=")[0]!;
      const hint = peerHint(name, table) ??
        suggestionHint(arg, spellings(table)) ?? "`--help` lists the flags";
      problems.push({ message: `unknown flag \`${arg}\``, hint });
    }
    return false;
  };
  const tokens: Record<string, unknown> = parseArgs(spelled, {
    string: names,
    collect: names,
    "--": true,
    unknown,
  });
  const given = new Map<string, string | readonly string[]>();
  for (const name of names) {
    const texts = tokens[name] as string[];
    if (texts.length === 0) continue;
    const flag = table[name]!;
    if (flag.type === "count") given.set(name, countTexts(texts));
    else given.set(name, isList(flag) ? texts : texts.at(-1)!);
  }
  positionals.push(...(tokens["--"] as string[]));
  return { given, positionals, help, problems };
}

/** `-v -v` is 2; a single `--verbose=2` is what it says. */
function countTexts(texts: readonly string[]): string {
  return texts.length === 1 ? texts[0]! : String(texts.length);
}
