/** Reasons why a sandbox job did not end, as short texts. */
import type { Outcome } from "../../sandbox/job.ts";

/** Characters of a child's text that are repeated. */
const LONGEST = 300;

const REASONS: Readonly<Record<string, string>> = {
  input_limit: "one input took too long",
  killed: "all inputs together took too long",
  crashed: "the interpreter died",
  memory: "the process exceeded its memory limit",
  refused: "refused a call out of the sandbox",
};

export function reasonOf(outcome: Outcome): string {
  const module = missingModule(outcome);
  if (module !== undefined) return `this Python has no module "${module}"`;
  const reason = REASONS[outcome.ending];
  const text = said(outcome)?.replace(/^!/, "").replace(/\p{Cc}+/gu, " ").slice(0, LONGEST);
  if (outcome.ending === "refused") return `${reason}: ${text}`;
  return text || reason || outcome.ending;
}

/** The module whose absence ended a job, if that did. */
export function missingModule(outcome: Outcome): string | undefined {
  const text = said(outcome);
  return text?.startsWith("?") ? text.slice(1, LONGEST) : undefined;
}

/** Returns the last answer of the runner. */
function said({ ending, detail, texts }: Outcome): string | undefined {
  return ending === "call" ? texts.at(-1) : detail;
}
