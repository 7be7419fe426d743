/** Helpers of the tests of `parscale eval`: model, data, and folders of evaluations. */
import { assertEquals } from "@std/assert";
import { withScratch } from "../scratch.ts";
import { jsonLines, parseLines } from "./models.ts";
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

/** Writes files of tasks and runs a test among them. */
export function withTasks(
  files: Readonly<Record<string, string>>,
  test: (cwd: string) => Promise<void>,
): Promise<void> {
  return withScratch(async (cwd) => {
    for (const [name, text] of Object.entries(files)) {
      Deno.writeTextFileSync(`${cwd}/${name}`, text);
    }
    await test(cwd);
  });
}

/** Values by metric of the answers in a file, scored by a task. */
export async function scored(cwd: string, task: string, texts: readonly string[], flags = "") {
  const name = task.split(".")[0];
  const stdin = jsonLines(...texts.map((text, doc_id) => ({ task: name, doc_id, text })));
  const line = `eval --score - --tasks ${task} ${flags} --json`;
  const { code, stdout, stderr } = await runParscale(line, { cwd, stdin });
  assertEquals(code, 0, stderr);
  const [{ metrics }] = JSON.parse(stdout).results.tasks;
  return Object.fromEntries(
    metrics.map(({ metric, value }: { metric: string; value: number }) => [metric, value]),
  );
}
