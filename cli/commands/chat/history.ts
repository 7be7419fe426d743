/** Messages of earlier conversations, for the arrow keys; one JSON string a line. */
import { dirname } from "node:path";
import { PLATFORM } from "../../../core/base/platform/mod.ts";
import type { Io } from "../../output/io.ts";

const MOST = 1000;

/** The file of the history; undefined where there is no home. */
export function historyPath(io: Io): string | undefined {
  const env = (name: string) => io.env(name);
  const home = PLATFORM.home(env);
  const state = io.env("XDG_STATE_HOME") || (home && `${home}/.local/state`);
  return state && `${state}/parscale/chat_history`;
}

/** Reads the history; a file that is missing or damaged has none. */
export async function readHistory(path: string): Promise<string[]> {
  try {
    return (await Deno.readTextFile(path)).split("\n").filter((line) => line !== "")
      .map((line) => JSON.parse(line)).filter((text) => typeof text === "string").slice(-MOST);
  } catch {
    return [];
  }
}

/** Adds messages to the file, readable by its owner alone. */
export async function addToHistory(path: string, messages: readonly string[]): Promise<void> {
  if (messages.length === 0) return;
  const all = [...await readHistory(path), ...messages].slice(-MOST);
  try {
    await Deno.mkdir(dirname(path), { recursive: true });
    const text = all.map((message) => `${JSON.stringify(message)}\n`).join("");
    await Deno.writeTextFile(path, text, { mode: 0o600 });
  } catch {
    // A full disk or a folder of another user must not end a conversation.
  }
}
