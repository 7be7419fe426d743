/**
 * Makes problems of MBPP: `deno task distil-problems OUT MBPP DATA`.
 *
 * MBPP is `mbpp.jsonl` as its authors publish it (tasks 601 to 974 are the training split, 511 to 600 the
 * validation split, 11 to 510 the test split), DATA the folder with HumanEval. A problem whose function has
 * the name of one of HumanEval or of the test split, or that shares ten words in a row with one of them, is
 * left out. Each is asked for as a direct completion: signature, one-line description, first test as example.
 * Writes `problems.jsonl` of the training split and `validation.jsonl` for `parscale eval --tasks`,
 * `solutions.jsonl` with MBPP's own, and `problems.json` with counts and hashes.
 */
import { join } from "node:path";
import { gramsOf, readGzip } from "../qwen-humaneval/corpus.ts";
import { sha256 } from "../small-law/corpus.ts";

const START = /^Write a (python )?function to /i;

/** A row of MBPP. */
interface Row {
  readonly task_id: number;
  readonly text: string;
  readonly code: string;
  readonly test_list: readonly string[];
  readonly test_setup_code: string;
}

/** A problem as `eval` reads it, and MBPP's solution as a completion. */
interface Problem {
  readonly prompt: string;
  readonly tests: readonly string[];
  readonly entry_point: string;
  /** Undefined where more than the function is needed. */
  readonly completion: string | undefined;
}

/** The function that the tests of a row call. */
function nameOf({ code, test_list: [test = ""] }: Row): string | undefined {
  const names = [...code.matchAll(/^def (\w+)\(/gm)].map(([, name]) => name!);
  return names.find((name) => new RegExp(`\\b${name}\\(`).test(test));
}

/** A problem; undefined where a test is no equation, or has values that Python does not write as a literal. */
function problemOf(row: Row): Problem | undefined {
  const name = nameOf(row), code = row.code.replaceAll("\r\n", "\n");
  const [, before, parameters, body] =
    new RegExp(`^([^]*?)^def ${name}\\((.*)\\) *: *\\n([^]*)$`, "m").exec(code) ?? [];
  const [, call, value] = /^assert (.*?) *== *(.*?)\s*$/s.exec(row.test_list[0] ?? "") ?? [];
  if (!name || body === undefined || !call || !value || row.test_setup_code !== "") {
    return undefined;
  }
  const description = row.text.replace(START, "").trim();
  const sentence = description.charAt(0).toUpperCase() + description.slice(1);
  const example = `    >>> ${call}\n    ${value}`;
  const prompt = `def ${name}(${parameters}):\n    """ ${sentence}\n${example}\n    """`;
  return {
    prompt,
    tests: row.test_list,
    entry_point: name,
    completion: before === "" ? body : undefined,
  };
}

/** Runs of ten words, without marks and numbers: much of Python shares those. */
const wordsOf = (text: string) => [...gramsOf(text, /[a-z_]\w*/g)];

/** Words that a problem is told from others by: without those that most of MBPP begin with. */
function textOf({ text, code }: Row): string {
  return `${text.replace(START, "")}\n${code}`;
}

if (import.meta.main) {
  const [out, mbpp, data] = Deno.args;
  if (!out || !mbpp || !data) throw new Error("usage: deno task distil-problems OUT MBPP DATA");
  const rows: Row[] = Deno.readTextFileSync(mbpp).trim().split("\n").map((line) =>
    JSON.parse(line)
  );
  const among = (first: number, last: number) =>
    rows.filter(({ task_id }) => task_id >= first && task_id <= last);
  const humaneval = (await readGzip(join(data, "humaneval/HumanEval.jsonl.gz")))
    .map((line) => JSON.parse(line));
  const test = among(11, 510), train = among(601, 974), validation = among(511, 600);
  const names = new Set([...test.map(nameOf), ...humaneval.map(({ entry_point }) => entry_point)]);
  const grams = new Set([
    ...test.flatMap((row) => wordsOf(textOf(row))),
    ...humaneval.flatMap(({ prompt, canonical_solution }) => [
      ...wordsOf(prompt + canonical_solution),
    ]),
  ]);
  const clean = (rows: readonly Row[]) => {
    const otherNames = rows.filter((row) => !names.has(nameOf(row)));
    const left = otherNames.filter((row) => !wordsOf(textOf(row)).some((one) => grams.has(one)));
    return { otherNames, left, problems: left.flatMap((row) => problemOf(row) ?? []) };
  };
  const { otherNames, left, problems } = clean(train);
  const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");
  const asLines = (problems: readonly Problem[]) =>
    lines(problems.map(({ completion: _, ...problem }) => problem));
  const asked = asLines(problems);
  const { problems: held } = clean(validation);
  const solutions = problems.filter(({ completion }) => completion !== undefined);
  const solved = lines(
    solutions.map(({ prompt, completion }) => ({ prompt: `${prompt}\n`, completion })),
  );
  await Deno.mkdir(out, { recursive: true });
  await Deno.writeTextFile(join(out, "problems.jsonl"), asked);
  await Deno.writeTextFile(join(out, "validation.jsonl"), asLines(held));
  await Deno.writeTextFile(join(out, "solutions.jsonl"), solved);
  const counts = {
    training_split: train.length,
    same_name: train.length - otherNames.length,
    ten_words: otherNames.length - left.length,
    other_form: left.length - problems.length,
    problems: problems.length,
    solutions: solutions.length,
    validation: held.length,
    sha256: await sha256(asked),
  };
  await Deno.writeTextFile(join(out, "problems.json"), `${JSON.stringify(counts, null, 2)}\n`);
  console.log(JSON.stringify(counts));
}
