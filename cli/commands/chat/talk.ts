/** One line of a conversation after the other: messages are answered, commands obeyed. */
import { DataError } from "../../../core/base/errors.ts";
import { hasStreamWeights } from "../../../core/model/config.ts";
import { errorText } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { ReadingProgress } from "../../output/progress.ts";
import { type AnswerPart, type ChatSession } from "./session.ts";
import { winnerOf } from "../../../core/analysis/streams.ts";
import { visible, visibleLines } from "../../output/clean.ts";
import { labelsOf, paintStream } from "../../../core/analysis/stream_look.ts";
import { displayWidth, mayBreak, WordWrapper } from "../../output/wrap.ts";

const HELP = `/p N          continue with the model that has N streams
/weights      show the weights of the streams, or hide them
/system TEXT  change the system message; without TEXT show it
/temp X       change the sampling temperature; 0 is greedy
/retry        answer the last message again
/save FILE    write the conversation as a row for \`generate\`
/clear        forget the conversation
/quit         end

A backslash before Enter begins a new line, and pasted lines are one message; the arrow keys go \
through earlier lines.`;

/** The conversation as lines change it. */
export class Talk {
  #answering: AbortController | undefined;
  /** The last message, where it has no answer. */
  #failed: ChatSession["last"];
  /** True once a message could not be answered. */
  hasFailed = false;

  constructor(
    private readonly session: ChatSession,
    private readonly io: Io,
    private readonly isTerminal: boolean,
    private showsWeights: boolean,
  ) {}

  /** Stops the answer under way; false when there is none. */
  stop(): boolean {
    this.#answering?.abort();
    return this.#answering !== undefined;
  }

  /** Takes a message or a command. */
  async take(line: string): Promise<void> {
    if (line === "") return;
    if (line.startsWith("/")) await this.#obey(line);
    else await this.#answer(line);
  }

  async #obey(line: string): Promise<void> {
    const [, command, value] = /^(\S+)\s*([^]*)$/.exec(line)!;
    const commands: Record<string, () => void | Promise<void>> = {
      "/p": () => this.#switch(Number(value)),
      "/weights": () => {
        this.showsWeights = !this.showsWeights;
        this.io.note(`weights are ${this.showsWeights ? "shown" : "hidden"}`);
      },
      "/system": () => this.#system(value!),
      "/temp": () => this.#temperature(value!),
      "/retry": () => this.#retry(),
      "/save": () => this.#save(value!),
      "/clear": () => {
        this.session.clear();
        this.#failed = undefined;
      },
      "/help": () => this.io.note(HELP),
    };
    const known = Object.hasOwn(commands, command!) ? commands[command!]! : () => {
      this.io.note(`unknown command "${command}"`);
      this.io.note(HELP);
    };
    await known();
  }

  #switch(streams: number): void {
    const { choices } = this.session;
    if (this.session.useStreams(streams)) {
      return this.io.note(
        `${this.session.model.name}: ${streams} ${streams === 1 ? "stream" : "streams"}`,
      );
    }
    this.io.note(`no model has that many streams; there are: ${choices.join(", ")}`);
  }

  #system(text: string): void {
    if (text !== "") this.session.system = text;
    this.io.note(`system message: ${this.session.system ?? "none"}`);
  }

  #temperature(text: string): void {
    const value = Number(text);
    if (text !== "" && value >= 0 && value < Infinity) this.session.temperature = value;
    else if (text !== "") return this.io.note("a temperature is a number from 0 on");
    this.io.note(`temperature ${this.session.temperature}`);
  }

  async #retry(): Promise<void> {
    const last = this.#failed ?? this.session.last;
    if (last === undefined) this.io.note("there is no message yet");
    else await this.#answer(last.text, last.at);
  }

  async #save(path: string): Promise<void> {
    if (path === "") return this.io.note("/save needs a file name");
    if (this.session.last === undefined) return this.io.note("there is no message yet");
    try {
      const row = JSON.stringify({ messages: this.session.messages });
      await Deno.writeTextFile(path, `${row}\n`, { createNew: true });
      this.io.note(`saved to "${path}"`);
    } catch (error) {
      const exists = error instanceof Deno.errors.AlreadyExists;
      this.io.note(exists ? `"${path}" already exists` : `not saved: ${(error as Error).message}`);
    }
  }

  async #answer(message: string, at?: number): Promise<void> {
    const io = this.io;
    const { config } = this.session.model.session;
    const colored = io.isColored("stdout");
    const hasWeights = this.showsWeights && config.streams > 1 && hasStreamWeights(config);
    const shown = hasWeights && this.isTerminal
      ? new LetteredText(config.streams, io.width() - 1, colored)
      : new PlainText(this.isTerminal ? io.width() : undefined);
    const parts: AnswerPart[] = [];
    this.#answering = new AbortController();
    this.#failed = undefined;
    try {
      using reading = new ReadingProgress(io, "Reading prompt");
      const onPrefill = reading.update.bind(reading);
      const { signal } = this.#answering;
      for await (const part of this.session.answer(message, signal, onPrefill, at)) {
        reading.end();
        parts.push(part);
        io.write(shown.add(part));
      }
      io.write(shown.end());
    } catch (error) {
      // Such as a conversation that exceeds the context: the next line may be /clear.
      if (!(error instanceof DataError)) throw error;
      this.#failed = { text: message, at };
      this.hasFailed = true;
      io.writeError(errorText(io, error));
    } finally {
      this.#answering = undefined;
    }
    if (!hasWeights) return;
    const text = this.isTerminal ? meanWeightsText : weightsText;
    io.write(text(parts, config.streams));
  }
}

/** The weights of every part that has any, one line each. */
export function weightsText(parts: readonly AnswerPart[], streams: number): string {
  const labels = labelsOf(streams);
  return parts.flatMap(({ text, weights }) => {
    if (!weights) return [];
    const numbers = Array.from(weights, (weight, p) => `${labels[p]} ${weight.toFixed(4)}`);
    return [`  ${numbers.join("  ")}  ${JSON.stringify(text)}\n`];
  }).join("");
}

/** Mean weight of each stream over an answer: `mean weights: A 0.31  B 0.69`. */
export function meanWeightsText(parts: readonly AnswerPart[], streams: number): string {
  const all = parts.flatMap(({ weights }) => weights ? [weights] : []);
  if (all.length === 0) return "";
  const means = labelsOf(streams).map((label, p) => {
    const mean = all.reduce((sum, weights) => sum + weights[p]!, 0) / all.length;
    return `${label} ${mean.toFixed(2)}`;
  });
  return `mean weights: ${means.join("  ")}\n`;
}

/** Text of an answer with, under each of its lines, the letter of the stream with the largest weight. */
export class LetteredText {
  #column = 0;
  /** Letters of the line, by column. */
  #letters: { readonly column: number; readonly stream: number }[] = [];
  /** Tokens of the word that has not ended. */
  #word: { readonly text: string; readonly stream: number | undefined }[] = [];

  constructor(
    private readonly streams: number,
    private readonly width: number,
    private readonly colored: boolean,
  ) {}

  /** Returns the text to write for a part. */
  add({ text, weights }: AnswerPart): string {
    let shown = "";
    for (const [i, line] of text.split("\n").entries()) {
      if (i > 0) shown += this.end();
      const clean = visible(line);
      if (clean === "") continue;
      if (mayBreak(this.#word.at(-1)?.text ?? "", clean)) shown += this.#place();
      this.#word.push({ text: clean, stream: weights && winnerOf(weights) });
    }
    return shown;
  }

  /** Ends the line: its letters, on a line of their own. */
  end(): string {
    return this.#place() + this.#endLine();
  }

  /** Adds the word, which has ended, to the line that it fits on. */
  #place(): string {
    const wide = this.#word.reduce((sum, { text }) => sum + displayWidth(text), 0);
    let shown = this.#column > 0 && this.#column + wide > this.width ? this.#endLine() : "";
    for (const { text, stream } of this.#word) {
      if (this.#column > 0 && this.#column + displayWidth(text) > this.width) {
        shown += this.#endLine();
      }
      if (stream !== undefined) this.#letters.push({ column: this.#column, stream });
      shown += text;
      this.#column += displayWidth(text);
    }
    this.#word = [];
    return shown;
  }

  #endLine(): string {
    const labels = labelsOf(this.streams);
    let under = "", at = 0;
    for (const { column, stream } of this.#letters) {
      const label = labels[stream]!;
      // A token of no width has the place of the next one.
      if (column < at) continue;
      under += " ".repeat(column - at) + (this.colored ? paintStream(label, stream) : label);
      at = column + label.length;
    }
    this.#letters = [];
    this.#column = 0;
    return under === "" ? "\n" : `\n${under}\n`;
  }
}

/** Text of an answer without letters; on a terminal it breaks at words. */
class PlainText {
  readonly #wrapper: WordWrapper | undefined;

  constructor(width: number | undefined) {
    this.#wrapper = width === undefined ? undefined : new WordWrapper(width);
  }

  add({ text }: AnswerPart): string {
    const clean = visibleLines(text);
    return this.#wrapper?.add(clean) ?? clean;
  }

  end(): string {
    return `${this.#wrapper?.end() ?? ""}\n`;
  }
}
