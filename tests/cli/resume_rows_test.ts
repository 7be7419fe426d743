/** `--resume` of commands that write rows: interrupted runs, and results that are there. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { jsonLines, MODEL, MODEL4, names } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { captureIo } from "../unit/cli/capture_io.ts";
import { main } from "../../cli/main.ts";

const FEW = `generate --model ${MODEL} --max-tokens 4`;

Deno.test("a run whose JSON schema was edited is not resumed", () =>
  withScratch(async (cwd) => {
    const rows = jsonLines({ prompt: "a" }, "broken");
    const line = `${FEW} --json-schema schema.json --batch 1 --jsonl -o out.jsonl`;
    const run = async (value: number, flags: string) => {
      await Deno.writeTextFile(`${cwd}/schema.json`, `{"const": ${value}}`);
      return await runParscale(`${line} ${flags}`, { cwd, stdin: rows });
    };
    assertEquals((await run(1, "")).code, 3);
    const other = await run(2, "--resume");
    assertEquals(other.code, 2);
    assertStringIncludes(other.stderr, "belongs to a run that differs in json-schema");
  }));

Deno.test("--resume knows a result of the same command, and refuses every other file of its name", () =>
  withScratch(async (cwd) => {
    const rows = jsonLines({ id: 0, prompt: "a" }, { id: 1, prompt: "b" });
    await Deno.writeTextFile(`${cwd}/in.jsonl`, rows);
    const text = (path: string) => Deno.readTextFileSync(`${cwd}/${path}`);
    const lines = [
      `${FEW} in.jsonl --jsonl`,
      `${FEW} in.jsonl --json`,
      `${FEW} --prompt a`,
      `score --model ${MODEL} rows.jsonl --format=csv`,
    ];
    const scored = jsonLines({ text: "a b" }, { text: "b c" });
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, scored);
    const run = (line: string) => runParscale(`${line} --resume -o out`, { cwd });
    const refused = async (line: string, problem: string) => {
      const before = text("out");
      const hint = "pass --overwrite to replace it, or another -o";
      const { code, stderr } = await run(line);
      assertEquals([code, stderr.includes(problem)], [2, true], `${line}: ${stderr}`);
      assertStringIncludes(stderr, hint);
      assertEquals(text("out"), before);
    };
    for (const line of lines) {
      assertEquals((await run(line)).code, 0);
      const first = text("out");
      const again = await run(`${line} --threads 1`);
      assertEquals([again.code, text("out")], [0, first], again.stderr);
      assertStringIncludes(again.stderr, '"out" is complete\n');
      const other = line.startsWith("score") ? "--echo" : "--max-tokens 3";
      const differs = `belongs to a run that differs in ${other.slice(2).split(" ")[0]}`;
      await refused(line.replace(" --max-tokens 4", "") + ` ${other}`, differs);
      await refused(line.replace(MODEL, MODEL4), "belongs to a run that differs in model");
      await refused(
        `${line.replace(/ --(json|format).*/, "")} --format=md`,
        "belongs to a run that differs in format",
      );
      await Deno.writeTextFile(`${cwd}/out`, first.slice(0, -9));
      await refused(line, "has changed since it was written");
      await Deno.writeTextFile(`${cwd}/out`, first);
      for (const [name, content] of [["in.jsonl", rows], ["rows.jsonl", scored]] as const) {
        if (!line.includes(` ${name} `)) continue;
        for (const edited of [content.replace("b", "z"), content.split("\n")[0]!]) {
          await Deno.writeTextFile(`${cwd}/${name}`, edited);
          await refused(line, "answers another input");
        }
        await Deno.writeTextFile(`${cwd}/${name}`, content);
      }
      assertEquals((await runParscale(`${line} --overwrite -o out`, { cwd })).code, 0);
      assertEquals(names(cwd), ["in.jsonl", "out", "rows.jsonl"], "the record goes");
      await refused(line, "was not written by this command with --resume");
      await Deno.remove(`${cwd}/out`);
    }
  }));

Deno.test("progress counts the rows of the shard, and in its rate only those of this run", () =>
  withScratch(async (cwd) => {
    const run = async (last: unknown, flags: string) => {
      const rows = [0, 1, 2, 3, 4].map((id) => ({ tokens: [id] }));
      await Deno.writeTextFile(`${cwd}/in.jsonl`, jsonLines(...rows, last));
      let ms = 0;
      const { io, stderr } = captureIo({ now: () => ms += 20_000 });
      const line = `${FEW} ${cwd}/in.jsonl --batch 1 -o ${cwd}/${flags}`;
      return { code: await main(line.split(" "), io), stderr: stderr() };
    };
    const { stderr } = await run({ tokens: [5] }, "shard --json --shard 1/2");
    assertStringIncludes(stderr, "Generating: 1/3 rows,");
    assertStringIncludes(stderr, "Generating: 3 rows in");
    assertEquals((await run("broken", "whole --jsonl")).code, 3);
    const resumed = await run({ tokens: [5] }, "whole --jsonl --resume");
    assertStringIncludes(resumed.stderr, "Generating: 6 rows,");
    assertStringIncludes(resumed.stderr, "Generating: 1 row in");
  }));
