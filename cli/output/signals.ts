/** The signals that end a program, and what they mean for the exit code. */
import { type EndingSignal, ignoresHangup, PLATFORM } from "../../core/base/platform/mod.ts";
import { exitCode, type ExitKind } from "./exit_codes.ts";
import type { Watch } from "./signal_worker.ts";

export type { EndingSignal };

/** Name of a signal in messages, and its exit code. */
export const SIGNALS: Readonly<Record<EndingSignal, { word: string; kind: ExitKind }>> = {
  SIGINT: { word: "Interrupted", kind: "interrupted" },
  SIGTERM: { word: "Terminated", kind: "terminated" },
  SIGHUP: { word: "Terminated", kind: "terminated" }, // the terminal has gone
  SIGBREAK: { word: "Terminated", kind: "terminated" }, // Ctrl-Break
};

/** Thread that receives the signals of a command that saves. */
let watcher: Worker | undefined;

/**
 * Calls `listener` at the first signal that ends a program. A thread of its own receives it, writes `word` to
 * stderr at once, and ends the process at the second signal, whatever the caller computes meanwhile. Returns
 * what stops that.
 */
export async function watchSignals(
  word: string,
  listener: (signal: EndingSignal) => void,
): Promise<() => void> {
  const codes = endingSignals().map((signal) => [signal, exitCode(SIGNALS[signal].kind)] as const);
  const watch: Watch = { codes, word };
  const module = new URL("./signal_worker.ts", import.meta.url);
  const worker = watcher = new Worker(module, { type: "module", name: JSON.stringify(watch) });
  const { promise: isReady, resolve, reject } = Promise.withResolvers<void>();
  worker.onmessage = ({ data: signal }) => signal ? listener(signal) : resolve();
  worker.onerror = (event) => {
    event.preventDefault(); // else the runtime ends the program
    reject(new Error(`thread of signals: ${event.message}`));
  };
  await isReady;
  listening++;
  return () => {
    listening--;
    worker.postMessage(null);
  };
}

/**
 * From now on a repeated signal does not end the program while it saves, and the first has another word. A
 * launcher sends its ranks what the terminal has sent them already, and kills those that take too long.
 */
export function saveBeforeEnding(word: string): void {
  watcher?.postMessage(word);
}

/** Listeners that are registered. */
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
  if (isInit() || PLATFORM.name === "windows") void endWith(exitCode(SIGNALS[signal].kind));
  else Deno.kill(Deno.pid, signal);
}

/** Ends this process, at once where native calls are under way. */
export async function endWith(code: number): Promise<void> {
  const { hasNativeCalls } = await import("../../core/base/native_calls.ts");
  if (!hasNativeCalls()) Deno.exit(code);
  const { endProcess } = await import("../../core/base/platform/end_process.ts");
  endProcess(code);
}
