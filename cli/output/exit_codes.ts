/** Exit codes and their meaning; scripts rely on them, and `help exit-codes` prints this table. */

/** One row per code, in the order in which help shows them. */
export const EXIT_CODES = [
  { code: 0, kind: "done", meaning: "done; also closed pipe, --help, --version" },
  {
    code: 1,
    kind: "negative",
    meaning: "ran, and the answer is negative: threshold missed, regression, some items failed",
  },
  {
    code: 2,
    kind: "usage",
    meaning: "misuse: unknown command or flag, bad value, missing argument, unknown config key",
  },
  {
    code: 3,
    kind: "data",
    meaning: "bad data: checkpoint, tokenizer, task or row cannot be read or contradicts itself",
  },
  {
    code: 4,
    kind: "environment",
    meaning: "device, library, driver, permission or memory missing",
  },
  {
    code: 5,
    kind: "numerical",
    meaning: "non-finite loss or tensor, or a self-check against the reference failed",
  },
  { code: 70, kind: "defect", meaning: "a defect in parscale; please report it" },
  { code: 130, kind: "interrupted", meaning: "interrupted (SIGINT)" },
  { code: 143, kind: "terminated", meaning: "terminated (SIGTERM, SIGHUP)" },
] as const;

/** Why the program ended. */
export type ExitKind = typeof EXIT_CODES[number]["kind"];

/** The code for a reason. */
export function exitCode(kind: ExitKind): number {
  return EXIT_CODES.find((row) => row.kind === kind)!.code;
}
