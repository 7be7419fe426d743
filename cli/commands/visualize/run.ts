/** What `parscale visualize` does, in order, and what it refuses. */
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { requireStreamWeights } from "../../../core/generate/score.ts";
import type { Session } from "../../../core/session/session.ts";
import { openModel } from "../../input/open_model.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openFigure } from "../../output/sink.ts";
import { readTexts } from "./input.ts";
import { labelsOf } from "./look.ts";
import { encodeTexts, type MeasuredText, measureTexts } from "./measure.ts";
import { studyTexts } from "./result.ts";
import { openResult } from "./show.ts";
import type { VisualizeValues } from "./flags.ts";

/** Runs the command. */
export async function run(
  values: VisualizeValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  checkPage(values);
  using page = openFigure(io, values.html, invocation.overwrite);
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
    showsTexts: page === undefined,
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
  page?.write((await import("./html.ts")).drawPage(study));
  await result.finish(study);
}

/** A page is passed on, and where a folder lies on this machine is private. */
function nameOf(model: string): string {
  return model.split(/[/\\]/).findLast((part) => part !== "") ?? model;
}

function checkPage({ html, out }: VisualizeValues): void {
  if (html === "-") {
    throw new UsageError("`--html` cannot be written to stdout", {
      hints: ["name a file: `--html FILE`"],
    });
  }
  if (html !== undefined && html === out) {
    throw new UsageError(`\`--html\` and \`--out\` both name "${html}"`);
  }
}

function requireStreams({ engine }: Session, name: string): void {
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
