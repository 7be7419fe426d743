/**
 * The flag table: what a command declares about each of its flags, by long name; parser, help, configuration
 * files, environment, completions and tests all read it. `Values` turns a table into what `run` receives:
 * `max-tokens` of type `int` becomes `values.maxTokens: number`. A flag without `default` and `required`
 * may be `undefined`; a list never is, an absent list is empty.
 */

interface FlagBase {
  /** One line, sentence case, no final period. */
  readonly summary: string;
  /** Details in full sentences; shown by `--help`. */
  readonly details: string;
  /** Heading in `--help`; flags without one stand under "Flags". */
  readonly group?: string;
  /** Single letter; the few that exist are `h V v q m p o n P j`. */
  readonly letter?: string;
  /** Name of the value in usage lines: `PATH`, `N`; derived from the type when absent. */
  readonly placeholder?: string;
  /** Unit of a bare number, for help: `tokens`, `seconds`. */
  readonly unit?: string;
  /** Well-known values of free text, for completions. */
  readonly suggestions?: readonly string[];
  /** Absence is misuse. */
  readonly required?: true;
  /** Meaning of an absent value, for help: "all cores". */
  readonly defaultText?: string;
  /** Flags that must be set with this one: `name`, or `name=value`. */
  readonly requires?: readonly string[];
  /** Flags, or arguments by their name in capitals, that must not be set with this one. */
  readonly conflictsWith?: readonly string[];
  /** Flags of which one must be set for this one to have an effect; otherwise a warning says so. */
  readonly onlyWith?: readonly string[];
  /** Only files of known names are read from the folder, so that an output may lie beside them. */
  readonly sharesFolder?: true;
  /** `false`: belongs to one invocation, so neither environment nor configuration may set it. */
  readonly configurable?: false;
}

interface ListOption {
  /**
   * Collects repetitions; `comma` also splits each value at commas, and `several` takes all values up to
   * the next flag, as a shell writes a pattern out.
   */
  readonly list?: "comma" | "repeat" | "several";
}

/** Allowed numbers; `above` and `below` exclude their bound. */
export interface Range {
  readonly min?: number;
  readonly max?: number;
  readonly above?: number;
  readonly below?: number;
}

/** Type of a flag with text: a `path` is read and an `output` written, and `-` is stdin or stdout. */
type TextType = "string" | "path" | "output";

/** Free text or a path. */
export interface TextFlag extends FlagBase, ListOption {
  readonly type: TextType;
  readonly default?: string | readonly string[];
}

/**
 * A number: `size` resolves to bytes, `duration` to seconds, `share` (`5%` or `0.05`) to a fraction;
 * lists of `int` take ranges.
 */
export interface NumericFlag extends FlagBase, ListOption, Range {
  readonly type: "int" | "number" | "size" | "duration" | "share";
  readonly default?: number | readonly number[];
}

/** One of a closed set of words. */
export interface ChoiceFlag extends FlagBase, ListOption {
  readonly type: "choice";
  readonly choices: readonly string[];
  readonly default?: string | readonly string[];
}

/** On or off; one that is on by default is turned off by `--no-<name>`. */
export interface SwitchFlag extends FlagBase {
  readonly type: "switch";
  readonly default?: boolean;
}

/** A switch whose repetitions count, up to `max`: `-v -v`. */
export interface CountFlag extends FlagBase {
  readonly type: "count";
  readonly max: number;
}

/** A short spelling of another flag with one of its values: `--json` is `--format json`. */
export interface ShorthandFlag extends FlagBase {
  readonly type: "shorthand";
  readonly sets: string;
  readonly value: string;
}

/** One entry of a table. */
export type Flag = TextFlag | NumericFlag | ChoiceFlag | SwitchFlag | CountFlag | ShorthandFlag;

/** Flags by long name in kebab case. */
export type FlagTable = Readonly<Record<string, Flag>>;

/** Flags that stand under one heading of `--help`. */
export function flagGroup<const F extends FlagTable>(group: string, flags: F): F {
  const entries = Object.entries(flags).map(([name, flag]) => [name, { ...flag, group }]);
  return Object.fromEntries(entries) as F;
}

type CamelCase<S extends string> = S extends `${infer Head}-${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : S;

type Scalar<F> = F extends { type: "choice"; choices: readonly (infer C)[] } ? C
  : F extends { type: TextType } ? string
  : number;

type Value<F> = F extends { type: "switch" } ? boolean
  : F extends { type: "count" } ? number
  : F extends { list: string } ? readonly Scalar<F>[]
  : F extends { default: string | number } | { required: true } ? Scalar<F>
  : Scalar<F> | undefined;

/** Values of a table's flags: camelCase names, typed values. */
export type Values<T extends FlagTable> = {
  readonly [
    K in keyof T as T[K] extends { type: "shorthand" } ? never : CamelCase<K & string>
  ]: Value<T[K]>;
};

/** A value as it stands in a configuration; `null` is "not set". */
export type ConfigValue = string | number | boolean | null | readonly (string | number)[];

/** `max-tokens` → `maxTokens`. */
export function camelCase(name: string): string {
  return name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}

/** Values of any table by camelCase name, with the positional arguments under `arguments`. */
export type AllValues = Readonly<Record<string, unknown>>;

/** A text that a flag was given. */
export interface FlagText {
  readonly flag: string;
  readonly text: string;
}

/** Returns the texts of all flags of a type; a list has several. */
export function textsOf(type: TextType, table: FlagTable, values: AllValues): FlagText[] {
  return Object.keys(table).filter((name) => table[name]!.type === type).flatMap((flag) =>
    [values[camelCase(flag)] ?? []].flat().map((text) => ({ flag, text: String(text) }))
  );
}

/** `--name value` as it is typed, in backticks; an argument, whose name is in capitals, as it is. */
export function formatFlag(name: string, value?: string | number): string {
  if (/^[A-Z]/.test(name)) return name;
  const text = `--${name}`;
  if (value === undefined) return `\`${text}\``;
  const word = String(value);
  return `\`${text} ${/^[\w./:@%+,-]+$/.test(word) ? word : JSON.stringify(word)}\``;
}

/** `max-tokens` → `max_tokens`, as the documents name it. */
export function snakeCase(name: string): string {
  return name.replaceAll("-", "_");
}

/** `max-tokens` → `PARSCALE_MAX_TOKENS`; nothing for flags that only the command line sets. */
export function environmentName(name: string, flag: Flag): string | undefined {
  if (flag.configurable === false || flag.type === "shorthand") return undefined;
  return `PARSCALE_${name.replaceAll("-", "_").toUpperCase()}`;
}

/** Returns whether the flag consumes a value on the command line. */
export function takesValue(flag: Flag): boolean {
  return flag.type !== "switch" && flag.type !== "count" && flag.type !== "shorthand";
}

/** Returns whether `--no-<name>` exists. */
export function isNegatable(flag: Flag): boolean {
  return flag.type === "switch" && flag.default === true;
}

/** Returns whether several values are collected. */
export function isList(flag: Flag): boolean {
  return "list" in flag && flag.list !== undefined;
}

const PLACEHOLDERS = {
  string: "TEXT",
  path: "PATH",
  output: "PATH",
  int: "N",
  number: "X",
  size: "SIZE",
  duration: "TIME",
  share: "N%",
} as const;

/** Returns whether the choices are too many to stand in a usage line. */
export function hasManyChoices(flag: Flag): boolean {
  return flag.type === "choice" && flag.choices.join("|").length > 40;
}

/** The value's name in usage lines: `N`, `PATH,…`, `a|b`; empty for switches. */
export function placeholder(flag: Flag): string {
  if (flag.type === "switch" || flag.type === "count" || flag.type === "shorthand") return "";
  const own = flag.placeholder ??
    (flag.type !== "choice"
      ? PLACEHOLDERS[flag.type]
      : hasManyChoices(flag)
      ? "NAME"
      : flag.choices.join("|"));
  return flag.list === "comma" ? `${own},…` : flag.list === "several" ? `${own}...` : own;
}
