/** `parscale plot` as a black box: figure, table, rows, SVG, chained runs. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { assertFailed, documentOf, jsonLines, rowsOf, succeed } from "./models.ts";
import { assertFigure } from "./figures.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

/** Writes a run whose loss falls from `from` by 1 / step, with a validation loss at every tenth step. */
function writeRun(path: string, from: number, options: { steps?: number; model?: string } = {}) {
  const { steps = 40, model } = options;
  Deno.mkdirSync(path);
  const rows = Array.from({ length: steps }, (_, i) => {
    const step = i + 1, loss = from + 1 / step;
    return { step, tokens: 100 * step, loss, eval_loss: step % 10 === 0 ? loss + 0.5 : null };
  });
  Deno.writeTextFileSync(`${path}/metrics.jsonl`, jsonLines(...rows));
  const folder = path.slice(0, path.lastIndexOf("/"));
  const config = { folder, config: model === undefined ? {} : { model } };
  Deno.writeTextFileSync(`${path}/config.json`, JSON.stringify(config));
}

async function inFolder(body: (cwd: string) => Promise<void>): Promise<void> {
  await withScratch(async (cwd) => {
    writeRun(`${cwd}/a`, 1);
    writeRun(`${cwd}/b`, 2);
    writeRun(`${cwd}/c`, 3, { steps: 20, model: "a" });
    writeRun(`${cwd}/d`, 3, { steps: 20, model: "c/checkpoint-000010" });
    await body(cwd);
  });
}

Deno.test("a chart with letters, and a table of where each curve ends", () =>
  inFolder(async (cwd) => {
    const stdout = await succeed("plot a b --ema 0", { cwd });
    const lines = stdout.split("\n");
    assertEquals(lines[0], "loss (nats per token)");
    const legend = "A a, training  B a, validation  C b, training  D b, validation\n";
    assertStringIncludes(stdout, legend);
    assert(lines.some((line) => /^b +eval +4000 +2\.525 +2\.525 +4000$/.test(line)), stdout);
    assert(!stdout.includes("\x1b"));
  }));

Deno.test("rows have all points: smoothed training loss, validation loss as it is", () =>
  inFolder(async (cwd) => {
    const [train, evaluated] = await rowsOf("plot a --x steps --ema 0.5", { cwd });
    assertEquals([train.label, train.measure, train.unit], ["a", "train", "steps"]);
    assertEquals([train.x.length, train.x[39]], [40, 40]);
    const second = (0.5 * 2 + 1.5) / 1.5;
    assertEquals(train.loss[0], 2);
    assertAlmostEquals(train.loss[1], second, 1e-12);
    assertEquals([evaluated.x, evaluated.loss[0]], [[10, 20, 30, 40], 1.6]);
    const { schema, results } = await documentOf("plot a/metrics.jsonl", { cwd });
    assertEquals([schema, results[0].label], ["parscale.plot/1", "a"]);
  }));

Deno.test("the last loss is that of the last step; the smoothed one stands beside it, and is named", () =>
  inFolder(async (cwd) => {
    const losses = [2.5, 2.6, 2.4, 4.9];
    const rows = losses.map((loss, i) => ({ step: i + 1, tokens: i + 1, loss }));
    await Deno.writeTextFile(`${cwd}/up.jsonl`, jsonLines(...rows));
    const decays = losses.map((_, i) => 0.95 ** (losses.length - 1 - i));
    const total = decays.reduce((sum, weight) => sum + weight);
    const smoothed = losses.reduce((sum, loss, i) => sum + loss * decays[i]!, 0) / total;
    const [curve] = await rowsOf("plot up.jsonl --measure train", { cwd });
    assertEquals([curve.last_loss, curve.ema], [4.9, 0.95]);
    assertAlmostEquals(curve.last_smoothed, smoothed, 1e-12);
    const table = await succeed("plot up.jsonl --measure train", { cwd });
    assertStringIncludes(table, "loss, smoothed 0.95 (nats per token)");
    assert(/last loss +smoothed 0\.95/.test(table), table);
    assert(/ 4\.9 +3\.146 /.test(table), table);
    assert(!(await succeed("plot up.jsonl --ema 0", { cwd })).includes("smoothed"));
  }));

Deno.test("folders of one name are curves of their own, named by their paths", () =>
  inFolder(async (cwd) => {
    for (const run of ["a", "b"]) {
      Deno.mkdirSync(`${cwd}/of-${run}`);
      Deno.renameSync(`${cwd}/${run}`, `${cwd}/of-${run}/run`);
    }
    const rows = await rowsOf("plot of-a/run of-b/run c --measure train", { cwd });
    assertEquals(rows.map(({ label }) => label), ["of-a/run", "of-b/run", "c"]);
  }));

Deno.test("validation loss is drawn of a file that has no other", () =>
  inFolder(async (cwd) => {
    const rows = [1, 2].map((step) => ({ step, tokens: step, eval_loss: 3 - step }));
    await Deno.writeTextFile(`${cwd}/only.jsonl`, jsonLines(...rows));
    const [curve] = await rowsOf("plot only.jsonl --measure eval", { cwd });
    assertEquals(curve.loss, [2, 1]);
  }));

Deno.test("--chain puts a run where the one it was trained from ends, or its checkpoint", () =>
  inFolder(async (cwd) => {
    const rows = await rowsOf("plot d a c --chain --measure train", { cwd });
    const spans = rows.map(({ label, x }) => [label, x[0], x.at(-1)]);
    assertEquals(spans, [["d", 5100, 7000], ["a", 100, 4000], ["c", 4100, 6000]]);
  }));

Deno.test("the SVG file is whole and never overwritten unasked", () =>
  inFolder(async (cwd) => {
    const draw = "plot a b --svg loss.svg --title 'Two runs' --log x,y";
    const first = await runParscale(`${draw} --label P=1,P=4`, { cwd });
    assertEquals([first.code, first.stderr], [0, "wrote loss.svg\n"]);
    const svg = Deno.readTextFileSync(`${cwd}/loss.svg`);
    const axes = ["training (tokens)", "loss, smoothed 0.95 (nats per token)"];
    assertFigure(svg, "Two runs", axes);
    assertStringIncludes(svg, ">P=1, validation<");
    await Deno.writeTextFile(`${cwd}/one.jsonl`, jsonLines({ step: 1, tokens: 9, loss: 2 }));
    const one = await runParscale("plot one.jsonl --svg one.svg", { cwd });
    assertEquals([one.code, one.stderr], [0, "wrote one.svg\n"]);
    const point = Deno.readTextFileSync(`${cwd}/one.svg`);
    assertFigure(point, "Loss over tokens", axes);
    assertEquals(point.match(/aria-roledescription="(point|circle)"/g)?.length, 1);
    assertFailed(await runParscale(draw, { cwd }), 2, "hint: pass --overwrite");
  }));

Deno.test({
  name: "figure and result may have the same device",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (cwd) => {
      const { code, stderr } = await runParscale("plot a --svg /dev/null -o /dev/null", { cwd });
      assertEquals([code, stderr], [0, "wrote /dev/null\n"]);
    }),
});

Deno.test("a run that is being written is drawn up to its last whole line", () =>
  inFolder(async (cwd) => {
    const path = `${cwd}/a/metrics.jsonl`;
    Deno.writeTextFileSync(path, '{"step":41,"tokens":4100,"lo', { append: true });
    assertEquals((await rowsOf("plot a", { cwd }))[0].last_x, 4000);
  }));
