/**
 * The errors a user can act on.
 *
 * A message says what is wrong in the user's terms, then the detail after a colon: lower-case start,
 * no final period, values quoted, such as `"out" already exists` or
 * `cannot read "a.json": permission denied`. Remedies go into `hints`, one each. The command line
 * maps `kind` to an exit code and prints message and hints; every other exception is a defect.
 */

/** Kinds of errors, in the user's terms; one exit code each. */
export type ErrorKind = "usage" | "data" | "environment" | "numerical";

/** Base of all errors that are the user's to mend. Not thrown itself. */
export abstract class ParscaleError extends Error {
  /** Kind, which decides the exit code of the command line. */
  abstract readonly kind: ErrorKind;
  /** Remedies, most likely first; empty when none is known. */
  readonly hints: readonly string[];

  /** Builds an error from its one-line message, remedies and the error that caused it. */
  constructor(message: string, options: { hints?: readonly string[]; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = this.constructor.name;
    this.hints = options.hints ?? [];
  }
}

/** The request is wrong: unknown flag, value out of range, missing argument (exit code 2). */
export class UsageError extends ParscaleError {
  /** Exit code 2. */
  readonly kind = "usage" as const;
}

/** A checkpoint, tokenizer or row cannot be read or contradicts itself (exit code 3). */
export class DataError extends ParscaleError {
  /** Exit code 3. */
  readonly kind = "data" as const;
}

/** A device, library, permission or memory is missing (exit code 4). */
export class EnvironmentError extends ParscaleError {
  /** Exit code 4. */
  readonly kind = "environment" as const;
}

/** A device has no room for a tensor or a program (exit code 4). */
export class OutOfMemoryError extends EnvironmentError {}

/** A loss or tensor is not finite, or a self-check failed (exit code 5). */
export class NumericalError extends ParscaleError {
  /** Exit code 5. */
  readonly kind = "numerical" as const;
}

/** A model computed NaN or infinity; `purpose` completes "cannot …", `value` "the model computed …". */
export function notFinite(purpose: string, value: string): NumericalError {
  return new NumericalError(`cannot ${purpose}: the model computed ${value}`, {
    hints: [
      "try `--device reference`: if that fails too, the weights are at fault; else please report it",
    ],
  });
}

const CLASSES = {
  usage: UsageError,
  data: DataError,
  environment: EnvironmentError,
  numerical: NumericalError,
} as const;

/** An error as it travels between threads, which keep no classes. */
export interface PlainError {
  readonly kind: ErrorKind;
  readonly message: string;
  readonly hints: readonly string[];
}

/** Returns what another thread needs to throw the same error. */
export function plainError({ kind, message, hints }: ParscaleError): PlainError {
  return { kind, message, hints };
}

/** The error that `plainError` was made of. */
export function errorFrom({ kind, message, hints }: PlainError): ParscaleError {
  return new CLASSES[kind](message, { hints });
}
