/** Runs `chat`: reads lines, answers messages, obeys lines that begin with a slash. */
import { dirname } from "node:path";
import { DataError } from "../../../core/base/errors.ts";
import { jsonValue } from "../../../core/base/files.ts";
import { PLATFORM } from "../../../core/base/platform/mod.ts";
import { xdgFolder } from "../../../core/base/platform/paths.ts";
import { decodeText, linesOf } from "../../../core/data/jsonl.ts";
import type { Context } from "../../framework/context.ts";
import { refuseFlags } from "../../input/forms.ts";
import type { Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import type { Io } from "../../output/io.ts";
import { type EndingSignal, onEndingSignals, SIGNALS } from "../../output/signals.ts";
import { openServed, parseAdapters } from "../../input/named_models.ts";
import { type ModelPlan, modelPlan } from "../../input/open_model.ts";
import { HISTORY_LINES, TerminalLines } from "../../input/terminal_lines.ts";
import { ChatSession, type ChatValues } from "./session.ts";
import { Talk } from "./talk.ts";

/** Refuses flags of files and formats. */
export function check(_values: ChatValues, invocation: Invocation): void {
  refuseFlags(invocation, "`chat`", ["out", "overwrite", "format"]);
}

const PROMPT = "> ";

/** Runs the command; the number is its exit code. */
export async function run(values: ChatValues, ctx: Context): Promise<number> {
  const { io } = ctx;
  const adapters = parseAdapters(values.adapter);
  const open = (plan: ModelPlan) => openServed(plan, adapters, io);
  const { session: opened, models } = await ctx.open(modelPlan(values), open);
  using _opened = opened;
  if (opened.tokenizer.chatTemplate === undefined) {
    throw new DataError(`"${values.model}" has no chat template for messages`, {
      hints: ["pass one by `--chat-template FILE`, or continue a text by `parscale generate`"],
    });
  }
  ctx.begin();
  using session = new ChatSession(models, values);
  const isTerminal = io.isTerminal("stdin") && io.isTerminal("stdout");
  const talk = new Talk(session, io, isTerminal, values.streamWeights);
  if (isTerminal) {
    io.note(`${session.model.name}: /help lists the commands, Ctrl-C stops an answer`);
  }
  const { promise: interrupted, resolve: end } = Promise.withResolvers<Ending>();
  let lines: Lines | undefined;
  const interrupt = () => {
    if (!talk.stop() && !lines?.clear()) end({ signal: "SIGINT" });
  };
  const release = onEndingSignals((signal) => {
    if (signal === "SIGINT") interrupt();
    else end({ signal });
  });
  const path = isTerminal && values.history ? historyPath(io) : undefined;
  const history = path === undefined ? [] : await readHistory(path);
  const known = history.length;
  try {
    lines = isTerminal
      ? new TerminalLines(io, PROMPT, history, interrupt)
      : pipedLines(io.system.stdin());
    for (;;) {
      const line = await Promise.race([lines.read(), interrupted]);
      if (typeof line === "object") return exitCode(SIGNALS[line.signal].kind);
      if (line === undefined || line.trim() === "/quit") {
        return exitCode(talk.hasFailed && !isTerminal ? "negative" : "done");
      }
      const ending = await Promise.race([talk.take(line.trim()), interrupted]);
      if (ending) return exitCode(SIGNALS[ending.signal].kind);
    }
  } finally {
    release();
    lines?.[Symbol.dispose]();
    if (path !== undefined) await addToHistory(path, history.slice(known));
  }
}

/** A signal that ends the conversation. */
interface Ending {
  readonly signal: EndingSignal;
}

/** Source of messages. */
interface Lines extends Disposable {
  /** Reads a line; undefined at the end of input. */
  read(): Promise<string | undefined>;
  /** Empties a line that is being typed; false when there is none. */
  clear(): boolean;
}

/** Lines of a pipe, the last one even without its end. */
function pipedLines(stdin: ReadableStream<Uint8Array>): Lines {
  const lines = readLines(stdin);
  return {
    read: async () => (await lines.next()).value,
    clear: () => false,
    [Symbol.dispose]() {},
  };
}

async function* readLines(stdin: ReadableStream<Uint8Array>): AsyncGenerator<string, undefined> {
  const at = (row: number) => `line ${row} of stdin`;
  let row = 0;
  for await (const line of linesOf(stdin, at)) yield decodeText(line, at(++row));
}

/** The file of the history, one JSON string a line; undefined where there is no home. */
function historyPath(io: Io): string | undefined {
  const home = PLATFORM.home(io.env);
  const state = xdgFolder(io.env, "XDG_STATE_HOME", home) || (home && `${home}/.local/state`);
  return state && `${state}/parscale/chat_history`;
}

/** Reads the history; a file that is missing has none, and damaged lines are passed over. */
async function readHistory(path: string): Promise<string[]> {
  try {
    return (await Deno.readTextFile(path)).split("\n").map((line) => jsonValue(line))
      .filter((text) => typeof text === "string").slice(-HISTORY_LINES);
  } catch {
    return [];
  }
}

/** Adds lines to the file, readable by its owner alone. */
async function addToHistory(path: string, lines: readonly string[]): Promise<void> {
  if (lines.length === 0) return;
  const all = [...await readHistory(path), ...lines].slice(-HISTORY_LINES);
  try {
    await Deno.mkdir(dirname(path), { recursive: true });
    const text = all.map((line) => `${JSON.stringify(line)}\n`).join("");
    await Deno.writeTextFile(path, text, { mode: 0o600 });
  } catch {
    // A full disk or a folder of another user must not end a conversation.
  }
}
