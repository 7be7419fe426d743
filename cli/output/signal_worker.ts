/**
 * Thread that receives the signals of a command that saves. The main thread is in native code or in a loop for
 * seconds and receives nothing meanwhile, so this one says that the command stops, and ends the process at a
 * second signal.
 */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { endProcess } from "../../core/base/platform/end_process.ts";
import type { EndingSignal } from "../../core/base/platform/mod.ts";

/** Task of the thread, which is its name as JSON. */
export interface Watch {
  /** Signals to listen to, with the exit code of each. */
  readonly codes: readonly (readonly [EndingSignal, number])[];
  /** Written to stderr at the first signal. */
  readonly word: string;
}

let { codes, word } = JSON.parse(self.name) as Watch;
let isStopping = false, endsAtSecond = true;

const stops = codes.map(([signal, code]) => {
  const listener = () => receive(signal, code);
  Deno.addSignalListener(signal, listener);
  return () => Deno.removeSignalListener(signal, listener);
});

/** Takes another word, after which a second signal does not end the process; none ends the thread. */
self.onmessage = ({ data }: MessageEvent<string | null>) => {
  if (data !== null) return [word, endsAtSecond] = [data, false];
  stops.forEach((stop) => stop());
  self.close();
};
self.postMessage(null); // it listens now

function receive(signal: EndingSignal, code: number): void {
  if (isStopping) return endsAtSecond ? endProcess(code) : undefined;
  isStopping = true;
  // The line of progress is drawn again below.
  const text = Deno.stderr.isTerminal() ? `\r\x1b[2K${word}\n` : `${word}\n`;
  try {
    if (word !== "") Deno.stderr.writeSync(new TextEncoder().encode(text));
  } catch {
    // There may be no reader of stderr, and the command stops all the same.
  }
  self.postMessage(signal);
}
