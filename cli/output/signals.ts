/** The signals that end a program, and what they mean for the exit code. */
import { type EndingSignal, ignoresHangup, PLATFORM } from "../../core/base/platform/mod.ts";
import { exitCode, type ExitKind } from "./exit_codes.ts";

export type { EndingSignal };

/** Name of a signal in messages, and its exit code. */
export const SIGNALS: Readonly<Record<EndingSignal, { word: string; kind: ExitKind }>> = {
  SIGINT: { word: "Interrupted", kind: "interrupted" },
  SIGTERM: { word: "Terminated", kind: "terminated" },
  SIGHUP: { word: "Terminated", kind: "terminated" }, // the terminal has gone
  SIGBREAK: { word: "Terminated", kind: "terminated" }, // Ctrl-Break
};

let savesFirst = false;

/**
 * From now on a repeated signal does not end the program while it saves. A launcher sends its ranks what
 * the terminal has sent them already, and kills those that take too long.
 */
export function saveBeforeEnding(): void {
  savesFirst = true;
}

/** Returns whether a second signal ends the program at once. */
export function endsAtSecondSignal(): boolean {
  return !savesFirst;
}

/** Listeners that `onEndingSignals` has registered. */
let listening = 0;

/** Calls `listener` for every signal that ends a program; returns what stops that. */
export function onEndingSignals(listener: (signal: EndingSignal) => void): () => void {
  const listeners = endingSignals().map((signal) => {
    const listen = () => listener(signal);
    Deno.addSignalListener(signal, listen);
    return { signal, listen };
  });
  listening++;
  let stopped = false;
  return () => {
    if (stopped) return;
    stopped = true;
    listening--;
    for (const { signal, listen } of listeners) Deno.removeSignalListener(signal, listen);
  };
}

let ignored: boolean | undefined;

/** Asked once, at the start: a listener changes what the system says. */
function hangupIsIgnored(): boolean {
  return ignored ??= ignoresHangup();
}

function endingSignals(): readonly EndingSignal[] {
  const { endingSignals: all } = PLATFORM;
  return hangupIsIgnored() ? all.filter((signal) => signal !== "SIGHUP") : all;
}

/**
 * Keeps SIGHUP ignored where `nohup` asked for that: the runtime would end the program by it. To be
 * called before the runtime changes what the process was started with.
 */
export function respectNohup(): void {
  if (hangupIsIgnored()) Deno.addSignalListener("SIGHUP", () => {});
}

/** Returns whether the system ignores signals to this process that nothing listens to, as in a container. */
function isInit(): boolean {
  return Deno.pid === 1;
}

/** Lets signals end the first process of a container, also where no command listens to them. */
export function endOnSignals(): void {
  if (!isInit()) return;
  for (const signal of endingSignals()) {
    Deno.addSignalListener(signal, () => {
      if (listening === 0) endBy(signal);
    });
  }
}

/** Ends this process as the signal would without a listener. */
export function endBy(signal: EndingSignal): void {
  if (isInit() || PLATFORM.name === "windows") Deno.exit(exitCode(SIGNALS[signal].kind));
  Deno.kill(Deno.pid, signal);
}
