/**
 * What a command is: its text, its flag table, and what it does.
 *
 * A command file exports one `command`, built by `defineCommand`, which infers the type of `values`
 * from the table. Nothing heavy may be imported at its top: help and completions load every command
 * file for its table, so engines are imported inside `run`.
 */
import { commonFlags } from "./common.ts";
import type { Alternatives } from "./constraints.ts";
import type { Argument, Preset } from "./resolve.ts";
import type { ConfigValue, Flag, FlagTable, Values } from "./table.ts";
import type { Invocation } from "../output/document.ts";
import type { Io } from "../output/io.ts";

/** A command line worth copying, with what it does. */
export interface Example {
  readonly text: string;
  readonly line: string;
}

/** Common flags that commands read; the frame resolves the others into `Io` and `Invocation`. */
type OutputFlags = Pick<typeof commonFlags, "out" | "overwrite" | "preset">;

/** A command's own flags over those of its output, with the positional arguments. */
export type CommandValues<F extends FlagTable> =
  & Values<Omit<OutputFlags, keyof F>>
  & Values<F>
  & { readonly arguments: readonly string[] };

/** What a command would do. */
export interface Plan {
  /** For readers, a line each. */
  readonly lines: readonly string[];
  /** What flags that were not given resolve to, by long name. */
  readonly values?: Readonly<Record<string, ConfigValue>>;
  /** The numbers among the lines, for programs. */
  readonly results?: Readonly<Record<string, unknown>>;
}

/** Everything about one command. */
export interface CommandDefinition<F extends FlagTable> {
  readonly name: string;
  /** One line, sentence case, no final period; the registry repeats it. */
  readonly summary: string;
  /** Paragraphs for `--help`, separated by empty lines. */
  readonly description: string;
  readonly examples: readonly Example[];
  readonly arguments?: readonly Argument[];
  readonly flags: F;
  /** Sets of flags and arguments of which one each must be given. */
  readonly atLeastOneOf?: Alternatives;
  readonly presets?: Readonly<Record<string, Preset>>;
  /**
   * Set by commands that save when interrupted: `io.interruption` aborts, and the command throws
   * `Interrupted` once it has saved. Their loops must yield to the event loop for this to be seen.
   * All other commands die by the signal itself, even in the middle of a long computation. A function
   * decides by the flags.
   */
  readonly savesOnInterrupt?: boolean | ((values: CommandValues<F>) => boolean);
  /** What `run` would do, for `--dry-run`. May read files, writes nothing. */
  plan?(values: CommandValues<F>, io: Io): Promise<Plan>;
  /** Does the work; a number is the exit code, nothing is 0. */
  run(values: CommandValues<F>, io: Io, invocation: Invocation): Promise<number | void>;
}

/** A command whose flags are only known by name. */
export type Command = CommandDefinition<FlagTable>;

/** Checks a command's definition and infers its `values`, then forgets which flags they were. */
export function defineCommand<const F extends FlagTable>(
  definition: CommandDefinition<F>,
): Command {
  // Sound because the frame resolves values from this very table before it calls the command.
  return definition as unknown as Command;
}

/** The command's own flags, then the common ones it does not replace, by name. */
export function flagEntries({ flags }: { readonly flags: FlagTable }): [string, Flag][] {
  const common = Object.entries<Flag>(commonFlags).filter(([name]) => !(name in flags));
  return [...Object.entries(flags), ...common];
}

/** The same as one table. */
export function flagsOf(command: { readonly flags: FlagTable }): FlagTable {
  return Object.fromEntries(flagEntries(command));
}

/** A command that may be loaded. */
export interface CommandEntry {
  readonly name: string;
  readonly summary: string;
  load(): Promise<{ readonly command: Command }>;
}
