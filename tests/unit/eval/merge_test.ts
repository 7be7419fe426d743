/** Folders of shards that are put together, and those that are refused. */
import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { mergeParts } from "../../../core/eval/harness/merge.ts";
import { jsonLines } from "../../cli/models.ts";
import { withScratch } from "../../scratch.ts";

/** Writes the folder of shard `part` of two, which has these rows, with other texts of some files. */
function writePart(
  path: string,
  part: number,
  ids: readonly number[],
  files: Record<string, string> = {},
): void {
  Deno.mkdirSync(path);
  const task = "sciq", shard = `${part}/2`;
  const results = { model: "m", tasks: [{ task, metrics: [] }], left_out: [] };
  const row = { task, group: "", request: "r" };
  const all = {
    "config.json": JSON.stringify({ tasks: { sciq: 1 }, rows: { sciq: ids.length }, shard }),
    "results.json": JSON.stringify({ device: "cpu", results }),
    "samples.jsonl": jsonLines(...ids.map((doc_id) => ({ task, doc_id, loglikelihood: [-1] }))),
    "scores.jsonl": jsonLines(...ids.map((doc_id) => ({ ...row, doc_id, metrics: { acc: 1 } }))),
    ...files,
  };
  for (const [name, text] of Object.entries(all)) Deno.writeTextFileSync(`${path}/${name}`, text);
}

const score = (doc_id: unknown, metrics: unknown) => ({ task: "sciq", doc_id, metrics });
const results = (fields: unknown) => ({ "results.json": JSON.stringify({ results: fields }) });
const config = (fields: object) => ({
  "config.json": JSON.stringify({ tasks: { sciq: 1 }, rows: { sciq: 2 }, shard: "2/2", ...fields }),
});

Deno.test("merge takes shards of one number of rows, and refuses others and damaged files", () =>
  withScratch(async (cwd) => {
    const first = `${cwd}/first`;
    writePart(first, 1, [0, 2, 4]);
    const good = { acc: [1, 0] };
    const bad = 'line 2 of "SECOND/scores.jsonl"';
    const cases: [message: string, ids: readonly number[], files?: Record<string, string>][] = [
      ['"first" has 3 of 7 rows of sciq, expected 4 in shard 1/2', [1, 3, 5, 7]],
      ['"first" has 3 of 4 rows of sciq, expected 2 in shard 1/2', [1]],
      ["found 1 rows of sciq, expected 2", [1, 3], { "scores.jsonl": jsonLines(score(1, good)) }],
      ["found 3 rows of sciq, expected 2", [1, 3], {
        "scores.jsonl": jsonLines(score(1, good), score(3, good), score(3, good)),
      }],
      ['samples.jsonl" is damaged: found 0 rows', [1, 3], { "samples.jsonl": "" }],
      ['results.json" is damaged: found 0 rows', [1, 3], results({ tasks: [] })],
      ...[
        ["null", "is not a JSON object: null"],
        ["{bad", "is not valid JSON: "],
        [score("3", good), 'has doc_id "3", expected an integer of at least 0'],
        [score(3, undefined), "has metrics nothing, expected an object of numbers"],
        [score(3, { acc: "x" }), 'has metrics {"acc":"x"}, expected an object of numbers'],
        [score(3, { acc: [null] }), 'has metrics {"acc":[null]}, expected'],
      ].map(([line, problem]): typeof cases[number] => [
        `${bad} ${problem}`,
        [1, 3],
        { "scores.jsonl": jsonLines(score(1, good), line) },
      ]),
      ['results.tasks[0] of "SECOND/results.json" is', [1, 3], results({ tasks: [null] })],
      ["has metrics nothing, expected a list", [1, 3], results({ tasks: [{ task: "sciq" }] })],
      ['results of "SECOND/results.json" has tasks 5', [1, 3], results({ tasks: 5 })],
      ["results.left_out[0] of", [1, 3], results({ tasks: [], left_out: [null] })],
      ['"SECOND/config.json" has tasks null, expected an object', [1, 3], config({ tasks: null })],
      ["expected an object of counts", [1, 3], config({ rows: { sciq: "2" } })],
      ["has shard 5, expected I/N or null", [1, 3], config({ shard: 5 })],
      ["is not a shard", [1, 3], config({ rows: undefined })],
    ];
    for (const [i, [message, ids, files]] of cases.entries()) {
      const second = `${cwd}/${i}`;
      writePart(second, 2, ids, files);
      const { message: found } = await assertRejects(() => mergeParts([first, second]), DataError);
      const expected = message.replace('"first', `"${first}`).replace("SECOND", second);
      assertStringIncludes(found, expected, `case ${i}`);
    }
    writePart(`${cwd}/second`, 2, [1, 3]);
    const { scores, identity } = await mergeParts([`${cwd}/second`, first]);
    assertEquals(scores.map(({ doc_id }) => doc_id), [0, 1, 2, 3, 4]);
    assertEquals([identity.rows, identity.shard], [{ sciq: 5 }, null]);
  }));
