/**
 * The command line from arguments to exit code. There is one catch for everything, so the runtime's own
 * error text never reaches a user. Help and version load the command file at most, and are answered before
 * any value is read.
 */
import {
  type Command,
  type CommandEntry,
  type CommandValues,
  flagsOf,
} from "./framework/command.ts";
import { commands } from "./commands/mod.ts";
import { commonFlags, type Format, rowFlags } from "./framework/common.ts";
import { MisuseError, requireText } from "./framework/misuse.ts";
import { consumedAfter, parse, type ParsedArgs } from "./framework/parse.ts";
import { peerCommandHint, suggestionHint } from "./framework/suggest.ts";
import { type FlagTable, textsOf } from "./framework/table.ts";
import type { ColorMode } from "./output/color.ts";
import type { Invocation } from "./output/document.ts";
import { exitCode } from "./output/exit_codes.ts";
import {
  ClosedPipeError,
  Io,
  MissingInputError,
  processSystem,
  type Settings,
} from "./output/io.ts";
import { endOnSignals, endWith, respectNohup, watchSignals } from "./output/signals.ts";
import { VERSION } from "../core/base/version.ts";

/** State of the top-level catch before, and possibly without, a resolved command line. */
interface Frame {
  readonly registry: readonly CommandEntry[];
  io: Io;
  json: boolean;
  command: Command | undefined;
  /** True if flags come from the line alone, as those of a command that another one runs. */
  readonly isChild: boolean;
}

/** Runs one command line over a registry of commands. */
export async function main(
  args: readonly string[],
  io: Io,
  registry: readonly CommandEntry[] = commands,
  isChild = false,
): Promise<number> {
  const frame = openFrame(args, io, registry, isChild);
  try {
    return await dispatch(args, frame);
  } catch (error) {
    return await tell(error, frame);
  }
}

/** Says what went wrong as the user asked to be told; the number is the exit code. */
async function tell(error: unknown, frame: Frame): Promise<number> {
  if (error instanceof ClosedPipeError) return exitCode("done");
  const { errorText, reportOf, ReportedError } = await import("./output/errors.ts");
  if (error instanceof ReportedError) return error.code;
  const { io, command, json } = frame;
  io.redraw("");
  if (error instanceof MissingInputError && command !== undefined && !json) {
    const { shortHelp } = await import("./framework/help.ts");
    io.writeError(shortHelp(command, { width: helpWidth(io), paint: io.palette("stderr") }) + "\n");
  }
  io.writeError(errorText(io, error, json));
  return reportOf(error).code;
}

/** Reads the common flags leniently, so that misuse, too, is shown as the user asked. */
function openFrame(
  args: readonly string[],
  io: Io,
  registry: readonly CommandEntry[],
  isChild: boolean,
): Frame {
  const { given } = parse(args, commonFlags);
  const read = (name: string) => given.get(name) ?? io.env(`PARSCALE_${name.toUpperCase()}`);
  const color = read("color");
  const settings: Settings = {
    color: color === "always" || color === "never" ? color : "auto",
    quiet: Number(read("quiet")) || 0,
    verbose: Number(read("verbose")) || 0,
    progress: read("progress") !== "false",
  };
  const format = read("format");
  const json = format === "json" || format === "jsonl";
  return { registry, io: io.with(settings), json, command: undefined, isChild };
}

function helpWidth(io: Io): number {
  return Math.min(io.width(), 100);
}

/** Index of the command's name: the first argument that is neither a flag nor a flag's value. */
function commandIndex(args: readonly string[], registry: readonly CommandEntry[]): number {
  const common: FlagTable = commonFlags;
  const isCommand = (word: string) => registry.some(({ name }) => name === word);
  for (let i = 0; i < args.length; i++) {
    const arg = args[i]!;
    if (arg === "--") return -1;
    if (!arg.startsWith("-")) return i;
    const flag = arg.startsWith("--")
      ? common[arg.slice(2)]
      : Object.values(common).find((flag) => arg === `-${flag.letter}`);
    const next = args[i + 1];
    if (flag !== undefined) i += consumedAfter(flag, next);
    // The word behind a flag of a command that is not known yet is its value.
    else if (
      parse([arg], common).problems.length > 0 && !arg.includes("=") &&
      next !== undefined && !next.startsWith("-") && !isCommand(next)
    ) i++;
  }
  return -1;
}

async function dispatch(args: readonly string[], frame: Frame): Promise<number> {
  requireText(args);
  const index = commandIndex(args, frame.registry);
  if (index < 0) return await withoutCommand(args, frame);
  const name = args[index]!;
  const entry = frame.registry.find((entry) => entry.name === name);
  if (entry === undefined) {
    const names = frame.registry.map((entry) => entry.name);
    const hint = peerCommandHint(name) ?? suggestionHint(name, names) ??
      "`parscale help` lists the commands";
    throw new MisuseError([{ message: `unknown command "${name}"`, hint }]);
  }
  const command = await entry.load();
  frame.command = command;
  const table = flagsOf(command);
  const parsed = parse(args.toSpliced(index, 1), table);
  if (parsed.help !== undefined) return await showHelp(command, parsed.help, frame.io);
  if (parsed.given.has("version")) return showVersion(frame.io);
  return await runCommand(entry, command, parsed, frame);
}

/** `--help` and `--version` alone; anything else lacks a command. */
async function withoutCommand(args: readonly string[], frame: Frame): Promise<number> {
  const parsed = parse(args, commonFlags);
  const { programHelp } = await import("./framework/help.ts");
  const width = helpWidth(frame.io);
  if (parsed.help !== undefined) {
    frame.io.write(programHelp(frame.registry, { width, paint: frame.io.palette("stdout") }));
    return exitCode("done");
  }
  if (parsed.given.has("version")) return showVersion(frame.io);
  if (args.length > 0) {
    const missing = {
      message: "no command given",
      hint: `known: ${frame.registry.map((entry) => entry.name).join(", ")}`,
    };
    throw new MisuseError([...parsed.problems, missing]);
  }
  frame.io.writeError(programHelp(frame.registry, { width, paint: frame.io.palette("stderr") }));
  return exitCode("usage");
}

function showVersion(io: Io): number {
  io.write(`parscale ${VERSION}\n`);
  return exitCode("done");
}

async function showHelp(command: Command, form: "short" | "full", io: Io): Promise<number> {
  const { fullHelp, shortHelp } = await import("./framework/help.ts");
  const options = { width: helpWidth(io), paint: io.palette("stdout") };
  io.write(form === "short" ? shortHelp(command, options) : fullHelp(command, options));
  return exitCode("done");
}

async function runCommand(
  entry: CommandEntry,
  command: Command,
  parsed: ParsedArgs,
  frame: Frame,
): Promise<number> {
  const startedAt = new Date();
  const startedMs = frame.io.system.now();
  const { resolve } = await import("./framework/resolve.ts");
  const table = flagsOf(command);
  const env = (name: string) => frame.isChild ? undefined : frame.io.env(name);
  const resolution = await resolve(parsed, table, command, env);
  const values = resolution.values as CommandValues<FlagTable>;
  if (textsOf("output", table, values).length > 0) {
    await (await import("./input/kept_inputs.ts")).keepInputs(command, values);
  }
  const controller = new AbortController();
  const format = values.format as Format;
  const resumesRows = table.resume === rowFlags.resume && values.resume as boolean;
  const hasOwnOut = "out" in command.flags;
  const toStdout = hasOwnOut || values.out === undefined || values.out === "-";
  frame.io = frame.io.with({
    color: values.color as ColorMode,
    quiet: values.quiet as number,
    verbose: values.verbose as number,
    progress: values.progress as boolean,
    streamsRows: toStdout && (format === "jsonl" || format === "csv"),
  }, controller.signal);
  for (const { flag, needed } of resolution.idle) {
    frame.io.warn(`${flag} has no effect without ${needed}`);
  }
  frame.json = format === "json" || format === "jsonl";
  const invocation: Invocation = {
    command: command.name,
    startedAt,
    startedMs,
    format,
    out: toStdout ? undefined : values.out as string,
    // The result of a run that is resumed may have its name already.
    overwrite: values.overwrite as boolean || resumesRows,
    config: resolution.config,
    origins: resolution.origins,
  };
  if (values.dryRun) {
    const { Context, dryRun } = await import("./framework/context.ts");
    const { check, run } = await entry.body();
    check?.(values, invocation);
    const text = await dryRun(() => run(values, new Context(frame.io, invocation, true)));
    const { showPlan } = await import("./output/plan.ts");
    if (invocation.out !== undefined) {
      const { checkTarget } = await import("./output/sink.ts");
      checkTarget(invocation.out, invocation.overwrite);
    }
    await showPlan(frame.io, invocation, table, text);
    return exitCode("done");
  }
  const { savesOnInterrupt: saves } = command;
  const catches = typeof saves === "function" ? saves(values) : saves;
  const watching = catches ? interruptOnSignals(controller, frame) : undefined;
  try {
    const { Context } = await import("./framework/context.ts");
    const [{ check, run }] = await Promise.all([entry.body(), watching]);
    check?.(values, invocation);
    const code = await run(values, new Context(frame.io, invocation));
    controller.signal.throwIfAborted();
    const seconds = (frame.io.system.now() - startedMs) / 1000;
    frame.io.detail(`${command.name} took ${seconds.toFixed(2)} s`);
    return code ?? exitCode("done");
  } finally {
    (await watching)?.();
  }
}

/** The first signal lets the command save; the second ends the program at once. */
async function interruptOnSignals(
  controller: AbortController,
  { io, isChild }: Frame,
): Promise<() => void> {
  const { Interrupted } = await import("./output/errors.ts");
  // Of a child, its parent says so.
  const word = io.settings.quiet > 0 || isChild
    ? ""
    : "stopping …; a second signal ends parscale at once";
  return await watchSignals(word, (signal) => controller.abort(new Interrupted(signal)));
}

/**
 * Runs a command line and ends the process with its exit code. An error in a promise without a handler
 * ends it too, in our words and not in the runtime's.
 */
export async function runProcess(
  args: readonly string[],
  registry: readonly CommandEntry[] = commands,
  isChild = false,
): Promise<void> {
  respectNohup();
  endOnSignals();
  const io = new Io(processSystem());
  const end = async (event: Event, error: unknown) => {
    event.preventDefault();
    await endWith(await tell(error, openFrame(args, io, registry, isChild)));
  };
  globalThis.addEventListener("unhandledrejection", (event) => void end(event, event.reason));
  globalThis.addEventListener("error", (event) => void end(event, event.error));
  await endWith(await main(args, io, registry, isChild));
}
