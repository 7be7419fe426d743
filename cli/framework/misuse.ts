/**
 * Misuse of the command line, collected instead of thrown one by one.
 *
 * Parsing and resolving push `Problem`s; the end of the collection throws one `MisuseError`. Its
 * message joins all of them, the error writer prints each on its own line.
 */
import { UsageError } from "../../core/base/errors.ts";
import { hasTextArguments } from "../../core/base/platform/mod.ts";

/** One thing wrong with the request, with its remedy when one is known. */
export interface Problem {
  readonly message: string;
  readonly hint?: string;
}

/** Every problem of one request; exit code 2. */
export class MisuseError extends UsageError {
  /** Joins messages and hints of problems in the order in which they were found; equal hints come once. */
  constructor(readonly problems: readonly Problem[]) {
    const hints = problems.flatMap((problem) => problem.hint ?? []);
    super(problems.map((problem) => problem.message).join("; "), { hints: [...new Set(hints)] });
  }
}

/** Throws when there is anything to report. */
export function throwIfAny(problems: readonly Problem[]): void {
  if (problems.length > 0) throw new MisuseError(shortened(problems));
}

/** Problems of one kind that are told one by one. */
const MOST = 3;

/** The first problems of each kind, then how many more there are; a kind differs in its values alone. */
function shortened(problems: readonly Problem[]): Problem[] {
  const kinds = Map.groupBy(problems, ({ message }) => message.replace(/"[^"]*"|`[^`]*`/g, "…"));
  return kinds.values().toArray().flatMap((kind) =>
    kind.length <= MOST + 1
      ? kind
      : [...kind.slice(0, MOST), { message: `and ${kind.length - MOST} more` }]
  );
}

/** Refuses arguments that are not UTF-8, whose bytes the runtime has made U+FFFD. */
export function requireText(args: readonly string[]): void {
  const bad = args.find((arg) => arg.includes("\ufffd"));
  if (bad === undefined || hasTextArguments()) return;
  throw new MisuseError([{ message: `the argument "${bad}" is not UTF-8 text` }]);
}
