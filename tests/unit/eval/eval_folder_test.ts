/** Files of an evaluation that is resumed. */
import { assertEquals, assertRejects } from "@std/assert";
import { DataError, UsageError } from "../../../core/base/errors.ts";
import { EvalFolder } from "../../../core/eval/harness/eval_folder.ts";
import { withScratch } from "../../scratch.ts";

Deno.test("an evaluation without an answer is begun anew with other flags", () =>
  withScratch(async (path) => {
    const open = (seed: number) => EvalFolder.open(`${path}/run`, { seed }, {});
    for (const seed of [1, 2]) (await open(seed))[Symbol.dispose]();
    const folder = await open(3);
    folder.append({ task: "gsm8k", doc_id: 0, sample: 0, text: "4" });
    folder[Symbol.dispose]();
    await assertRejects(() => open(4), UsageError, "holds an evaluation that differs in seed");
    (await open(3))[Symbol.dispose]();
  }));

Deno.test("a damaged line of statistics or scores is refused with its file and line", () =>
  withScratch(async (path) => {
    using folder = await EvalFolder.open(`${path}/run`, {}, {});
    const write = (name: string, line: string) =>
      Deno.writeTextFileSync(`${path}/run/${name}`, `\n${line}\n`);
    for (
      const [line, problem] of [
        ["null", "is not a JSON object: null"],
        ["{bad", "is not valid JSON: "],
        ["{}", "has run nothing, expected text"],
        ['{"run":"a","seconds":"5"}', 'has seconds "5", expected a number'],
        ['{"run":"a","seconds":5,"peak_rss_bytes":"7"}', 'has peak_rss_bytes "7", expected'],
      ]
    ) {
      write("stats.jsonl", line!);
      const message = `line 2 of "${path}/run/stats.jsonl" ${problem}`;
      await assertRejects(() => folder.readStats(), DataError, message);
    }
    write("scores.jsonl", '{"task":"gsm8k","doc_id":0}');
    await assertRejects(() => folder.readScores(), DataError, "has metrics nothing, expected");
    write("stats.jsonl", '{"run":"a","seconds":5,"peak_rss_bytes":null}');
    assertEquals(await folder.readStats(), [{ run: "a", seconds: 5, peak_rss_bytes: null }]);
  }));
