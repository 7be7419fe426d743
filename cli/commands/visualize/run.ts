/** What `parscale visualize` does, in order, and what it refuses. */
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { requireStreamWeights } from "../../../core/generate/score.ts";
import { type OpenedModel, openModel } from "../../input/open_model.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openSink, type Sink } from "../../output/sink.ts";
import { readTexts } from "./input.ts";
import { labelsOf } from "./look.ts";
import { encodeTexts, type MeasuredText, measureTexts } from "./measure.ts";
import { type Study, studyTexts } from "./result.ts";
import { openResult } from "./show.ts";
import type { VisualizeValues } from "./flags.ts";

/** Runs the command. */
export async function runVisualize(
  values: VisualizeValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  checkFigures(values);
  using figures = new Figures(values, io, invocation);
  const raw = values.task === undefined
    ? await readTexts(values, io)
    : await (await import("./task_rows.ts")).readTaskRows(values.task, values);
  using model = await openModel(values, io);
  requireStreams(model, values.model);
  const labels = labelsOf(model.engine.config.streams);
  const encoded = await encodeTexts(raw, model, values);
  using result = openResult(io, invocation, {
    labels,
    device: model.device,
    texts: encoded.length,
    showsTexts: values.html === undefined && values.svg === undefined,
  });
  const texts: MeasuredText[] = [];
  for await (const text of measureTexts(encoded, model, values, io)) {
    texts.push(text);
    result.text(text);
  }
  const study = studyTexts(nameOf(values.model), labels, texts);
  if (values.diversity && study.diversity === undefined) {
    io.warn("no text has two tokens, so nothing can be said of --diversity");
  }
  await figures.draw(study, io);
  await result.finish(study);
}

/** A figure is passed on, and where a folder lies on this machine is private. */
function nameOf(model: string): string {
  return model.split(/[/\\]/).findLast((part) => part !== "") ?? model;
}

function checkFigures({ html, svg, out }: VisualizeValues): void {
  const paths = [["--html", html], ["--svg", svg], ["--out", out]] as const;
  for (const [flag, path] of paths.slice(0, 2)) {
    if (path !== "-") continue;
    throw new UsageError(`\`${flag}\` cannot be written to stdout`, {
      hints: [`name a file: \`${flag} FILE\``],
    });
  }
  const given = paths.filter(([, path]) => path !== undefined && path !== "-");
  for (const [i, [flag, path]] of given.entries()) {
    const same = given.slice(0, i).find(([, other]) => other === path);
    if (!same) continue;
    throw new UsageError(
      `\`${same[0]}\` and \`${flag}\` both name "${path}"`,
    );
  }
}

function requireStreams({ engine }: OpenedModel, name: string): void {
  requireStreamWeights(engine.config);
  if (engine.config.streams > 1) return;
  throw new DataError(
    `"${name}" has one stream, which always has the whole weight`,
    {
      hints: [
        "`parscale convert --streams 4` gives it streams; --adapter lays trained ones over it",
      ],
    },
  );
}

/** The page and the figure; existing files are refused before anything is computed. */
class Figures implements Disposable {
  readonly #sinks: { readonly path: string; readonly sink: Sink; readonly isPage: boolean }[] = [];

  constructor({ html, svg }: VisualizeValues, io: Io, { overwrite }: Invocation) {
    for (const [path, isPage] of [[html, true], [svg, false]] as const) {
      if (path === undefined) continue;
      try {
        this.#sinks.push({ path, isPage, sink: openSink(io, path, overwrite) });
      } catch (error) {
        this[Symbol.dispose]();
        throw error;
      }
    }
  }

  /** Writes what was asked for. */
  async draw(study: Study, io: Io): Promise<void> {
    for (const { path, sink, isPage } of this.#sinks) {
      const draw = isPage
        ? (await import("./html.ts")).drawPage
        : (await import("./svg.ts")).drawSvg;
      sink.write(draw(study));
      sink.commit();
      io.note(`wrote ${path}`);
    }
  }

  /** Leaves no unfinished file behind. */
  [Symbol.dispose](): void {
    for (const { sink } of this.#sinks) sink.abandon();
  }
}
