/** One line of a conversation after the other: messages are answered, commands obeyed. */
import { DataError } from "../../../core/base/errors.ts";
import { hasStreamWeights } from "../../../core/model/config.ts";
import { errorText } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { PrefillProgress } from "../../output/progress.ts";
import { type AnswerPart, type ChatSession } from "./session.ts";
import { LetteredText, meanWeightsText, PlainText, weightsText } from "./weights.ts";

const HELP = `/p N          continue with the model that has N streams
/weights      show the weights of the streams, or hide them
/system TEXT  change the system message; without TEXT show it
/temp X       change the sampling temperature; 0 is greedy
/retry        answer the last message again
/save FILE    write the conversation as a row for \`generate\`
/clear        forget the conversation
/quit         end

Alt-Enter, Ctrl-J or a backslash before Enter begin a new line; the arrow keys go through
earlier messages.`;

/** The conversation as lines change it. */
export class Talk {
  #answering: AbortController | undefined;

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
      "/clear": () => this.session.clear(),
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
      return this.io.note(`${this.session.model.name}: ${streams} streams`);
    }
    this.io.note(`no model with so many streams; there are: ${choices.join(", ")}`);
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
    const message = this.session.takeBack();
    if (message === undefined) this.io.note("there is no message yet");
    else await this.#answer(message);
  }

  async #save(path: string): Promise<void> {
    if (path === "") return this.io.note("/save needs a file name");
    try {
      const row = JSON.stringify({ messages: this.session.messages });
      await Deno.writeTextFile(path, `${row}\n`, { createNew: true });
      this.io.note(`saved to "${path}"`);
    } catch (error) {
      const exists = error instanceof Deno.errors.AlreadyExists;
      this.io.note(exists ? `"${path}" already exists` : `not saved: ${(error as Error).message}`);
    }
  }

  async #answer(message: string): Promise<void> {
    const io = this.io;
    const { config } = this.session.model.session;
    const colored = io.isColored("stdout");
    const hasWeights = this.showsWeights && config.streams > 1 && hasStreamWeights(config);
    const shown = hasWeights && this.isTerminal
      ? new LetteredText(config.streams, io.width() - 1, colored)
      : new PlainText();
    const parts: AnswerPart[] = [];
    this.#answering = new AbortController();
    try {
      using reading = new PrefillProgress(io);
      const onPrefill = reading.update.bind(reading);
      for await (const part of this.session.answer(message, this.#answering.signal, onPrefill)) {
        reading.end();
        parts.push(part);
        io.write(shown.add(part));
      }
      io.write(shown.end());
    } catch (error) {
      // Such as a conversation that exceeds the context: the next line may be /clear.
      if (!(error instanceof DataError)) throw error;
      io.writeError(errorText(io, error));
    } finally {
      this.#answering = undefined;
    }
    if (!hasWeights) return;
    const text = this.isTerminal ? meanWeightsText : weightsText;
    io.write(text(parts, config.streams));
  }
}
