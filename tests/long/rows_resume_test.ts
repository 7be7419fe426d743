/** `generate` and `score` with -o keep finished rows and continue with --resume. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { jsonLines, MODEL, names, parseLines, succeed } from "../cli/models.ts";
import { parscale, runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";

const PROMPTS = Array.from({ length: 30 }, (_, i) => ({ tokens: [1 + i % 7, 2 + i % 5, i % 11] }));

const GENERATE = `generate --model ${MODEL} in.jsonl --ignore-eos`;
const SAMPLES = `${GENERATE} --max-tokens 40 --temperature 0.9 --num-return 2 --seed 3 --batch 3`;
const BEAMS = `${GENERATE} --max-tokens 30 --num-beams 3`;
const SCORES = `score --model ${MODEL} rows.jsonl --batch 2`;

function lineCount(path: string): number {
  try {
    return Deno.readTextFileSync(path).split("\n").length - 1;
  } catch {
    return 0;
  }
}

/** Starts a command and sends a signal once `rows` rows are in its journal. */
async function stopped(line: string, cwd: string, rows: number, signal: Deno.Signal) {
  const child = parscale(line, { cwd, stdout: "null", stderr: "piped", stdin: "null" }).spawn();
  const stderr = new Response(child.stderr).text();
  let running = true;
  const status = child.status.finally(() => running = false);
  while (running && lineCount(`${cwd}/out.partial`) < rows + 1) {
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  if (running) child.kill(signal);
  return { code: (await status).code, stderr: await stderr };
}

async function withRows(body: (cwd: string) => Promise<void>): Promise<void> {
  await withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/in.jsonl`, jsonLines(...PROMPTS));
    const long = Array.from(
      { length: 300 },
      (_, i) => ({ tokens: Array.from({ length: 50 + i % 9 }, (_, j) => (i + j * j) % 60) }),
    );
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...long));
    await body(cwd);
  });
}

Deno.test("generate and score: interrupted, --resume gives the unbroken result byte for byte", () =>
  withRows(async (cwd) => {
    const lines = [
      `${SAMPLES} --jsonl`,
      `${BEAMS} --format=csv`,
      `${SCORES} --stream-weights --jsonl`,
      `${SCORES} --format=csv`,
    ];
    for (const line of lines) {
      const whole = await succeed(line, { cwd });
      const out = `${line} -o out`;
      const interrupted = await stopped(out, cwd, 12, "SIGINT");
      assertEquals(interrupted.code, 130, interrupted.stderr);
      const kept = lineCount(`${cwd}/out.partial`) - 1;
      assertStringIncludes(
        interrupted.stderr,
        `${kept} rows are in out.partial; run the same command with --resume to continue`,
      );
      assertEquals(names(cwd), ["in.jsonl", "out.partial", "rows.jsonl"]);
      // What a crash of the machine could leave.
      await Deno.writeTextFile(`${cwd}/out.partial`, '{"at":99,"inp', { append: true });
      const resumed = await runParscale(`${out} --resume`, { cwd });
      assertEquals([resumed.code, resumed.stdout], [0, ""]);
      assertStringIncludes(resumed.stderr, `resuming "out": ${kept} rows done\n`);
      assert(await Deno.readTextFile(`${cwd}/out`) === whole, line);
      await Deno.remove(`${cwd}/out`);
      await Deno.remove(`${cwd}/.out.resume`);
      assertEquals(names(cwd), ["in.jsonl", "rows.jsonl"]);
    }
  }));

Deno.test("a document of a resumed run has all rows, and failed ones still end with 1", () =>
  withRows(async (cwd) => {
    const bad = [...PROMPTS.slice(0, 4), { tokens: [] }, ...PROMPTS.slice(4)];
    await Deno.writeTextFile(`${cwd}/in.jsonl`, jsonLines(...bad));
    const whole = parseLines((await runParscale(`${SAMPLES} --jsonl`, { cwd })).stdout);
    const out = `${SAMPLES} --json -o out`;
    assertEquals((await stopped(out, cwd, 8, "SIGTERM")).code, 143);
    assertEquals((await runParscale(`${out} --resume`, { cwd })).code, 1);
    assertEquals(JSON.parse(await Deno.readTextFile(`${cwd}/out`)).results, whole);
  }));
