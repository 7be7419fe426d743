/** `eval --log-format harness`: files of lm-evaluation-harness, from which the same scores come. */
import { createHash } from "node:crypto";
import { assert, assertEquals } from "@std/assert";
import { DATA, runEval, sortedLines } from "./eval_testing.ts";
import { documentOf, parseLines, succeed } from "./models.ts";
import { fixtureRows } from "../fixtures.ts";
import { withScratch } from "../scratch.ts";

const ROWS = "--limit 4 --shots gsm8k=4 --max-tokens 8";
const LOGGED = `--tasks piqa,gsm8k,mmlu ${ROWS} --out run --log-format harness`;
const TIME = /_\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}\.jsonl?$/;
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** Paths of the harness's files, by their names without the time. */
function harnessFiles(folder: string): Record<string, string> {
  const names = [...Deno.readDirSync(folder)].map(({ name }) => name).filter((n) => TIME.test(n));
  return Object.fromEntries(names.sort().map((n) => [n.replace(TIME, ""), `${folder}/${n}`]));
}

Deno.test("results and samples have the harness's names and hashes, and score as the run did", () =>
  withScratch(async (cwd) => {
    await runEval(LOGGED, cwd);
    const files = harnessFiles(`${cwd}/run`);
    const subjects = ["mmlu_abstract_algebra", "mmlu_anatomy"];
    const tasks = ["gsm8k", ...subjects, "piqa"];
    assertEquals(Object.keys(files), ["results", ...tasks.map((task) => `samples_${task}`)]);

    const results = JSON.parse(await Deno.readTextFile(files.results!));
    assertEquals(Object.keys(results.configs).sort(), tasks);
    assertEquals(results.group_subtasks, { mmlu: ["mmlu_stem"], mmlu_stem: subjects });
    assertEquals([results["n-shot"].gsm8k, results.versions.gsm8k], [4, 3]);
    assertEquals(results["n-samples"].piqa, { original: 12, effective: 4 });
    const { tasks: own } = JSON.parse(await Deno.readTextFile(`${cwd}/run/results.json`)).results;
    const [norm, acc] = own[0].metrics, { piqa, gsm8k, mmlu } = results.results;
    assertEquals([piqa["acc_norm,none"], piqa["acc_stderr,none"]], [norm.value, acc.stderr]);
    assertEquals(gsm8k["exact_match,strict-match"], own[1].metrics[0].value);
    assertEquals(mmlu, results.groups.mmlu);

    const rows = parseLines(await Deno.readTextFile(files.samples_gsm8k!));
    assertEquals(rows.map(({ filter }) => filter), [
      ...new Array(4).fill("strict-match"),
      ...new Array(4).fill("flexible-extract"),
    ]);
    const asked = fixtureRows("golden/eval/requests_gsm8k.jsonl")[1]!;
    const { doc_id, doc, target, arguments: args, filtered_resps, prompt_hash } = rows[1];
    assertEquals([doc_id, doc.answer, filtered_resps], [1, target, ["[invalid]"]]);
    assertEquals(args.gen_args_0.arg_0, asked.prompt);
    assertEquals(prompt_hash, sha256(asked.prompt as string));
    const [choice] = parseLines(await Deno.readTextFile(files.samples_piqa!));
    const [first] = sortedLines(`${cwd}/run/samples.jsonl`).filter(({ task }) => task === "piqa");
    const pairs = first.loglikelihood.map((value: number) => [String(value), "False"]);
    assertEquals([choice.filtered_resps, choice.metrics], [pairs, ["acc_norm", "acc"]]);

    for (const { task, metrics } of own) {
      const parts = Object.entries(files).filter(([name]) => name.startsWith(`samples_${task}`));
      const stdin = parts.map(([, path]) => Deno.readTextFileSync(path)).join("");
      const line = `eval --score - --tasks ${task} --data ${DATA} --limit 4 -q`;
      const { results: { tasks: [scored] } } = await documentOf(line, { stdin });
      assertEquals(scored.metrics, metrics, task);
    }

    await runEval(LOGGED, cwd);
    assertEquals(Object.keys(harnessFiles(`${cwd}/run`)), Object.keys(files), "replaced");
    await runEval(`--tasks piqa --limit 1 --out run --overwrite`, cwd);
    assertEquals(harnessFiles(`${cwd}/run`), {});
  }));

Deno.test("conversations are rendered; of those scored without a model the messages are told", () =>
  withScratch(async (cwd) => {
    const flags = "--tasks mmlu --chat --limit 1 --log-format harness -q";
    const prompt = async (folder: string) => {
      const { samples_mmlu_abstract_algebra: path } = harnessFiles(`${cwd}/${folder}`);
      return parseLines(await Deno.readTextFile(path!))[0].arguments.gen_args_0.arg_0;
    };
    await runEval(`${flags} --out run`, cwd);
    assert((await prompt("run")).startsWith("<|im_start|>system\n"));
    await succeed(`eval --score run/samples.jsonl ${flags} --data ${DATA} --out scored`, { cwd });
    assertEquals(JSON.parse(await prompt("scored"))[0].role, "system");
  }));
