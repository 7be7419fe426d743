/**
 * Constraints between flags: `requires`, `conflictsWith`, `onlyWith`, and `atLeastOneOf` of a command.
 *
 * A flag counts as set when its value differs from its default. A variable of the environment that does
 * not fit the other flags is ignored, so that a variable set for one command breaks no other.
 */
import type { Problem } from "./misuse.ts";
import { type ConfigValue, type FlagTable, formatFlag } from "./table.ts";
import { formatValue } from "./values.ts";

/** Resolved setting of a flag. */
export interface Setting {
  readonly value: ConfigValue;
  readonly origin: Origin;
}

/** Origin of a value. */
export type Origin = "flag" | "environment" | "config" | "preset" | "default";

/** Flags by long name, and positional arguments by their name in capitals, as they are set. */
export type Settings = ReadonlyMap<string, Setting>;

/** Sets of names of which a command needs at least one. */
export type Alternatives = readonly (readonly string[])[];

/** Returns whether `name`, or `name=value`, is set; of a list one value is enough. */
function isSet(condition: string, settings: Settings, table: FlagTable): boolean {
  const [name, value] = split(condition);
  const setting = settings.get(name);
  const actual = setting?.value ?? null;
  if (value !== undefined) return [actual].flat().some((one) => String(one) === value);
  if (actual === null || actual === false || (Array.isArray(actual) && actual.length === 0)) {
    return false;
  }
  const flag = table[name];
  const byDefault = flag && "default" in flag ? flag.default : undefined;
  return setting!.origin !== "default" && JSON.stringify(actual) !== JSON.stringify(byDefault);
}

function split(condition: string): [name: string, value: string | undefined] {
  const at = condition.indexOf("=");
  return at < 0 ? [condition, undefined] : [condition.slice(0, at), condition.slice(at + 1)];
}

/** `--name`, `--name value`, or the name of an argument, in backticks. */
function conditionText(condition: string): string {
  const [name, value] = split(condition);
  return formatFlag(name, value);
}

/** Flags set by the environment alone that do not fit what else is set. */
export function overriddenVariables(settings: Settings, table: FlagTable): string[] {
  const isVariable = (name: string) => settings.get(name)?.origin === "environment";
  const lacking = Object.entries(table).filter(([name, { requires = [] }]) =>
    isVariable(name) && !requires.every((condition) => isSet(condition, settings, table))
  ).map(([name]) => name);
  const conflicting = pairs(table).filter(([name, other]) =>
    isSet(name, settings, table) && isSet(other, settings, table)
  ).flatMap(([name, other]) => [name, split(other)[0]].filter(isVariable).slice(0, 1));
  return [...lacking, ...conflicting];
}

/** Every pair that must not be set together, as declared. */
function pairs(table: FlagTable): [name: string, other: string][] {
  return Object.entries(table).flatMap(([name, { conflictsWith = [] }]) =>
    conflictsWith.map((other): [string, string] => [name, other])
  );
}

/** Refuses sets of flags of which one is missing or too many. */
export function checkConstraints(
  command: string,
  settings: Settings,
  table: FlagTable,
  alternatives: Alternatives = [],
): Problem[] {
  const set = (condition: string) => isSet(condition, settings, table);
  const problems: Problem[] = [];
  for (const [name, { requires = [] }] of Object.entries(table)) {
    if (!set(name)) continue;
    const missing = requires.filter((condition) => !set(condition));
    if (missing.length === 0) continue;
    const needed = missing.map(conditionText).join(" and ");
    problems.push({ message: `${given(name, settings, table)} needs ${needed}` });
  }
  for (const [name, other] of pairs(table)) {
    if (!set(name) || !set(other)) continue;
    problems.push({
      message: `${given(name, settings, table)} cannot be combined with ${conditionText(other)}`,
      hint: "drop one of the two",
    });
  }
  for (const names of alternatives) {
    if (names.some(set)) continue;
    problems.push({ message: `\`${command}\` needs ${oneOf(names)}` });
  }
  return problems;
}

/** `A`, `A or B`, `A, B or C`, each as it is typed. */
function oneOf(names: readonly string[]): string {
  return new Intl.ListFormat("en-GB", { type: "disjunction" }).format(names.map(conditionText));
}

/** A flag as it was given; a value that is not a switch's own says more than the name. */
function given(name: string, settings: Settings, table: FlagTable): string {
  const value = settings.get(name)!.value, flag = table[name];
  const isScalar = typeof value === "number" || typeof value === "string";
  return formatFlag(name, isScalar && flag !== undefined ? formatValue(flag, value) : undefined);
}

/** Flags that are set and have no effect here, with a flag that would give them one. */
export function idleFlags(
  settings: Settings,
  table: FlagTable,
): { readonly flag: string; readonly needed: string }[] {
  return Object.entries(table).flatMap(([name, { onlyWith = [] }]) => {
    if (onlyWith.length === 0 || !isSet(name, settings, table)) return [];
    if (["environment", "preset"].includes(settings.get(name)!.origin)) return [];
    if (onlyWith.some((condition) => isSet(condition, settings, table))) return [];
    return [{ flag: formatFlag(name), needed: oneOf(onlyWith) }];
  });
}
