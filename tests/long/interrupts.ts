/** Ctrl-C at some moment of a command, its answer and the end. */
import { assert, assertEquals } from "@std/assert";
import { type Line, parscale } from "../cli/run.ts";

/** Moment and kind of an interruption. */
export interface Interruption {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Milliseconds from its start to the first signal. */
  readonly after: number;
  /** True for a second signal, once the first is answered or 500 ms have passed. */
  readonly isDouble: boolean;
}

/** The end of an interrupted command. */
export interface Ended {
  /** False if it ended by itself before the signal. */
  readonly wasInterrupted: boolean;
  readonly code: number;
  readonly signal: Deno.Signal | null;
  readonly stderr: string;
  /** Milliseconds from the first signal to its word, or to the end of a command that has none. */
  readonly answerMs: number;
  /** Milliseconds from the last signal to the end. */
  readonly endMs: number;
}

/** Longest wait of the second signal for an answer to the first. */
const SECOND_MS = 500;

const delay = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Runs a command, interrupts it, and waits for its end. */
export async function interrupt(
  line: Line,
  { cwd, env, after, isDouble }: Interruption,
): Promise<Ended> {
  const pipes = { stdin: "null", stdout: "null", stderr: "piped" } as const;
  const child = parscale(line, { cwd, env, ...pipes }).spawn();
  let stderr = "", hasEnded = false;
  let [firstAt, answeredAt, lastAt, endedAt] = [0, 0, 0, 0];
  const answered = Promise.withResolvers<void>();
  const reading = (async () => {
    for await (const text of child.stderr.pipeThrough(new TextDecoderStream())) {
      stderr += text;
      if (firstAt > 0 && answeredAt === 0 && stderr.includes("stopping …")) {
        answeredAt = performance.now();
        answered.resolve();
      }
    }
  })();
  const ended = child.status.finally(() => {
    hasEnded = true;
    endedAt = performance.now();
  });
  const signal = () => {
    lastAt = performance.now();
    try {
      child.kill("SIGINT");
    } catch {
      // It ended just now, which is not known yet.
    }
  };
  await Promise.race([delay(after), ended]);
  const wasInterrupted = !hasEnded;
  if (!hasEnded) {
    signal();
    firstAt = lastAt;
    await Promise.race([answered.promise, ended, delay(isDouble ? SECOND_MS : 60_000)]);
    if (isDouble && !hasEnded) signal();
  }
  const status = await ended;
  await reading;
  return {
    ...status,
    wasInterrupted,
    stderr,
    answerMs: (answeredAt || endedAt) - firstAt,
    endMs: endedAt - lastAt,
  };
}

/** Longest answer and end, on a machine that is busy with other tests. */
const ANSWER_MS = 1000, END_MS = 5000;

/** Interrupts a command and requires that it ends as one that was. */
export async function requireEnded(line: Line, interruption: Interruption): Promise<void> {
  const { after, isDouble } = interruption;
  const { wasInterrupted, code, signal, stderr, answerMs, endMs } = await interrupt(
    line,
    interruption,
  );
  const what = `${line}, after ${after} ms: code ${code}, ${signal}, ${stderr}`;
  if (!wasInterrupted) return assertEquals(code, 0, what);
  // It may end by itself just now; before anything is saved the system ends it.
  assert(code === 130 || code === 0, what);
  assert(signal === null || signal === "SIGINT", what);
  assert(answerMs <= ANSWER_MS, `answered after ${answerMs} ms: ${what}`);
  assert(!isDouble || endMs <= END_MS, `ended after ${endMs} ms: ${what}`);
}
