/**
 * Result files of `eval --log-format harness` in lm-evaluation-harness: its names of files, its tables.
 *
 *   PARSCALE_LM_EVAL_PYTHON   a Python with lm-eval 0.4.13; skipped without
 */
import { assertEquals, assertMatch } from "@std/assert";
import { runEval } from "../cli/eval_testing.ts";
import { withScratch } from "../scratch.ts";

const python = Deno.env.get("PARSCALE_LM_EVAL_PYTHON");

/** Finds the files as its uploads do, and prints both tables. */
const SCRIPT = `
import glob, json
from lm_eval.utils import (
    get_file_task_name, get_results_filenames, get_sample_results_filenames, make_table)
files = glob.glob("./run/*")
print(*sorted(get_file_task_name(f.split("/")[-1]) for f in get_sample_results_filenames(files)))
[path] = get_results_filenames(files)
results = json.load(open(path))
print(make_table(results))
print(make_table(results, "groups"))
`;

Deno.test({
  name: "lm-evaluation-harness finds our files and prints their tables",
  ignore: !python,
  fn: () =>
    withScratch(async (cwd) => {
      const tasks = "--tasks winogrande,gsm8k,mmlu,ifeval --limit 2 --max-tokens 8";
      await runEval(`${tasks} --out run --log-format harness`, cwd);
      const output = await new Deno.Command(python!, { args: ["-c", SCRIPT], cwd }).output();
      const [stdout, stderr] = [output.stdout, output.stderr].map((bytes) =>
        new TextDecoder().decode(bytes)
      );
      assertEquals(output.code, 0, stderr);
      assertMatch(stdout!, /^gsm8k ifeval mmlu_abstract_algebra winogrande\n/);
      assertMatch(stdout!, /\|gsm8k +\| +3\.?0?\|flexible-extract\| +5\|exact_match +\|↑/);
      assertMatch(stdout!, /\| - mmlu_stem +\|/);
      assertMatch(stdout!, /\|inst_level_strict_acc +\|↑ +\|/);
      assertMatch(stdout!, /\| +Groups +\|/);
    }),
});
