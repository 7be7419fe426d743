/** `--shard` of `generate`, `score` and `eval`: parts put together are the single run, bit for bit. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { runParscale, type RunResult, wordsOf } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { assertFailed, assertRefused, jsonLines } from "../cli/models.ts";
import { comparable, EVAL, sortedLines } from "../cli/eval_testing.ts";

const MODEL = new URL("../../fixtures/models/qwen2-p2-tied-f32", import.meta.url).pathname;
const ENGINE = `--model ${MODEL} --threads 1`;

/** Rows of unequal length. */
const ROWS = jsonLines(
  ...Array.from({ length: 11 }, (_, i) => ({
    id: `row-${i}`,
    tokens: Array.from({ length: 3 + i * 3 % 7 }, (_, t) => 1 + (i * 41 + t * 7) % 380),
  })),
);

const TASK = (id: number, count: number) => ({
  SLURM_ARRAY_TASK_ID: `${id}`,
  SLURM_ARRAY_TASK_COUNT: `${count}`,
  SLURM_ARRAY_TASK_MIN: "1",
  SLURM_ARRAY_TASK_MAX: `${count}`,
  SLURM_ARRAY_TASK_STEP: "1",
});

function done({ code, stderr }: RunResult): void {
  assertEquals([code, stderr], [0, ""]);
}

const COMMANDS = {
  score: `score rows.jsonl ${ENGINE} --batch 2`,
  generate: `generate rows.jsonl ${ENGINE} --max-tokens 5 --temperature 1 --num-return 2 --seed 3`,
};

for (const [name, line] of Object.entries(COMMANDS)) {
  Deno.test(`${name}: parts of ranks and of an array merge into the single run, bit for bit`, () =>
    withScratch(async (cwd) => {
      await Deno.writeTextFile(`${cwd}/rows.jsonl`, ROWS);
      done(await runParscale(`${line} --jsonl -o single.jsonl`, { cwd }));
      const single = await Deno.readTextFile(`${cwd}/single.jsonl`);
      assertEquals(single.split("\n").length, 12);
      const { stdout: csv } = await runParscale(`${line} --format csv`, { cwd });
      for (const count of [2, 3]) {
        const paths: string[] = [];
        for (let part = 1; part <= count; part++) {
          const env = count === 2
            ? TASK(part, count)
            : { PMI_RANK: `${part - 1}`, PMI_SIZE: `${count}` };
          const out = `--shard auto --json -o of${count}.json`;
          done(await runParscale(`${line} ${out}`, { cwd, env }));
          paths.unshift(`of${count}-${part}.json`);
        }
        const merged = await runParscale(`merge ${paths.join(" ")} --jsonl`, { cwd });
        done(merged);
        assertEquals(merged.stdout, single);
        const { stdout } = await runParscale(`merge ${paths.join(" ")} --format csv`, { cwd });
        assertEquals(stdout, csv);
        const document = await runParscale(`merge ${paths.join(" ")} --json`, { cwd });
        const { command, config, schema } = JSON.parse(document.stdout);
        assertEquals([command, config.shard, schema], [name, null, `parscale.${name}/1`]);
      }
    }));
}

Deno.test("merge refuses parts that are missing, double or of other runs", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, ROWS);
    for (const shard of ["1/3", "2/3", "3/3"]) {
      const out = `--shard ${shard} --json -o p${shard[0]}.json`;
      done(await runParscale(`${COMMANDS.score} ${out}`, { cwd }));
    }
    const other = `${COMMANDS.score} --shard 2/3 --batch 1 --json -o other.json`;
    done(await runParscale(other, { cwd }));
    done(await runParscale(`${COMMANDS.score} --json -o whole.json`, { cwd }));
    const short = JSON.parse(await Deno.readTextFile(`${cwd}/p1.json`));
    short.results.pop();
    await Deno.writeTextFile(`${cwd}/short.json`, JSON.stringify(short));
    const refusals = [
      ["p1.json p3.json", "of 3 parts these are missing: 2", "--shard 2/3"],
      ["p1.json p2.json p2.json p3.json", 'part 2 is there twice: "p2.json"', ""],
      ["p1.json other.json p3.json", "are parts of different runs", ""],
      ["short.json p2.json p3.json", "rows, too few for its part", ""],
      ["whole.json", '"whole.json" is not a part', ""],
      ["p1.json p2.json foreign.json", "are parts of different runs", "input"],
      ["p1.json p2.json numbers.json", '"numbers.json" is damaged', ""],
      ["p1.json p2.json named.json", '"named.json" is damaged', ""],
      ["p1.json p2.json batch.json", '"batch.json" is damaged', ""],
    ];
    const third = JSON.parse(await Deno.readTextFile(`${cwd}/p3.json`));
    const { config } = third;
    const changed = {
      foreign: { ...third, input_sha256: "0" },
      numbers: { ...third, results: [1] },
      named: { ...third, config: { ...config, shard: "a" } },
      batch: { ...third, config: { ...config, batch: -1 } },
      failed: { ...third, results: third.results.with(0, { id: "row-4", error: "too long" }) },
      limited: { ...third, config: { ...config, memory_limit: 8e9 } },
    };
    for (const [name, document] of Object.entries(changed)) {
      await Deno.writeTextFile(`${cwd}/${name}.json`, JSON.stringify(document));
    }
    for (const [files, message, hint] of refusals) {
      assertFailed(await runParscale(`merge ${files}`, { cwd }), 3, message!, hint!);
    }
    assertEquals((await runParscale("merge", { cwd })).code, 2);
    assertFailed(await runParscale("merge -", { cwd }), 2, "`merge` reads files, not stdin");
    const merge = "merge p1.json p2.json";
    assertEquals((await runParscale(`${merge} limited.json`, { cwd })).code, 0);
    const { code, stdout } = await runParscale(`${merge} failed.json --format csv`, { cwd });
    assertEquals(code, 1);
    assertStringIncludes(stdout, "\nrow-4,,,too long\n");
  }));

Deno.test("a part without rows is not told that the input has none", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, ROWS.slice(0, ROWS.indexOf("\n") + 1));
    done(await runParscale(`${COMMANDS.generate} --shard 2/2 --json -o none.json`, { cwd }));
  }));

Deno.test("--shard auto needs a launcher, an output and a file", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, ROWS);
    const auto = `${COMMANDS.score} --shard auto`, out = "--json -o x.json";
    const cases = [
      [`${auto} ${out}`, {}, "`--shard auto` needs a job array or a launcher"],
      [auto, TASK(1, 2), "`--shard auto` needs `--out`"],
      [`${auto.replace(" rows.jsonl", "")} ${out}`, TASK(1, 2), "`--shard` needs FILE"],
    ] as const;
    for (const [line, env, message] of cases) {
      assertFailed(await runParscale(line, { cwd, env, stdin: "" }), 2, message);
    }
  }));

Deno.test("eval: folders of --shard auto merge into the single run", () =>
  withScratch(async (cwd) => {
    const line = [...EVAL, ...wordsOf("--tasks gsm8k --limit 5 --max-tokens 16 -q --out")];
    const run = (out: string, env = {}) => runParscale([...line, ...wordsOf(out)], { cwd, env });
    assertEquals((await run("single")).code, 0);
    for (const part of [2, 1]) {
      assertEquals((await run("part --shard auto", TASK(part, 2))).code, 0);
    }
    assert(!(await Deno.stat(`${cwd}/part`).catch(() => undefined)));
    const incomplete = await runParscale("eval merge part-2 --out all", { cwd });
    assertRefused(incomplete, 3, "the shards are incomplete: found 2/2, expected 1/2 to 2/2");
    assertEquals((await runParscale("eval merge part-1 part-2 --out all", { cwd })).code, 0);
    assertEquals(comparable(`${cwd}/all`), comparable(`${cwd}/single`));
    const samples = ["all", "single"].map((name) => sortedLines(`${cwd}/${name}/samples.jsonl`));
    assertEquals(samples[0], samples[1]);
  }));
