/** Helpers of the tests of `parscale eval`: model, data, and folders of evaluations. */
import { assertEquals } from "@std/assert";
import { parseLines } from "./models.ts";
import { type Line, runParscale, type RunResult, wordsOf } from "./run.ts";
import { FIXTURES } from "../fixtures.ts";

/** A tiny model whose scores an independent implementation has computed. */
export const TINY = `${FIXTURES}models/tiny-qwen2`;

/** Benchmark rows in the official layouts. */
export const DATA = `${FIXTURES}eval/data`;

/** Arguments that evaluations share. */
export const EVAL = ["eval", "--model", TINY, "--data", DATA];

/** Runs an evaluation that must succeed; warnings are allowed. */
export async function runEval(line: Line, cwd?: string): Promise<RunResult> {
  const result = await runParscale([...EVAL, ...wordsOf(line)], { cwd });
  assertEquals(result.code, 0, result.stderr);
  return result;
}

/** Lines of a JSON lines file, in the order of task, row and sample. */
// deno-lint-ignore no-explicit-any -- tests look at any field
export function sortedLines(path: string): any[] {
  const key = (row: { task: string; doc_id: number; sample?: number }) =>
    `${row.task}/${String(row.doc_id).padStart(6, "0")}/${row.sample ?? 0}`;
  return parseLines(Deno.readTextFileSync(path)).sort((a, b) => key(a) < key(b) ? -1 : 1);
}

/** Returns the fields in which two evaluations of the same thing must agree. */
// deno-lint-ignore no-explicit-any -- tests look at any field
export function comparable(folder: string): any {
  const { results: { stats: _, ...results } } = JSON.parse(
    Deno.readTextFileSync(`${folder}/results.json`),
  );
  return { results, scores: sortedLines(`${folder}/scores.jsonl`) };
}
