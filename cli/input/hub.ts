/** Finds models and files on the hub for commands: progress, notices and warnings on stderr. */
import type { DownloadEvents } from "../../core/hub/blob.ts";
import type { Io } from "../output/io.ts";
import { type Progress, startProgress } from "../output/progress.ts";

/** Shows a download; dispose of it when that is over. */
export class DownloadDisplay implements DownloadEvents, Disposable {
  #progress: Progress | undefined;

  constructor(readonly io: Io, readonly label = "Downloading") {}

  readonly onTotal = (bytes: number): void => {
    this.#progress?.[Symbol.dispose]();
    this.#progress = startProgress(this.io, {
      label: this.label,
      unit: "MB",
      total: megabytes(bytes),
    });
  };

  readonly onBytes = (bytes: number): void => this.#progress?.update(megabytes(bytes));

  readonly onNotice = (text: string): void => this.io.note(text);

  readonly onWarning = (text: string): void => this.io.warn(text);

  [Symbol.dispose](): void {
    this.#progress?.[Symbol.dispose]();
  }
}

/** With one decimal, or all where that would be nothing. */
function megabytes(bytes: number): number {
  return bytes < 1e5 ? bytes / 1e6 : Math.round(bytes / 1e5) / 10;
}

/** The folder of a --model: a path, or a name on the hub, which is downloaded. */
export async function findModel(model: string, io: Io): Promise<string> {
  const { resolveModel } = await import("../../core/hub/model.ts");
  using events = new DownloadDisplay(io);
  return await resolveModel(model, { events, signal: io.interruption });
}
