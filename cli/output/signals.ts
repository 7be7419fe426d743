/** The signals that end a program, and what they mean for the exit code. */
import type { ExitKind } from "./exit_codes.ts";

/** Signals upon which commands save. */
export type EndingSignal = "SIGINT" | "SIGTERM" | "SIGHUP";

/** How a signal is called in messages, and its exit code. */
export const SIGNALS: Readonly<Record<EndingSignal, { word: string; kind: ExitKind }>> = {
  SIGINT: { word: "Interrupted", kind: "interrupted" },
  SIGTERM: { word: "Terminated", kind: "terminated" },
  SIGHUP: { word: "Terminated", kind: "terminated" }, // the terminal has gone
};

let savesFirst = false;

/**
 * From now on a repeated signal does not end the program while it saves. A launcher sends its ranks what
 * the terminal has sent them already, and kills those that take too long.
 */
export function saveBeforeEnding(): void {
  savesFirst = true;
}

/** Whether a second signal ends the program at once. */
export function endsAtSecondSignal(): boolean {
  return !savesFirst;
}

/** Calls `listener` for every signal that ends a program; returns what stops that. */
export function onEndingSignals(listener: (signal: EndingSignal) => void): () => void {
  const listeners = endingSignals().map((signal) => {
    const listen = () => listener(signal);
    Deno.addSignalListener(signal, listen);
    return { signal, listen };
  });
  return () => {
    for (const { signal, listen } of listeners) Deno.removeSignalListener(signal, listen);
  };
}

function endingSignals(): EndingSignal[] {
  if (Deno.build.os === "windows") return ["SIGINT"];
  return hangupIsIgnored() ? ["SIGINT", "SIGTERM"] : ["SIGINT", "SIGTERM", "SIGHUP"];
}

/**
 * Keeps SIGHUP ignored where `nohup` asked for that: the runtime would end the program by it. To be
 * called before the runtime changes what the process was started with.
 */
export function respectNohup(): void {
  if (hangupIsIgnored()) Deno.addSignalListener("SIGHUP", () => {});
}

let ignoresHangup: boolean | undefined;

/** Whether the process was started with SIGHUP ignored. Only Linux tells. */
function hangupIsIgnored(): boolean {
  return ignoresHangup ??= Deno.build.os === "linux" && (ignoredSignals() & 1n) === 1n;
}

/** One bit per signal, from SIGHUP on. */
function ignoredSignals(): bigint {
  try {
    const status = Deno.readTextFileSync("/proc/self/status");
    return BigInt(`0x${/^SigIgn:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? 0}`);
  } catch {
    return 0n; // without permission to read there is no telling
  }
}
