/** `parscale eval --tasks FILE`: benchmarks of the user's own. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { scored, sortedLines, TINY, withTasks } from "./eval_testing.ts";
import { assertRefusals, documentOf, jsonLines, names, parseLines, succeed } from "./models.ts";
import { runParscale } from "./run.ts";

const SUMS = jsonLines(
  { prompt: "Q: What is 12 * 12?\nA:", answer: "144" },
  { prompt: "Q: What is 2 + 2?\nA:", answer: 4 },
  { prompt: "Q: What is the capital of France?\nA:", answer: "Paris" },
);
const COLORS = jsonLines(
  { prompt: "The sky is", choices: ["blue", "green"], answer: 0 },
  { prompt: "Grass is", choices: ["blue", "green"], answer: "B" },
  { prompt: "Coal is", choices: ["white", "red", "black"], answer: "black" },
);
Deno.test("own answers are matched but for case, dollars, commas and a final period", () =>
  withTasks({ "sums.jsonl": SUMS }, async (cwd) => {
    const right = await scored(cwd, "sums.jsonl", [" 12 * 12 is\n#### $144.", "4", "paris."]);
    assertEquals(right, { exact_match: 1, flexible_extract: 1 });
    // The last number counts where the answer is one: two rows of three.
    const wordy = await scored(cwd, "sums.jsonl", ["It is 144.", "2 + 2 = 5", "It is Paris"]);
    assertEquals(wordy, { exact_match: 0, flexible_extract: 0.5 });
  }));

Deno.test("own choices give acc and acc_norm, by number, letter or text", () =>
  withTasks({ "my colors.json": `[${COLORS.trim().replaceAll("\n", ",")}]` }, async (cwd) => {
    const samples = [[-1, -2], [-9, -3], [-3, -2, -1]].map((loglikelihood, doc_id) => ({
      ...{ task: "my_colors", doc_id, loglikelihood },
    }));
    const line = ["eval", "--score", "-", "--tasks", "my colors.json", "--json"];
    const { code, stdout, stderr } = await runParscale(line, { cwd, stdin: jsonLines(...samples) });
    assertEquals(code, 0, stderr);
    const [{ task, metrics }] = JSON.parse(stdout).results.tasks;
    assertEquals([task, metrics.map((one: { value: number }) => one.value)], ["my_colors", [1, 1]]);
  }));

Deno.test("own tasks: limit, chat, resume, samples and compare are those of public ones", () =>
  withTasks({ "sums.jsonl": SUMS, "colors.jsonl": COLORS }, async (cwd) => {
    const line = `eval --model ${TINY} --tasks sums.jsonl,colors.jsonl --max-tokens 4`;
    const first = await documentOf(`${line} --limit 2 --out run`, { cwd });
    const tasks = first.results.tasks.map((one: { task: string; rows: number }) => one.rows);
    assertEquals(tasks, [2, 2]);
    const asked = sortedLines(`${cwd}/run/samples.jsonl`).map(({ task }) => task).join(" ");
    assertEquals(asked, "colors colors sums sums");
    const again = await runParscale(`${line} --limit 2 --out run`, { cwd });
    assertStringIncludes(again.stderr, '"run" is complete: 4 samples');
    Deno.writeTextFileSync(`${cwd}/sums.jsonl`, SUMS.replace("Paris", "Rome"));
    const changed = '"run" holds an evaluation that differs in data';
    await assertRefusals([[`${line} --limit 2 --out run`, 2, changed]], { cwd });

    const shown = await succeed(`eval show sums.jsonl --chat --model ${TINY}`, { cwd });
    assertStringIncludes(shown, "<|im_start|>user\nQ: What is 12 * 12?\nA:<|im_end|>");
    const plain = await succeed("eval show colors.jsonl", { cwd });
    assertStringIncludes(plain, 'The sky is\n--- continuation " blue"');

    const compared = `compare --model ${TINY} --beams 2 --max-tokens 2 --latency-rows 0`;
    await runParscale(`${compared} --tasks sums.jsonl --limit 1 --out table`, { cwd });
    assertEquals(names(`${cwd}/table`), ["beams-2", "p1"]);
  }));

Deno.test("answers that passed are rows that train takes, plain and of a chat", () =>
  withTasks({}, async (cwd) => {
    const prompts = ["Once upon", "Two and"].map((prompt) => ({ prompt, answer: "unknown" }));
    for (const [name, flags] of [["plain", "--num-beams 2"], ["chat", "--chat"]] as const) {
      const tasks = `${cwd}/${name}.jsonl`;
      const line = `eval --model ${TINY} --tasks ${tasks} ${flags} --max-tokens 6 --out`;
      Deno.writeTextFileSync(tasks, jsonLines(...prompts));
      const asked = await runParscale(`${line} ${name}-none --passing`, { cwd });
      assertStringIncludes(asked.stderr, `0 answers of 2 passed: ${name}-none/passing.jsonl`);
      const [{ text }] = sortedLines(`${cwd}/${name}-none/samples.jsonl`);
      // Now the first answer is the right one.
      Deno.writeTextFileSync(tasks, jsonLines({ ...prompts[0], answer: text }, prompts[1]));
      const first = await runParscale(`${line} ${name}`, { cwd });
      assertEquals([first.code, names(`${cwd}/${name}`).includes("passing.jsonl")], [0, false]);
      await runParscale(`${line} ${name} --passing`, { cwd });
      const rows = parseLines(Deno.readTextFileSync(`${cwd}/${name}/passing.jsonl`));
      const turn = (role: string, content: string) => ({ role, content });
      const messages = [turn("user", "Once upon"), turn("assistant", text)];
      const plain = { prompt: "Once upon", completion: text };
      assertEquals(rows, [name === "chat" ? { messages } : plain]);
      const train = `train --model ${TINY} --data ${name}/passing.jsonl --steps 1 --batch 1`;
      const run = await runParscale(`${train} --seq-len 64 --out ${name}-run`, { cwd });
      assertEquals(run.code, 0, run.stderr);
    }
  }));

Deno.test("a function that the prompt begins ends at the next one, any other program does not", () =>
  withTasks({}, async (cwd) => {
    const until = async (prompt: string) => {
      const row = { prompt, tests: "assert double(2) == 4", entry_point: "double" };
      Deno.writeTextFileSync(`${cwd}/programs.jsonl`, jsonLines(row));
      const shown = await succeed("eval show programs.jsonl", { cwd });
      return shown.split("\n").at(-2)!;
    };
    assertStringIncludes(await until('def double(x):\n    """Twice x."""'), '"\\ndef "');
    assert(!(await until("Write double(x), the double of x.")).includes('"\\ndef "'));
  }));
