/** What `chat` does: reads lines, answers messages, obeys lines that begin with a slash. */
import { winnerOf } from "../../../core/analysis/streams.ts";
import { DataError } from "../../../core/base/errors.ts";
import type { ValuesOf } from "../../framework/command.ts";
import { visibleLines } from "../../output/clean.ts";
import { wantsColor } from "../../output/color.ts";
import { renderError } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { onEndingSignals } from "../../output/signals.ts";
import { type NamedAdapter, openServed, parseAdapters } from "../../input/named_models.ts";
import { type ModelPlan, modelPlan } from "../../input/open_model.ts";
import { labelsOf, paintStream } from "../../output/stream_look.ts";
import type { command } from "./flags.ts";
import { type AnswerOptions, type AnswerPart, ChatSession } from "./session.ts";

/** A conversation to hold. */
interface ChatPlan {
  readonly model: ModelPlan;
  readonly adapters: readonly NamedAdapter[];
  readonly system: string | undefined;
  /** Whether the weights of every token are shown from the beginning. */
  readonly streamWeights: boolean;
  readonly decoding: AnswerOptions;
}

/** The conversation that flags ask for. */
export function plan(values: ValuesOf<typeof command>): ChatPlan {
  const { system, streamWeights, maxTokens, temperature, topP, seed } = values;
  return {
    model: modelPlan(values),
    adapters: parseAdapters(values.adapter),
    system,
    streamWeights,
    decoding: { maxTokens, temperature, topP, seed },
  };
}

const HELP = `/p N      go on with the model that has N streams
/weights  show the weights of every token, or hide them
/clear    forget the conversation
/quit     end
`;

/** Exit code of a program that Ctrl-C ends. */
const INTERRUPTED = 130;

/** Runs the command; the number is its exit code. */
export async function run(plan: ChatPlan, io: Io): Promise<number> {
  const { session: opened, models } = await openServed(plan.model, plan.adapters, io);
  using _opened = opened;
  using session = new ChatSession(models, plan.system, plan.decoding);
  const isTerminal = io.isTerminal("stdin") && io.isTerminal("stdout");
  const talk = new Talk(session, io, isTerminal, plan.streamWeights);
  if (isTerminal) {
    io.note(`${session.model.name}: /help lists the commands, Ctrl-C stops an answer`);
  }

  const lines = readLines(io.system.stdin());
  const interrupted = Promise.withResolvers<"interrupted">();
  const release = onEndingSignals((signal) => {
    if (signal !== "SIGINT" || !talk.stop()) interrupted.resolve("interrupted");
  });
  try {
    for (;;) {
      if (isTerminal) io.write("> ");
      const next = await Promise.race([lines.next(), interrupted.promise]);
      if (next === "interrupted") return INTERRUPTED;
      if (next.done || next.value.trim() === "/quit") return 0;
      const answered = await Promise.race([talk.take(next.value.trim()), interrupted.promise]);
      if (answered === "interrupted") return INTERRUPTED;
    }
  } finally {
    release();
    if (isTerminal) io.write("\n");
  }
}

/** One line after the other. */
class Talk {
  readonly #session: ChatSession;
  readonly #io: Io;
  readonly #letters: boolean;
  #showsWeights: boolean;
  #answering: AbortController | undefined;

  constructor(session: ChatSession, io: Io, letters: boolean, showsWeights: boolean) {
    this.#session = session;
    this.#io = io;
    this.#letters = letters;
    this.#showsWeights = showsWeights;
  }

  /** Stops the answer under way; false when there is none. */
  stop(): boolean {
    this.#answering?.abort();
    return this.#answering !== undefined;
  }

  async take(line: string): Promise<void> {
    if (line === "") return;
    if (line.startsWith("/")) this.#obey(line);
    else await this.#answer(line);
  }

  #obey(line: string): void {
    const [command, value] = line.split(/\s+/);
    if (command === "/p") return this.#switch(Number(value));
    if (command === "/weights") {
      this.#showsWeights = !this.#showsWeights;
      return this.#io.note(`weights are ${this.#showsWeights ? "shown" : "hidden"}`);
    }
    if (command === "/clear") return this.#session.clear();
    if (command !== "/help") this.#io.note(`unknown command "${command}"`);
    this.#io.note(HELP.trimEnd());
  }

  #switch(streams: number): void {
    const { choices } = this.#session;
    if (this.#session.useStreams(streams)) {
      return this.#io.note(`${this.#session.model.name}: ${streams} streams`);
    }
    this.#io.note(`no model with so many streams; there are: ${choices.join(", ")}`);
  }

  async #answer(message: string): Promise<void> {
    const io = this.#io;
    const { streams } = this.#session.model.session.config;
    const colored = wantsColor(io.settings.color, io.isTerminal("stdout"), (name) => io.env(name));
    const options = { streams, letters: this.#letters || this.#showsWeights, colored };
    const parts: AnswerPart[] = [];
    this.#answering = new AbortController();
    try {
      for await (const part of this.#session.answer(message, this.#answering.signal)) {
        parts.push(part);
        io.write(partText(part, options));
      }
      io.write("\n");
    } catch (error) {
      // Such as a conversation that exceeds the context: the next line may be /clear.
      if (!(error instanceof DataError)) throw error;
      io.writeError(renderError(error, { paint: io.palette("stderr"), json: false, trace: false }));
    } finally {
      this.#answering = undefined;
    }
    if (this.#showsWeights) io.write(weightsText(parts, streams));
  }
}

/** Lines of a terminal or pipe, the last one even without its end. */
async function* readLines(stdin: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of stdin) {
    const lines = (text + decoder.decode(bytes, { stream: true })).split("\n");
    text = lines.pop()!;
    yield* lines;
  }
  if (text !== "") yield text;
}

/** How parts of an answer are shown. */
interface ShowOptions {
  readonly streams: number;
  /** Adds the letter of the stream that weighs most to every part. */
  readonly letters: boolean;
  readonly colored: boolean;
}

/** A part of an answer as text. */
function partText({ text, weights }: AnswerPart, options: ShowOptions): string {
  const shown = visibleLines(text);
  if (!options.letters || !weights || text === "") return shown;
  const stream = winnerOf(weights);
  const label = labelsOf(options.streams)[stream]!;
  return options.colored ? `${shown}${paintStream(label, stream)}` : `${shown}[${label}]`;
}

/** The weights of every part that has any, one line each. */
function weightsText(parts: readonly AnswerPart[], streams: number): string {
  const labels = labelsOf(streams);
  return parts.flatMap(({ text, weights }) => {
    if (!weights) return [];
    const numbers = Array.from(weights, (weight, p) => `${labels[p]} ${weight.toFixed(4)}`);
    return [`  ${numbers.join("  ")}  ${JSON.stringify(text)}\n`];
  }).join("");
}
