/** `parscale plot` as a black box: figure, table, rows, SVG, chained runs, misuse, bad data, pipes. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { assertFailed, assertRefusals, jsonLines, parseLines, succeed } from "./models.ts";
import { assertFigure } from "./figures.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { ROWS, withWorkplace } from "./train_testing.ts";

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
    const stdout = await succeed(["plot", "a", "b", "--ema", "0"], { cwd });
    const lines = stdout.split("\n");
    assertEquals(lines[0], "loss (nats per token)");
    assertStringIncludes(
      stdout,
      "A a, training  B a, validation  C b, training  D b, validation\n",
    );
    assert(lines.some((line) => /^b +eval +1 +4000 +2\.525 +- +2\.525 +4000$/.test(line)), stdout);
    assert(!stdout.includes("\x1b"));
  }));

Deno.test("rows have all points: smoothed training loss, validation loss as it is", () =>
  inFolder(async (cwd) => {
    const rows = async (...args: string[]) => {
      const stdout = await succeed(["plot", ...args, "--jsonl"], { cwd });
      return parseLines(stdout);
    };
    const [train, evaluated] = await rows("a", "--x", "steps", "--ema", "0.5");
    assertEquals([train.label, train.measure, train.unit, train.runs], ["a", "train", "steps", 1]);
    assertEquals([train.x.length, train.x[39], train.low], [40, 40, null]);
    assertEquals(train.loss.slice(0, 2), [2, 1.75]);
    assertEquals([evaluated.x, evaluated.loss[0]], [[10, 20, 30, 40], 1.6]);
    const [seeds, ...rest] = await rows(
      "a",
      "b",
      "--label",
      "P=1,P=1",
      "--ema",
      "0",
      "--measure",
      "train",
    );
    assertEquals([rest.length, seeds.label, seeds.runs], [0, "P=1", 2]);
    assertEquals([seeds.x[0], seeds.loss[0], seeds.low[0], seeds.high[0]], [100, 2.5, 2, 3]);
    assertAlmostEquals(seeds.spread, 1, 1e-9);
    const json = await runParscale(["plot", "a/metrics.jsonl", "--json"], { cwd });
    const document = JSON.parse(json.stdout);
    assertEquals([document.schema, document.results[0].label], ["parscale.plot/1", "a"]);
  }));

Deno.test("--chain puts a run where the one it was trained from ends, or its checkpoint", () =>
  inFolder(async (cwd) => {
    const { stdout } = await runParscale(
      ["plot", "d", "a", "c", "--chain", "--measure", "train", "--jsonl"],
      { cwd },
    );
    const spans = parseLines(stdout).map(({ label, x }) => [label, x[0], x.at(-1)]);
    assertEquals(spans, [["d", 5100, 7000], ["a", 100, 4000], ["c", 4100, 6000]]);
    const alone = await runParscale(["plot", "a", "--chain"], { cwd });
    assertEquals([alone.code, alone.stdout], [2, ""]);
    assertStringIncludes(alone.stderr, "`--chain` needs a run that was trained from another one");
  }));

Deno.test("the SVG file is whole and never overwritten unasked", () =>
  inFolder(async (cwd) => {
    const args = ["plot", "a", "b", "--svg", "loss.svg", "--title", "Two runs", "--log", "x,y"];
    const first = await runParscale([...args, "--label", "P=1,P=1"], { cwd });
    assertEquals([first.code, first.stderr], [0, "wrote loss.svg\n"]);
    const svg = Deno.readTextFileSync(`${cwd}/loss.svg`);
    const axes = ["training (tokens)", "loss (nats per token)"];
    assertFigure(svg, "Two runs", axes);
    for (const text of [">P=1, validation<", 'roledescription="area mark"']) {
      assertStringIncludes(svg, text);
    }
    await Deno.writeTextFile(`${cwd}/one.jsonl`, jsonLines({ step: 1, tokens: 9, loss: 2 }));
    const one = await runParscale(["plot", "one.jsonl", "--svg", "one.svg"], { cwd });
    assertEquals([one.code, one.stderr], [0, "wrote one.svg\n"]);
    const point = Deno.readTextFileSync(`${cwd}/one.svg`);
    assertFigure(point, "Loss over tokens", axes);
    assertEquals(point.match(/aria-roledescription="(point|circle)"/g)?.length, 1);
    assertFailed(await runParscale(args, { cwd }), 2, "hint: pass --overwrite");
    const failed = await runParscale(["plot", "none", "--svg", "new.svg"], { cwd });
    assertEquals(failed.code, 3);
    assertEquals([...Deno.readDirSync(cwd)].filter(({ name }) => name.includes("new")), []);
  }));

Deno.test("what makes no sense is refused with a way out, and bad data by file and line", () =>
  inFolder(async (cwd) => {
    Deno.mkdirSync(`${cwd}/empty`);
    const write = (name: string, text: string) => Deno.writeTextFileSync(`${cwd}/${name}`, text);
    write("broken.jsonl", '{"step":1,"tokens":1,"loss":2}\nloss 3\n{"step":3}\n');
    write("text.jsonl", '{"step":1,"tokens":1,"loss":"2"}\n');
    write("other.jsonl", '{"step":1,"tokens":1}\n');
    write("none.jsonl", "");
    write("plain.jsonl", '{"step":1,"tokens":1,"loss":2}\n');
    await assertRefusals([
      ["plot", 2, "error: `plot` needs at least one run", "hint: pass folders of `parscale train`"],
      ["plot a a", 2, 'error: "a" is given twice'],
      [
        "plot a b --label x",
        2,
        "error: `--label` has 1 names for 2 runs",
        "hint: give one name per run",
      ],
      ["plot a --ema 1", 2, 'error: invalid value "1" for `--ema`'],
      ["plot a --svg -", 2, "error: `--svg` needs a file name", "hint: for instance"],
      ["plot a --title x", 2, "error: `--title` needs `--svg`"],
      [
        "plot plain.jsonl --measure eval",
        2,
        "error: `--measure eval` needs runs with a validation",
        "hint: train with",
      ],
      ["plot nope", 3, 'error: no such file or folder: "nope"', "hint: pass a folder"],
      [
        "plot empty",
        3,
        'error: no such file: "empty/metrics.jsonl"',
        "hint: pass a folder written by",
      ],
      ["plot none.jsonl", 3, 'error: "none.jsonl" has no steps yet'],
      ["plot broken.jsonl", 3, 'error: line 2 of "broken.jsonl" is not valid JSON'],
      ["plot text.jsonl", 3, 'error: line 1 of "text.jsonl" has loss "2", expected a number'],
      ["plot other.jsonl", 3, 'error: "other.jsonl" has no field "loss"'],
    ], { cwd });
  }));

Deno.test("a run that is being written is drawn up to its last whole line", () =>
  inFolder(async (cwd) => {
    const path = `${cwd}/a/metrics.jsonl`;
    Deno.writeTextFileSync(path, '{"step":41,"tokens":4100,"lo', { append: true });
    const { code, stdout } = await runParscale(["plot", "a", "--jsonl"], { cwd });
    assertEquals([code, parseLines(stdout)[0].last_x], [0, 4000]);
  }));

Deno.test("what train has written is what is drawn", () =>
  withWorkplace(async (place) => {
    await place.trained(
      `--model p2 ${ROWS} --eval-data rows.jsonl --eval-every 2 --steps 4 --out run`,
    );
    const { stdout } = await place.run("plot run --ema 0 --jsonl");
    const [train, evaluated] = parseLines(stdout);
    const rows = place.metrics("run");
    assertEquals(train.loss, rows.map(({ loss }) => loss));
    assertEquals(train.x, rows.map(({ tokens }) => tokens));
    assertEquals(evaluated.loss, rows.flatMap(({ eval_loss }) => eval_loss ?? []));
    assertEquals(evaluated.loss.length, 2);
  }));
