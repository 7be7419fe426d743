/** Small models for the tests of commands, and what commands answer. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { type Line, type RunOptions, runParscale, type RunResult, wordsOf } from "./run.ts";
import { linkSync } from "../links.ts";
import { FIXTURES, readFixture } from "../fixtures.ts";

/** A model with two streams, one with four, and one with one. */
export const MODEL = `${FIXTURES}models/qwen2-p2-tied-f32`;
export const MODEL4 = `${FIXTURES}models/qwen2-p4-untied-f32`;
export const PLAIN_MODEL = `${FIXTURES}models/qwen2-p1-tied-f32`;

/** Results of an independent implementation for the two-stream model. */
export const EXPECTED = readFixture("golden/qwen2-p2-tied-f32/expected.json");

/** Copies a model folder without some of its files, with others added. */
export async function copyFolder(
  source: string,
  target: string,
  changes: Readonly<Record<string, string | undefined>> = {},
): Promise<string> {
  await Deno.mkdir(target);
  for (const { name } of Deno.readDirSync(source)) {
    if (!(name in changes)) linkSync(`${source}/${name}`, `${target}/${name}`);
  }
  for (const [name, text] of Object.entries(changes)) {
    if (text !== undefined) await Deno.writeTextFile(`${target}/${name}`, text);
  }
  return target;
}

/** Changes of `copyFolder` that leave out the tokenizer. */
export const NO_TOKENIZER = {
  "tokenizer.json": undefined,
  "tokenizer_config.json": undefined,
  "vocab.json": undefined,
  "merges.txt": undefined,
};

/** JSON lines from values; strings stay as they are. */
export function jsonLines(...rows: unknown[]): string {
  return rows.map((row) => `${typeof row === "string" ? row : JSON.stringify(row)}\n`).join("");
}

/** Rows that a successful run printed as JSON lines. */
// deno-lint-ignore no-explicit-any -- tests look at any field
export async function rowsOf(line: Line, options: RunOptions = {}): Promise<any[]> {
  return parseLines(await succeed([...wordsOf(line), "--jsonl"], options));
}

/** The JSON document that a successful run printed. */
// deno-lint-ignore no-explicit-any -- tests look at any field
export async function documentOf(line: Line, options: RunOptions = {}): Promise<any> {
  return JSON.parse(await succeed([...wordsOf(line), "--json"], options));
}

/** The note of a model that takes a second to open, as a small one may on a busy machine. */
const OPENING = /^opening .* …\n/gm;

/** Stdout of a run that must succeed without another word on stderr. */
export async function succeed(line: Line, options?: RunOptions): Promise<string> {
  const { code, stdout, stderr } = await runParscale(line, options);
  assertEquals([code, stderr.replaceAll(OPENING, "")], [0, ""], `${line}: ${stderr}`);
  return stdout;
}

/** Names in a folder, hidden ones too. */
export const names = (folder: string) =>
  [...Deno.readDirSync(folder)].map(({ name }) => name).sort();

/** Makes `folder` a run of `train` whose newest checkpoint is a model. */
export function linkRun(model: string, folder: string): void {
  Deno.mkdirSync(folder);
  linkSync(model, `${folder}/checkpoint-7`);
  Deno.writeTextFileSync(`${folder}/last`, "checkpoint-7\n");
}

/** Parses JSON lines. */
// deno-lint-ignore no-explicit-any -- tests look at any field
export function parseLines(text: string): any[] {
  return text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
}

/** Fails unless a run ended with this code, printed nothing and said this as its one error. */
export function assertRefused(result: RunResult, code: number, message: string): void {
  const [first] = result.stderr.split("\n");
  assertEquals([result.code, result.stdout, first], [code, "", `error: ${message}`]);
}

/** Fails unless a run ended with this code, printed nothing, and said these words among its errors and hints. */
export function assertFailed(result: RunResult, code: number, ...words: string[]): void {
  assertEquals([result.code, result.stdout], [code, ""], result.stderr);
  const form = /(^|\n)((error: [^\n]+\n)+(\n(hint: [^\n]+\n)+)?|\{"error":\{[^\n]+\}\}\n)$/;
  assertMatch(result.stderr, form);
  for (const word of words) assertStringIncludes(result.stderr, word);
}

/** A command line, or a run, with the code it ends with and words of its errors and hints. */
export type Refusal = readonly [
  run: Line | Promise<RunResult>,
  code: number,
  ...words: readonly string[],
];

/** Fails unless every run ends with its code and words, and prints nothing. */
export async function assertRefusals(
  refusals: readonly Refusal[],
  options: RunOptions = {},
): Promise<void> {
  await Promise.all(refusals.map(async ([run, code, ...words]) => {
    const { code: found, stdout, stderr } =
      await (run instanceof Promise ? run : runParscale(run, options));
    assertEquals([found, stdout], [code, ""], `${run}: ${stderr}`);
    for (const word of words) assertStringIncludes(stderr, word, `${run}`);
    assert(!/^\s+at /m.test(stderr), stderr);
  }));
}

/** Returns whether `--device webgpu` works here; says why not. */
export async function hasWebGpu(): Promise<boolean> {
  const { stdout } = await runParscale(["doctor", "--jsonl"]);
  const { status, found } = parseLines(stdout).find(({ check }) => check === "device webgpu");
  if (status !== "ok") console.error(`tests on webgpu are skipped: ${found}`);
  return status === "ok";
}
