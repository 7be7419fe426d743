/**
 * From an exception to what the user reads and the exit code.
 *
 * A `ParscaleError` prints its message, its causes and its hints. Anything else is a defect of ours,
 * except the few runtime errors that are plainly the machine's: a permission this build lacks,
 * memory that ran out. With JSON output the error is one object on stderr instead.
 */
import { ParscaleError } from "../../core/base/errors.ts";
import { MisuseError } from "../framework/misuse.ts";
import { VERSION } from "../../core/base/version.ts";
import type { Palette } from "./color.ts";
import { exitCode, type ExitKind } from "./exit_codes.ts";
import type { Io } from "./io.ts";
import { visible, visibleJson, visibleLines } from "./clean.ts";
import { isSystemError } from "./write_error.ts";
import { type EndingSignal, SIGNALS } from "./signals.ts";

/** A signal reached a command that saves; thrown once it has. */
export class Interrupted extends Error {
  /** `hints` tell how to continue, for instance the resume command. */
  constructor(readonly signal: EndingSignal, readonly hints: readonly string[] = []) {
    super(SIGNALS[signal].word);
  }
}

/** Ends the program with a code; the reason is written already, or another process writes it. */
export class ReportedError extends Error {
  constructor(readonly code: number) {
    super(`ended with code ${code}`);
  }
}

/** An exception in the user's terms. */
export interface ErrorReport {
  readonly code: number;
  readonly kind: ExitKind;
  /** Messages of one line each; only misuse has several. */
  readonly messages: readonly string[];
  readonly hints: readonly string[];
}

function oneLine(text: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  return visible(lines.filter((line) => line !== "").join(" "));
}

/** The message, then its causes after colons, innermost last; nothing is said twice. */
export function withCauses(error: Error): string {
  let text = oneLine(error.message);
  for (let cause = error.cause; cause instanceof Error; cause = cause.cause) {
    const message = oneLine(cause.message);
    if (message !== "" && !text.includes(message)) text += `: ${message}`;
  }
  return text;
}

function ofMachine(problem: string, detail: string, ...hints: string[]) {
  return { kind: "environment" as const, messages: [`${problem}: ${oneLine(detail)}`], hints };
}

function describe(error: unknown): Omit<ErrorReport, "code"> {
  if (error instanceof MisuseError) {
    const messages = error.problems.map((problem) => oneLine(problem.message));
    return { kind: error.kind, messages, hints: error.hints };
  }
  if (error instanceof ParscaleError) {
    return { kind: error.kind, messages: [withCauses(error)], hints: error.hints };
  }
  if (error instanceof Interrupted) {
    return { kind: SIGNALS[error.signal].kind, messages: [error.message], hints: error.hints };
  }
  if (error instanceof Deno.errors.NotCapable) {
    const needed = error.message.split(",")[0]!.replace(/^Requires /, "");
    const hint = "run with `deno run -A mod.ts`, or rebuild with `deno task compile`, " +
      "which grants what parscale needs";
    return ofMachine("missing permission", needed, hint);
  }
  if (error instanceof Deno.errors.PermissionDenied) {
    const hint = "check the owner and mode of the file and its folder";
    return ofMachine("permission denied", error.message, hint);
  }
  if (error instanceof Deno.errors.InvalidData && error.message.startsWith("environment")) {
    return ofMachine("cannot read the environment", error.message, "set it to UTF-8 text");
  }
  if (error instanceof RangeError && /allocation failed|array length/i.test(error.message)) {
    return ofMachine("out of memory", error.message, "use a smaller batch or model");
  }
  if (isSystemError(error)) return ofMachine("system error", error.message);
  const found = error instanceof Error
    ? `${error.name}: ${withCauses(error)}`
    : oneLine(String(error));
  return {
    kind: "defect",
    messages: [`internal error in parscale ${VERSION}: ${found}`],
    hints: ["please report it with the trace, which PARSCALE_TRACE=1 adds to this message"],
  };
}

/** Returns the report of an exception for the user. */
export function reportOf(error: unknown): ErrorReport {
  const description = describe(error);
  return { code: exitCode(description.kind), ...description };
}

/** The text for stderr. */
export function renderError(
  error: unknown,
  options: { readonly paint: Palette; readonly json: boolean; readonly trace: boolean },
): string {
  const { code, kind, messages, hints } = reportOf(error);
  if (options.json) {
    const message = messages.join("; ");
    return visibleJson(JSON.stringify({ error: { code, kind, message, hints } })) + "\n";
  }
  const { paint } = options;
  const lines = messages.map((message) => `${paint.error("error:")} ${message}`);
  if (hints.length > 0) {
    lines.push("", ...hints.map((hint) => `${paint.hint("hint:")} ${visible(hint)}`));
  }
  if (options.trace && error instanceof Error) {
    lines.push("", ...traces(error));
  }
  return lines.join("\n") + "\n";
}

/** The text for stderr of an invocation; a trace is added under `-v -v`. */
export function errorText(io: Io, error: unknown, json = false): string {
  const trace = io.settings.verbose >= 2 || io.env("PARSCALE_TRACE") === "1";
  return renderError(error, { paint: io.palette("stderr"), json, trace });
}

function traces(error: Error): string[] {
  const own = visibleLines(error.stack ?? error.message);
  return error.cause instanceof Error ? [own, "caused by:", ...traces(error.cause)] : [own];
}
