/**
 * Help text from a command's tables: short for `-h`, complete for `--help`.
 *
 * Examples come first because they are what people look for. The common flags are one line;
 * `parscale help flags` explains them.
 */
import { type Command, type CommandEntry, flagsOf } from "./command.ts";
import type { Palette } from "../output/color.ts";
import { wrap } from "../output/wrap.ts";
import { commonFlags } from "./common.ts";
import {
  type ConfigValue,
  environmentName,
  type Flag,
  type FlagTable,
  hasManyChoices,
  isNegatable,
  placeholder,
} from "./table.ts";
import { describeExpected, describeRange, formatValue } from "./values.ts";

/** Layout of help. */
export interface HelpOptions {
  readonly width: number;
  readonly paint: Palette;
}

/** `-o, --out PATH|-`, or `--[no-]progress` for a switch that is on by default. */
export function flagUsage(name: string, flag: Flag): string {
  const letter = flag.letter === undefined ? "" : `-${flag.letter}, `;
  const value = placeholder(flag);
  const long = isNegatable(flag) ? `--[no-]${name}` : `--${name}`;
  return `${letter}${long}${value === "" ? "" : ` ${value}`}`;
}

/** The argument part of a usage line: ` TOPIC`, ` [FILE...]`. */
function argumentUsage(command: Command): string {
  return (command.arguments ?? []).map(({ name, required, repeated }) => {
    const text = repeated ? `${name}...` : name;
    return required ? ` ${text}` : ` [${text}]`;
  }).join("");
}

/** `Usage: parscale fit [flags] [FILE...]`. */
export function usageLine(command: Command): string {
  return `Usage: parscale ${command.name} [flags]${argumentUsage(command)}`;
}

function defaultNote(flag: Flag): string {
  if (flag.required) return "required";
  if (flag.defaultText !== undefined) return `default: ${flag.defaultText}`;
  if (!("default" in flag) || flag.type === "switch" || flag.default === undefined) return "";
  const text = formatValue(flag, flag.default as ConfigValue);
  return text === "" ? "" : `default: ${text}`;
}

/** Returns the notes of a flag beside its text: range, unit, default, constraints, environment. */
export function notes(name: string, flag: Flag): string {
  const numeric = "min" in flag || "max" in flag || "above" in flag || "below" in flag;
  const range = numeric && flag.type !== "count" ? describeRange(flag) : "";
  const variable = environmentName(name, flag);
  const parts = [
    range,
    hasManyChoices(flag) ? describeExpected(flag) : "",
    flag.unit === undefined ? "" : `in ${flag.unit}`,
    isNegatable(flag) ? "on by default" : "",
    "list" in flag && (flag.list === "repeat" || flag.list === "several") ? "may be repeated" : "",
    defaultNote(flag),
    ...constraintNotes(flag),
    variable === undefined ? "" : `env: ${variable}`,
  ];
  const present = parts.filter((part) => part !== "");
  return present.length === 0 ? "" : `[${present.join("; ")}]`;
}

/** Flags by heading, in order of first appearance. */
export function grouped(flags: FlagTable): Map<string, [string, Flag][]> {
  return Map.groupBy(Object.entries(flags), ([, { group = "Flags" }]) => group);
}

/** A heading over two columns; none without rows. */
function section(
  heading: string,
  rows: readonly (readonly [term: string, text: string])[],
  { width, paint }: HelpOptions,
): string[] {
  if (rows.length === 0) return [];
  const left = Math.min(30, Math.max(...rows.map(([term]) => term.length))) + 4;
  const lines = rows.map(([term, text]) => {
    const body = wrap(text, width, " ".repeat(left));
    const head = `  ${term}`;
    return head.length + 2 <= left ? head.padEnd(left) + body.slice(left) : `${head}\n${body}`;
  });
  return [[paint.bold(`${heading}:`), ...lines].join("\n")];
}

/** Names and texts of arguments. */
export function argumentRows(command: Command): (readonly [name: string, text: string])[] {
  return (command.arguments ?? []).map(({ name, summary, choices }) =>
    [name, choices === undefined ? summary : `${summary}: ${choices.join(", ")}`] as const
  );
}

/** The help of `-h`: usage, one example, one line per flag of the command's own. */
export function shortHelp(command: Command, options: HelpOptions): string {
  const [example] = Object.values(command.examples);
  const flags = [...grouped(command.flags)].flatMap(([group, flags]) => {
    const rows = flags.map(([name, flag]) => {
      const note = defaultNote(flag);
      const text = note === "" ? flag.summary : `${flag.summary} [${note}]`;
      return [flagUsage(name, flag), text] as const;
    });
    return section(group, rows, options);
  });
  return [
    `${command.summary}\n\n${usageLine(command)}`,
    ...example === undefined ? [] : [`${options.paint.bold("Example:")}\n  ${example}`],
    ...section("Arguments", argumentRows(command), options),
    ...flags,
    `${commonLine(command, options)}\n\`parscale ${command.name} --help\` explains every flag.`,
  ].join("\n\n") + "\n";
}

function commonLine(command: Command, { width }: HelpOptions): string {
  const common = Object.keys(flagsOf(command)).filter((name) => !(name in command.flags));
  const spelled = (name: string) =>
    isNegatable(flagsOf(command)[name]!) ? `--no-${name}` : `--${name}`;
  const names = common.map(spelled).join(" ");
  return wrap(`Common flags: ${names}; see \`parscale help flags\`.`, width);
}

/** One flag with its summary, its details and what the table says of it. */
function flagParagraph(name: string, flag: Flag, { width, paint }: HelpOptions): string {
  const body = [`${flag.summary}.`, flag.details, notes(name, flag)].filter((text) => text !== "")
    .map((text) => wrap(text, width, "      "));
  return [`  ${paint.hint(flagUsage(name, flag))}`, ...body].join("\n");
}

/** The topic `flags`: those that every command takes. */
export function commonHelp(options: HelpOptions): string {
  const entries = Object.entries<Flag>(commonFlags).map(([name, flag]) =>
    flagParagraph(name, flag, options)
  );
  return `${options.paint.bold("Flags of every command:")}\n${entries.join("\n\n")}\n`;
}

/** The help of `--help`: everything the command's own tables say. */
export function fullHelp(command: Command, options: HelpOptions): string {
  const { paint, width } = options;
  const sections = [`${command.summary}\n\n${usageLine(command)}`];
  const examples = Object.entries(command.examples).map(([text, line]) => `  # ${text}\n  ${line}`);
  if (examples.length > 0) sections.push(`${paint.bold("Examples:")}\n${examples.join("\n\n")}`);
  sections.push(...command.description.split(/\n\s*\n/).map((text) => wrap(text.trim(), width)));
  sections.push(...section("Arguments", argumentRows(command), options));
  for (const [group, flags] of grouped(command.flags)) {
    const entries = flags.map(([name, flag]) => flagParagraph(name, flag, options));
    sections.push(`${paint.bold(`${group}:`)}\n${entries.join("\n\n")}`);
  }
  const presets = Object.entries(command.presets ?? {}).map(([name, { summary }]) =>
    [name, summary] as const
  );
  sections.push(...section("Presets", presets, options), commonLine(command, options));
  return sections.join("\n\n") + "\n";
}

/** The help of the program: what it is for, and its commands. */
export function programHelp(entries: readonly CommandEntry[], options: HelpOptions): string {
  const { width } = options;
  const rows = entries.map(({ name, summary }) => [name, summary] as const);
  return [
    "Parallel scaling of language models\n\nUsage: parscale COMMAND [flags]",
    ...section("Commands", rows, options),
    wrap("`parscale COMMAND -h` shows a command's flags, `--help` explains them.", width) + "\n" +
    wrap(
      "`parscale help TOPIC` explains flags, exit-codes, formats, environment or presets.",
      width,
    ),
  ].join("\n\n") + "\n";
}

/** Returns the notes on a flag's constraints: "requires --out". */
export function constraintNotes(
  { requires, conflictsWith, onlyWith }: Pick<Flag, "requires" | "conflictsWith" | "onlyWith">,
): string[] {
  const typed = (condition: string) =>
    /^[A-Z]/.test(condition) ? condition : `--${condition.replace("=", " ")}`;
  const list = (word: string, names: readonly string[] = []) =>
    names.length === 0 ? [] : [`${word} ${names.map(typed).join(", ")}`];
  return [
    ...list("requires", requires),
    ...list("conflicts with", conflictsWith),
    ...list("only with", onlyWith),
  ];
}
