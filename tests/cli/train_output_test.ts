/** Output of `parscale train`. */
import {
  assert,
  assertAlmostEquals,
  assertEquals,
  assertMatch,
  assertStringIncludes,
} from "@std/assert";
import { assertFailed, copyFolder, NO_TOKENIZER, parseLines, PLAIN_MODEL } from "./models.ts";
import { runShell } from "./run.ts";
import { ROWS, withWorkplace } from "./train_testing.ts";

const TIMES = ["tokens_per_s", "step_s", "data_wait"];

Deno.test("--dry-run of many files names the first and their size, and pads no row for them", () =>
  withWorkplace(async (place) => {
    const names = Array.from({ length: 30 }, (_, i) => `text-${i}.jsonl`);
    for (const name of names) place.write(name, place.read("texts.jsonl"));
    const line = `--model p2 --data ${names.join(" ")} --seq-len 24 --steps 3 --out run --dry-run`;
    const { stdout } = await place.train(line);
    assertMatch(stdout, /\ndata: text-0\.jsonl and 29 more, [\d.]+ [KMG]?B, /);
    assertMatch(stdout, /\n--data +text-0\.jsonl and 29 more +flag\n/);
    assert(stdout.split("\n").every((line) => line.length < 200 || line.startsWith("  slots")));
    const { config } = JSON.parse((await place.train(`${line} --json`)).stdout);
    assertEquals(config.data, names);
  }));

Deno.test("--dry-run plans the run and touches nothing; its JSON is a config that repeats it", () =>
  withWorkplace(async (place) => {
    const line = "--model p2 --data texts.jsonl --seq-len 24 --batch 4 --micro-batch 2 --steps 3";
    const text = await place.train(`${line} --no-shuffle --out run --dry-run`);
    assertEquals([text.code, text.stderr, place.exists("run")], [0, "", false]);
    const plan = text.stdout.slice(0, text.stdout.indexOf("\n\n"));
    const lines = plan.split("\n").map((line) => line.split(":")[0]);
    assertEquals(lines.slice(0, 5), ["model", "trained parameters", "steps", "data", "memory"]);
    assertStringIncludes(plan, "model: p2, qwen2, 2 streams of 8 prefix tokens\n");
    assertMatch(plan, /\ntime: about \d+s, from one step of \d\.\d\d s\n/);
    assert(!text.stdout.includes("--adam-epsilon"));
    const all = await place.train(`${line} --out run --dry-run -v`);
    assertStringIncludes(all.stdout, "--adam-epsilon");
    assertStringIncludes(plan, "trained parameters: 105,218 of 105,218 in 34 tensors\n");
    assertStringIncludes(plan, "steps: 3, each 4 rows of 24 tokens, 96 tokens a step in 2 micro-");
    const bytes = (what: string) =>
      Number(new RegExp(`^ {2}${what} [\\d.]+ \\wB \\((\\d+) bytes\\)$`, "m").exec(plan)![1]);
    assertEquals(bytes("parameters"), 4 * 105218);
    assertEquals([bytes("gradients"), bytes("moments")], [4 * 105218, 8 * 105218]);
    assert(bytes("activations") > 0);
    assert(bytes("runtime") > bytes("activations") / 32);
    const row = plan.slice(plan.indexOf("first row:")).trim().split("\n").slice(1);
    const first = JSON.parse(place.read("texts.jsonl").split("\n")[0]!).text;
    assertMatch(row[0]!, /^ {2}tokens 0 to \d+: "/);
    assert(row.length > 1, "several documents in a row");
    assert(row.some((part) => part.includes(`${first}<|endoftext|>`)), row.join("\n"));
    let next = 0;
    for (const part of row) {
      const [, start, end] = /tokens (\d+) to (\d+)/.exec(part)!;
      assertEquals(Number(start), next, "documents lie end to end");
      next = Number(end) + 1;
    }
    assert(next <= 24);

    const json = await place.train(`${line} --out run --dry-run --json`);
    const { schema, results } = JSON.parse(json.stdout);
    assertEquals(schema, "parscale.plan/2");
    const parts = ["parameter", "gradient", "moment", "activation", "runtime"]
      .map((part): number => results[`${part}_bytes`]);
    assertEquals(results.memory_bytes, parts.reduce((sum, part) => sum + part, 0));
    assertEquals(place.exists("run"), false);
    place.write("plan.json", json.stdout);
    await place.trained(`${line} --out direct`);
    for (const [line, out] of [["plan.json", "run"], ["run/config.json --out again", "again"]]) {
      const { code, stderr } = await place.train(`--config ${line}`);
      assertEquals(code, 0, stderr);
      assertEquals(place.steady(out!), place.steady("direct"));
    }

    const refused = await place.train("--resume --out run --dry-run");
    assertFailed(refused, 2);
    const [, advised] = /`parscale train (.*)`/.exec(refused.stderr)!;
    assertEquals((await place.train(advised!)).code, 0);
    assertEquals(place.exists("new"), false);
  }));

Deno.test("a dry run of adapters counts only what learns; rows of ids need no tokenizer", () =>
  withWorkplace(async (place) => {
    await copyFolder(PLAIN_MODEL, `${place.cwd}/bare`, NO_TOKENIZER);
    const adapter = `--model bare --streams 2 --train-params introduced ${ROWS} --no-shuffle`;
    const { code, stdout } = await place.train(
      `${adapter} --steps 3 --eval-data rows.jsonl --out run --dry-run`,
    );
    assertEquals(code, 0);
    // Two layers of 2 · 2 · 2 · 48 · 16 prefix elements, and an aggregator of 64 · 128 + 64 + 130.
    assertStringIncludes(stdout, "trained parameters: 20,674 of 115,458 in 8 tensors\n");
    const data = "\ndata: rows.jsonl, 20 rows an epoch, the first batch 100% full\n";
    assertStringIncludes(stdout, `${data}validation: 20 rows, 320 tokens\n`);
    const [row] = place.read("rows.jsonl").split("\n");
    assertStringIncludes(stdout, `\n  tokens 0 to 15: "${JSON.parse(row!).tokens.join(" ")}"\n`);
    await place.trained(`--model bare ${ROWS} --steps 1 --out rows`);
  }));

Deno.test("--jsonl prints the lines of metrics.jsonl, --json one document, a table by default", () =>
  withWorkplace(async (place) => {
    const line = `--model p2 ${ROWS} --eval-data rows.jsonl --steps 3`;
    const printed = async (flags: string) => {
      const { code, stdout, stderr } = await place.train(`${line} -q --out ${flags}`);
      assertEquals([code, stderr], [0, ""]);
      return stdout;
    };
    const lines = await printed("lines --jsonl");
    assertEquals(lines, place.read("lines/metrics.jsonl"));
    const rows = parseLines(lines);
    const keys = "step tokens loss loss_ema grad_norm clip_scale lr lr_prefix lr_aggregator " +
      "tokens_per_s step_s data_wait eval_loss stream_weights eval_stream_weights world";
    for (const row of rows) {
      assertEquals(Object.keys(row), keys.split(" "));
      for (const key of TIMES) assert(row[key] >= 0 || row.step === 0);
    }
    const { schema, command, seed, device, results } = JSON.parse(await printed("document --json"));
    assertEquals([schema, command, seed, device], ["parscale.train/1", "train", 0, "cpu"]);
    assertEquals(results.checkpoint, "document/checkpoint-000003");
    assertEquals(rows.map(({ step, tokens }) => [step, tokens]), [[0, 0], [1, 64], [2, 128], [
      3,
      192,
    ]]);
    assertEquals([rows[0].loss, typeof rows[0].eval_loss], [null, "number"]);
    assertEquals([results.steps, results.tokens, results.loss], [3, 192, rows[3].loss]);
    assertEquals([results.eval_loss_before, results.eval_loss], [
      rows[0].eval_loss,
      rows[3].eval_loss,
    ]);
    assertMatch(await printed("table"), /^checkpoint +table\/checkpoint-000003$/m);
    assertAlmostEquals(rows[2].loss_ema, (0.95 * rows[1].loss + rows[2].loss) / 1.95, 1e-9);
  }));

Deno.test("a run that diverges shows the loss of its step, and is warned of once several are high", () =>
  withWorkplace(async (place) => {
    const line =
      `--model p2 ${ROWS} --steps 16 --schedule constant --warmup 12 --clip 0 --log-every 1`;
    const { code, stderr } = await place.train(`${line} --lr 3 --out up`);
    assertEquals(code, 0);
    const rows = parseLines(place.read("up/metrics.jsonl"));
    const meanAt = (step: number) =>
      rows.slice(step - 5, step).reduce((sum, { loss }) => sum + loss, 0) / 5;
    const at = rows.findIndex((_, i) => i >= 4 && meanAt(i + 1) > 1.5 * meanAt(5));
    assert(at > 0, "the run diverges");
    const lines = stderr.split("\n");
    for (const { step, loss, loss_ema } of rows) {
      const shown = `step ${step}/16, loss ${loss.toFixed(4)}, smoothed ${loss_ema.toFixed(4)}, `;
      assert(lines.some((line) => line.startsWith(shown)), shown);
    }
    const warning = lines.findIndex((line) => line.includes("where the run began with"));
    const [loss, first] = [meanAt(at + 1).toFixed(4), meanAt(5).toFixed(4)];
    const said = `steps is ${loss} at step ${at + 1}, where the run began with ${first}`;
    assertStringIncludes(lines[warning]!, said);
    assertStringIncludes(lines[warning - 1]!, `step ${at + 1}/16, `);
    assertStringIncludes(stderr, "hint: start anew with --lr 1\n");
    assertEquals(stderr.match(/the run began with/g)?.length, 1);

    const resumed = "--resume --steps 22 --out up";
    const again = await place.train(resumed);
    assertEquals(again.code, 0);
    assertStringIncludes(again.stderr, `where the run began with ${first}`);
  }));

Deno.test("ParScale parameters alone have rates by their start, which --dry-run and config.json tell", () =>
  withWorkplace(async (place) => {
    const line = `--model p1 --streams 2 --train-params introduced --data texts.jsonl --seq-len 24`;
    const ratesOf = async (flags: string) => {
      const { stdout } = await place.train(`${line} --steps 2${flags} --out run --dry-run --json`);
      const { config } = JSON.parse(stdout);
      return [config.lr_prefix, config.lr_aggregator];
    };
    assertEquals(await ratesOf(""), [0.02, 0.0001]);
    assertEquals(await ratesOf(" --prefix-init normal"), [0.1, 0.0001]);
    assertEquals(await ratesOf(" --transform lora"), [0.001, 0.0001]);
    assertEquals(await ratesOf(" --lr 0.01"), [0.01, 0.01]);
    assertEquals(await ratesOf(" --lr-prefix 0.5"), [0.5, 0.0001]);
    const { stdout } = await place.train(`${line} --steps 2 --out run --dry-run`);
    assertMatch(
      stdout,
      /^learning rates: prefixes 0\.02, which start at the keys and values of a text; /m,
    );
    await place.trained(`${line} --steps 2 --out run`);
    const { config } = JSON.parse(place.read("run/config.json"));
    assertEquals([config.lr_prefix, config.lr_aggregator], [0.02, 0.0001]);
    const [row] = parseLines(place.read("run/metrics.jsonl")).slice(-1);
    assertEquals(row.lr_prefix < 0.02, true);
    // Prefixes of a run that started from text are as large as before.
    const { stdout: next } = await place.train(
      "--model run --train-params introduced --data texts.jsonl --seq-len 24 --out next --dry-run",
    );
    assertStringIncludes(next, "prefixes 0.02, which start at the keys and values of a text");
  }));

Deno.test("progress goes to stderr at the first step and every --log-every steps; quiet runs are silent", () =>
  withWorkplace(async (place) => {
    const line = `--model p2 ${ROWS} --steps 7`;
    const [loud, silent, wordy] = await Promise.all([
      place.train(`${line} --log-every 3 --out loud`),
      place.train(`${line} --log-every 1 --out silent -q -q`),
      place.train(`${line} --log-every 100 --save-every 4 --out wordy -v`),
    ]);
    const lines = loud!.stderr.trim().split("\n");
    assertEquals(lines.length, 6);
    assertMatch(lines[0]!, /^training ([\d,]+) of \1 parameters: backbone at [\d.e-]+, prefix at /);
    assertMatch(lines[1]!, /^step 1\/7, /);
    assertMatch(
      lines[2]!,
      /^step 3\/7, loss \d\.\d{4}, smoothed \d\.\d{4}, \d+ tok\/s, \d+s left, lr [\de.-]+, grad [\d.]+, [\d.]+ GFLOP\/s, data wait [\d.]+%$/,
    );
    assertMatch(lines[5]!, /^Training: 7 steps in \d+s/);
    assertEquals(lines[4], 'try it with `parscale generate --model loud --prompt "..."`');
    assertEquals([silent!.code, silent!.stdout, silent!.stderr], [0, "", ""]);
    assertStringIncludes(wordy!.stderr, "saved wordy/checkpoint-000004\n");
    assertStringIncludes(wordy!.stderr, "saved wordy/checkpoint-000007\n");
  }));

Deno.test("the command of a run continues it with --resume added; its card tells the rows", () =>
  withWorkplace(async (place) => {
    const line = "--model p2 --data rows.jsonl --context 16 --steps 1";
    assertEquals((await place.train(line)).code, 0);
    assertMatch(
      place.read("run/checkpoint-000001/README.md"),
      /1 of 1 steps of \d+ rows of 16 tokens/,
    );
    const anew = await place.train(`${line} --reparameterize 4 --out anew`);
    assertStringIncludes(anew.stderr, "the prefixes of the checkpoint are started anew");
    const before = await place.weights("run");
    const again = await place.train(`${line} --resume --json`);
    assertEquals([again.code, again.stderr], [0, '"run" is complete: all 1 steps are done\n']);
    assertEquals(JSON.parse(again.stdout).results.steps, 1);
    assertEquals(await place.weights("run"), before);
    // No table of nothing.
    assertEquals((await place.train(`${line} --resume`)).stdout, "");
  }));

Deno.test("each validation is told once, that before the first step too", () =>
  withWorkplace(async (place) => {
    const line = `--model p2 ${ROWS} --eval-data rows.jsonl --eval-every 2 --out run`;
    const { code, stdout, stderr } = await place.train(`${line} --steps 4 --log-every 1 --json`);
    assertEquals(code, 0, stderr);
    const told = stderr.split("\n").filter((line) => line.includes("validation loss"));
    const { results } = JSON.parse(stdout);
    assertEquals(told.map((line) => line.replace(/: .*/, "")), [
      "validation loss before the first step",
      "validation loss after step 2",
      "validation loss after step 4",
    ]);
    assertStringIncludes(told[0]!, results.eval_loss_before.toFixed(4));
    assertStringIncludes(told[2]!, results.eval_loss.toFixed(4));
    const resumed = await place.train("--resume --out run --steps 4");
    assertEquals(resumed.stderr.includes("before the first step"), false);
  }));

Deno.test("pipelines: jq reads steps, a reader that leaves ends the run quietly", () =>
  withWorkplace(async (place) => {
    const command = place.args(`--model p2 ${ROWS} --steps 40 --save-every 5 --jsonl -q`).join(" ");
    for (
      const [script, stdout] of [
        ["--out a | jq -c .step | tail -1", "40\n"],
        ["--out b | head -1 | jq -c .step; echo ${PIPESTATUS[0]}", "1\n0\n"],
      ]
    ) {
      const result = await runShell(`parscale ${command} ${script}`, place);
      assertEquals(result, { code: 0, stdout, stderr: "" });
    }
    assert(place.metrics("b").length < 40);
    await place.trained("--resume --out b");
    assertEquals(place.steady("b"), place.steady("a"));
    assertEquals(await place.weights("b"), await place.weights("a"));
  }));

Deno.test("--tensorboard writes an event file with every number of every step", () =>
  withWorkplace(async (place) => {
    await place.trained(`--model p2 ${ROWS} --steps 3 --tensorboard --out run`);
    const [file, ...others] = place.names("run/tensorboard");
    assertMatch(file!, /^events\.out\.tfevents\.\d+\.parscale$/);
    assertEquals(others, []);
    const bytes = await Deno.readFile(`${place.cwd}/run/tensorboard/${file}`);
    const text = new TextDecoder("latin1").decode(bytes);
    assertEquals(text.split("train/grad_norm").length - 1, 3);
    assertEquals(text.split("train/eval_loss").length - 1, 0);
  }));

Deno.test("a stream that dies is told of once; weights of streams sum to one", () =>
  withWorkplace(async (place) => {
    const line = `--model p1 --streams 4 ${ROWS} --steps 45 --lr 3e-3 --log-every 100`;
    const { code, stderr } = await place.train(`${line} --lr-aggregator 1 --out dying`);
    assertEquals(code, 0);
    const warning = /^warning: stream (\d) is hardly used at step \d+: its mean/gm;
    const warned = [...stderr.matchAll(warning)].map(([, stream]) => Number(stream));
    assert(warned.length > 0, stderr);
    assertEquals(new Set(warned).size, warned.length);
    const least =
      /weight is 0\.\d{3}, the least possible 0\.025\nhint: start anew with --lr-aggregator 0/;
    assertMatch(stderr, least);
    const metrics = place.metrics("dying");
    for (const { stream_weights } of metrics) {
      assertEquals(stream_weights.length, 4);
      const sum = stream_weights.reduce((a: number, b: number) => a + b, 0);
      assertAlmostEquals(sum, 1, 1e-5);
      assert(stream_weights.every((weight: number) => weight >= 0.025 - 1e-6));
    }
    assert(metrics.at(-1).stream_weights[warned[0]!] < 0.04);
  }));

Deno.test("a run ends with the share of each stream on the validation data, and names one without", () =>
  withWorkplace(async (place) => {
    const line = `--model p1 --streams 4 ${ROWS} --eval-data rows.jsonl --steps 12 --lr 3e-3`;
    const shares =
      /^mean weights of the streams on the validation data: 0: (.*), 1: (.*), 2: (.*), 3: (.*)$/m;
    const sharesOf = async (flags: string) => {
      const { stderr } = await place.train(`${line} ${flags}`);
      const found = shares.exec(stderr)!.slice(1).map(Number);
      assertAlmostEquals(found.reduce((sum, share) => sum + share), 1, 0.03);
      const [, ...dead] = stderr.split(/warning: stream \d is hardly used/);
      assertEquals(dead.length, found.filter((share) => share <= 0.03).length, stderr);
      return found;
    };
    assert(Math.min(...await sharesOf("--lr-aggregator 1 --out dying")) <= 0.03);
    assert(Math.min(...await sharesOf("--out healthy")) > 0.1);
    const whole = await place.train(`${line} --json --out document`);
    assertEquals(JSON.parse(whole.stdout).results.eval_stream_weights.length, 4);
  }));
