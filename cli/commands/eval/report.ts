/** Writes what an evaluation came to: results.json, the table or document, and what falls short. */
import type { EvalFolder } from "../../../core/eval/harness/eval_folder.ts";
import type { DocumentScore } from "../../../core/eval/harness/results.ts";
import { buildDocument, type Invocation } from "../../output/document.ts";
import { exitCode } from "../../output/exit_codes.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { plainTable } from "../../output/table.ts";
import type { AnsweringStats } from "./answer.ts";
import {
  COLUMNS,
  type FullResult,
  paperTables,
  resultsObject,
  summarizeAll,
  tableRows,
  type TaskFacts,
} from "./results.ts";
import type { EvalValues } from "./flags.ts";

/** The model that was asked, and how. */
export interface Asked {
  readonly fingerprint: string;
  readonly device: string;
  readonly streams: number | null;
  readonly beams: number | null;
  /** Bits of weights; null where they are exact. */
  readonly quantize: string | null;
}

const SCHEMA = "parscale.eval/1";

/** Writes results to the folder and to stdout. */
export async function report(
  facts: readonly TaskFacts[],
  scores: readonly DocumentScore[],
  { values, io, invocation, folder, model, stats }: {
    values: EvalValues;
    io: Io;
    invocation: Invocation;
    folder: EvalFolder | undefined;
    model?: Asked;
    stats?: AnsweringStats;
  },
): Promise<FullResult[]> {
  const results = await summarizeAll(facts, scores);
  const object = {
    model: model?.fingerprint ?? null,
    streams: model?.streams ?? null,
    num_beams: model?.beams ?? null,
    quantize: model?.quantize ?? null,
    stats: stats ?? null,
    ...await resultsObject(results, values.preset),
  };
  const head = { schema: SCHEMA, device: model?.device };
  const duration = io.system.now() - invocation.startedMs;
  await folder?.finish(scores, buildDocument(invocation, head, duration, object));
  using output = openReport(io, invocation, { ...head, columns: COLUMNS });
  if (invocation.format === "json") await output.finish(object);
  else {
    for (const row of tableRows(results)) output.row(row);
    await output.finish();
  }
  if (invocation.format !== "table") return results;
  for (const { name, columns } of paperTables(results, values.preset)) {
    const shown = Object.entries(columns).map(([key]) => ({ key, digits: 1 }));
    io.write(`\n${name}, percent\n${plainTable(shown, [columns])}`);
  }
  return results;
}

/** Says what fell short; the exit code follows. */
export function verdict(missed: readonly string[], io: Io): number {
  for (const line of missed) io.writeError(`${io.palette("stderr").error("missed:")} ${line}\n`);
  return exitCode(missed.length > 0 ? "negative" : "done");
}
