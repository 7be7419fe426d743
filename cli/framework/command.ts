/**
 * Definition of a command: its text and flag table in one file, its work in another.
 *
 * `flags.ts` of a command exports its definition, built by `defineCommand`; help and completions load
 * every one of them, so nothing heavy may be imported there. `run.ts` exports the functions of
 * `CommandBody` with static imports; it is loaded when the flags are resolved.
 */
import { commonFlags } from "./common.ts";
import type { Alternatives } from "./constraints.ts";
import type { Context } from "./context.ts";
import type { ConfigValue, FlagTable, Values } from "./table.ts";
import type { Invocation } from "../output/document.ts";

/** A named set of flag values. */
export interface Preset {
  readonly summary: string;
  readonly values: Readonly<Record<string, ConfigValue>>;
}

/** An argument that is not a flag. */
export interface Argument {
  /** As usage lines show it, for instance `FILE`. */
  readonly name: string;
  readonly summary: string;
  readonly required?: boolean;
  /** Takes all remaining arguments; only the last may. */
  readonly repeated?: boolean;
  readonly choices?: readonly string[];
  /**
   * Flag that the argument stands for where nothing else sets it. Such arguments come first, and one is
   * only taken if those before it are.
   */
  readonly sets?: string;
  /** Words that belong to the next argument. */
  readonly passes?: (text: string) => boolean;
}

/** Common flags that commands read; the frame resolves the others into `Io` and `Invocation`. */
type OutputFlags = Pick<typeof commonFlags, "out" | "overwrite" | "preset">;

/** A command's own flags over those of its output, with the positional arguments. */
export type CommandValues<F extends FlagTable> =
  & Values<Omit<OutputFlags, keyof F>>
  & Values<F>
  & { readonly arguments: readonly string[] };

/** Text and flags of one command. */
export interface CommandDefinition<F extends FlagTable> {
  /** Paragraphs for `--help`, separated by empty lines. */
  readonly description: string;
  /** Command lines worth copying, by what they do. */
  readonly examples: Readonly<Record<string, string>>;
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
}

/** Work of a command with the values `V` of its flags. */
export interface CommandBody<V> {
  /** Rules over several flags; touches nothing. */
  check?(values: V, invocation: Invocation): void;
  /**
   * Opens and checks what is needed, calls `ctx.begin()`, where a dry run ends, and does the work. A number
   * is the exit code, nothing is 0.
   */
  run(values: V, ctx: Context): Promise<number | void>;
}

/** A command whose flags are only known by name. */
export interface Command extends CommandDefinition<FlagTable> {
  readonly name: string;
  /** One line, sentence case, no final period. */
  readonly summary: string;
}

/** Checks a definition and infers its flags. */
export function defineCommand<const F extends FlagTable>(
  definition: CommandDefinition<F>,
): CommandDefinition<F> {
  return definition;
}

/** The command's own flags, then the common ones it does not replace. */
export function flagsOf({ flags }: { readonly flags: FlagTable }): FlagTable {
  return { ...flags, ...commonFlags, ...flags };
}

/** A command that may be loaded: its flags for help, its body to run it. */
export interface CommandEntry extends Pick<Command, "name" | "summary"> {
  load(): Promise<Command>;
  body(): Promise<CommandBody<CommandValues<FlagTable>>>;
}

/** Flags of a definition as `check` and `run` receive them. */
export type ValuesOf<D> = D extends CommandDefinition<infer F> ? CommandValues<F> : never;

type Loads<F extends FlagTable> = () => Promise<{ readonly command: CommandDefinition<F> }>;

/** Checks that a body takes the values of its flags, then forgets which flags they were. */
export function entry<F extends FlagTable>(
  name: string,
  summary: string,
  load: Loads<F>,
  body: () => Promise<CommandBody<CommandValues<F>>>,
): CommandEntry {
  const loadNamed = async () => ({ name, summary, ...(await load()).command });
  // Sound because the frame resolves values from this very table before it calls the body.
  return { name, summary, load: loadNamed, body } as CommandEntry;
}

/** Definitions of all commands, for help topics and completions. */
export async function loadAll(commands: readonly CommandEntry[]): Promise<Command[]> {
  return await Promise.all(commands.map((entry) => entry.load()));
}
