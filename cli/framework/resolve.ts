/**
 * From what was typed to the values a command runs with. Sources, strongest first: flag, environment
 * (`PARSCALE_*`), `--config` file, `--preset`, default. All problems of all sources are
 * thrown at once; help and version never get this far.
 */
import { readConfig } from "./config_file.ts";
import {
  checkConstraints,
  idleFlags,
  type Origin,
  overriddenVariables,
  type Setting,
} from "./constraints.ts";
import type { Argument, Command } from "./command.ts";
import { type Problem, throwIfAny } from "./misuse.ts";
import { nearest, suggestionHint } from "./suggest.ts";
import type { ParsedArgs } from "./parse.ts";
import {
  camelCase,
  type ConfigValue,
  environmentName,
  type Flag,
  type FlagTable,
  formatFlag,
  isList,
} from "./table.ts";
import { BadValue, readValue } from "./values.ts";

/** The parts of a command that resolving needs. */
export type Resolvable = Pick<Command, "name" | "arguments" | "atLeastOneOf" | "presets">;

/** Everything a command runs with. */
export interface Resolution {
  /** By camelCase name, with the positional arguments under `arguments`. */
  readonly values: Readonly<Record<string, unknown>>;
  /** By long name, only flags that a configuration may set; `null` is "not set". */
  readonly config: Readonly<Record<string, ConfigValue>>;
  readonly origins: Readonly<Record<string, Origin>>;
  /** Flags that are set and change nothing, with what would make them work. */
  readonly idle: readonly { readonly flag: string; readonly needed: string }[];
}

/** For arguments that a shell has made of a pattern. */
const QUOTING = { hint: 'a pattern that the program is to read needs quotes: "data/*.txt"' };

/** Only the nearest name: the message already lists all of them. */
function didYouMean(text: string, names: readonly string[]): { hint?: string } {
  const near = nearest(text, names);
  return near === undefined ? {} : { hint: `did you mean \`${near}\`?` };
}

/** Content of a source, by the long names of flags. */
type Entries = Iterable<readonly [name: string, raw: unknown]>;

const flagLabel = (name: string) => `\`--${name}\``;

/** The strongest source's value for each flag, with what is wrong with it. */
class Resolver {
  readonly found = new Map<string, Setting>();

  constructor(
    readonly table: FlagTable,
    readonly command: Resolvable,
    readonly problems: Problem[],
  ) {}

  /**
   * Reads every entry of a source, also those a stronger one hides: a typo there is still one. Messages call
   * an entry by its label.
   */
  add(origin: Origin, entries: Entries, label: (name: string) => string): void {
    for (const [name, raw] of entries) {
      const flag = this.table[name]!;
      try {
        const value = readValue(flag, raw);
        if (flag.type !== "shorthand") this.#set(name, value, origin);
        else if (value === true) this.#set(flag.sets, flag.value, origin);
      } catch (error) {
        if (!(error instanceof BadValue)) throw error;
        const message = `invalid value ${error.given} for ${
          label(name)
        }: must be ${error.expected}`;
        const choices = flag.type === "choice" ? flag.choices : [];
        this.problems.push({ message, ...didYouMean(String(raw), choices) });
        this.found.set(name, { value: null, origin });
      }
    }
  }

  #set(name: string, value: ConfigValue, origin: Origin): void {
    if (!this.found.has(name)) this.found.set(name, { value, origin });
  }

  /** Reads the environment. */
  addVariables(env: (name: string) => string | undefined): void {
    const nameOf = (flag: string) => environmentName(flag, this.table[flag]!);
    const entries = Object.keys(this.table).flatMap((flag) => {
      const variable = nameOf(flag);
      const text = variable === undefined ? undefined : env(variable);
      return text === undefined || text === "" ? [] : [[flag, text] as const];
    });
    this.add("environment", entries, (flag) => nameOf(flag)!);
  }

  /**
   * Reads flag values by long name, in kebab or in snake case, of a configuration or preset; reports keys
   * other than flags.
   */
  addKeyed(origin: Origin, where: string, content: Readonly<Record<string, unknown>>): void {
    const keys = Object.keys(this.table).filter((key) => this.table[key]!.configurable !== false);
    const entries = new Map<string, unknown>();
    for (const [written, value] of Object.entries(content)) {
      const key = written.replaceAll("_", "-");
      if (!keys.includes(key)) {
        const hint = suggestionHint(key, keys) ?? "keys are the long flag names";
        this.problems.push({ message: `unknown key "${written}" in ${where}`, hint });
      } else if (value !== null) entries.set(key, value);
    }
    this.add(origin, entries, (name) => `"${name}" in ${where}`);
  }

  /** Reads a preset of the command. */
  addPreset(name: string): void {
    const { presets = {} } = this.command;
    if (Object.hasOwn(presets, name)) {
      return this.addKeyed("preset", `preset "${name}"`, presets[name]!.values);
    }
    const hint = suggestionHint(name, Object.keys(presets)) ??
      "`parscale help presets` lists them";
    this.problems.push({ message: `unknown preset "${name}"`, hint });
  }

  /** Takes arguments that set flags; returns the others, checked, with their declarations. */
  takeArguments(given: readonly string[]): {
    readonly positionals: readonly string[];
    readonly expected: readonly Argument[];
  } {
    const { arguments: all = [] } = this.command;
    const expected = all.filter(({ sets }) => sets === undefined);
    const words = expected[0]?.choices ?? [];
    const entries = new Map<string, string>();
    for (const { sets, passes } of all) {
      const text = given[entries.size];
      if (sets === undefined || text === undefined || words.includes(text)) break;
      if (this.found.has(sets) || passes?.(text)) break;
      entries.set(sets, text);
    }
    this.add("flag", entries, flagLabel);
    const positionals = given.slice(entries.size);
    const text = entries.get("prompt");
    if (text !== undefined && positionals.length > 0) {
      const message = `unexpected argument ${JSON.stringify(positionals[0])}`;
      const quoted = JSON.stringify([text, ...positionals].join(" "));
      this.problems.push({ message, hint: `put the prompt in quotes: ${quoted}` });
    } else this.#checkArguments(positionals, expected);
    return { positionals, expected };
  }

  #checkArguments(positionals: readonly string[], expected: readonly Argument[]): void {
    const required = expected.filter((argument) => argument.required);
    if (positionals.length < required.length) {
      const { name, summary, choices } = required[positionals.length]!;
      const wanted = choices === undefined ? summary : `one of ${choices.join(", ")}`;
      this.problems.push({ message: `\`${this.command.name}\` needs ${name}: ${wanted}` });
    }
    const repeated = expected.at(-1)?.repeated === true;
    const surplus = positionals.length - expected.length;
    positionals.forEach((text, index) => {
      const argument = expected[index] ?? (repeated ? expected.at(-1) : undefined);
      if (argument === undefined) {
        const message = `unexpected argument ${JSON.stringify(text)}`;
        this.problems.push({ message, ...(this.#meant(text) ?? (surplus > 1 ? QUOTING : {})) });
      } else if (argument.choices !== undefined && !argument.choices.includes(text)) {
        const [first, ...others] = argument.choices;
        const choices = others.length > 0 ? `one of ${argument.choices.join(", ")}` : first;
        // A word such as `ls` names itself.
        const isWord = argument.name === argument.choices.join("|");
        const unknown = isWord ? "unexpected argument" : `unknown ${argument.name}`;
        const message = `${unknown} "${text}": must be ${choices}`;
        this.problems.push({ message, ...didYouMean(text, argument.choices) });
      }
    });
  }

  /** The flag that an argument too many was meant for: a path is a model, other text a prompt. */
  #meant(text: string): { hint: string } | undefined {
    const flag = ["model", "prompt"].find((name) =>
      Object.hasOwn(this.table, name) && (name === "prompt" || !/\s/.test(text))
    );
    if (flag === undefined || this.found.has(flag)) return undefined;
    return { hint: `did you mean ${formatFlag(flag, text)}?` };
  }

  /** Text of a flag, for `config` and `preset`, which decide on further sources. */
  text(name: string): string | undefined {
    const value = this.found.get(name)?.value;
    return typeof value === "string" ? value : undefined;
  }
}

/** The value of a flag that nothing sets. */
export function defaultOf(flag: Flag): ConfigValue {
  if (flag.type === "switch") return flag.default ?? false;
  if (flag.type === "count") return 0;
  if (isList(flag)) {
    return ("default" in flag ? flag.default as readonly string[] : undefined) ?? [];
  }
  return ("default" in flag ? flag.default as string | number : undefined) ?? null;
}

/** Resolves a parsed line against all sources, or throws every problem at once. */
export async function resolve(
  parsed: ParsedArgs,
  table: FlagTable,
  command: Resolvable,
  env: (name: string) => string | undefined,
): Promise<Resolution> {
  const problems = [...parsed.problems];
  const resolver = new Resolver(table, command, problems);
  resolver.add("flag", parsed.given, flagLabel);
  resolver.addVariables(env);
  const file = resolver.text("config");
  if (file !== undefined) {
    // What is wrong so far is worth more than a complaint about the file alone.
    const content = await readConfig(file, command.name).catch((error) => {
      throwIfAny(problems);
      throw error;
    });
    resolver.addKeyed("config", `config "${file}"`, content);
  }
  const preset = resolver.text("preset");
  if (preset !== undefined) resolver.addPreset(preset);
  const { positionals, expected } = resolver.takeArguments(parsed.positionals);
  const settings = settingsOf(resolver, table, positionals, expected);
  for (const name of overriddenVariables(settings, table)) {
    settings.set(name, { value: defaultOf(table[name]!), origin: "default" });
  }
  const isSound = problems.length === 0;
  const values: Record<string, unknown> = { arguments: positionals };
  const config: Record<string, ConfigValue> = {};
  const origins: Record<string, Origin> = {};
  for (const [name, flag] of Object.entries(table)) {
    if (flag.type === "shorthand") continue;
    const { value, origin } = settings.get(name)!;
    const absent = value === null || (Array.isArray(value) && value.length === 0);
    if (flag.required && absent && !resolver.found.has(name)) {
      problems.push({ message: `\`${command.name}\` needs \`--${name}\`` });
    }
    values[camelCase(name)] = value ?? undefined;
    if (flag.configurable === false) continue;
    config[name] = value;
    origins[name] = origin;
  }
  // Constraints of values that are wrong themselves would only confuse.
  if (isSound) {
    problems.push(...checkConstraints(command.name, settings, table, command.atLeastOneOf));
  }
  throwIfAny(problems);
  return { values, config, origins, idle: idleFlags(settings, table) };
}

/** Returns the setting of every flag, and the positional arguments that are there. */
function settingsOf(
  { found }: Resolver,
  table: FlagTable,
  positionals: readonly string[],
  names: readonly Argument[],
): Map<string, Setting> {
  const settings = new Map<string, Setting>(
    Object.entries(table).filter(([, { type }]) => type !== "shorthand").map(([name, flag]) => [
      name,
      found.get(name) ?? { value: defaultOf(flag), origin: "default" },
    ]),
  );
  positionals.forEach((value, i) => {
    const name = names[Math.min(i, names.length - 1)]?.name.split("|")[0];
    if (name !== undefined) settings.set(name, { value, origin: "flag" });
  });
  return settings;
}
