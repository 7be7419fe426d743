/** Input transformations and aggregations of the paper's ablations. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { jsonLines, parseLines } from "../cli/models.ts";
import { runParscale } from "../cli/run.ts";
import { ROWS, withWorkplace, type Workplace } from "../cli/train_testing.ts";

/** Training on one batch, over and over. */
const BATCH = `${
  ROWS.replace("rows", "batch")
} --schedule constant --warmup 0 --lr 3e-3 --steps 12`;

/** Weights of each token of a row under a saved model. */
async function scored(place: Workplace, run: string): Promise<number[][]> {
  const row = jsonLines({ tokens: [3, 1, 4, 1, 5, 9] });
  const { stdout } = await place.run(`score --model ${run} --stream-weights --jsonl`, row);
  return parseLines(stdout)[0].weights;
}

/** Mean loss of a saved model over `rows.jsonl`, without training it. */
async function lossOf(place: Workplace, run: string): Promise<number> {
  const [step] = await place.trained(
    `--model ${run} ${ROWS.replace("--batch 4", "--batch 20")} --lr 0 --steps 1 --out ${run}-loss`,
  );
  return step.loss;
}

/** Trains what is introduced, over the backbone as it is, and generates with it. */
async function learnsAlone(place: Workplace, flags: string): Promise<void> {
  const line = `--model p1 ${flags} --train-params introduced`;
  const metrics = await place.trained(`${line} ${BATCH.replace("3e-3", "5e-2")} --out some`);
  assert(metrics.at(-1).loss < 0.9 * metrics[0].loss, `${metrics.at(-1).loss}`);
  const prompt = jsonLines({ tokens: [1, 2] });
  const { stdout } = await place.run("generate --model some --max-tokens 3 --jsonl", prompt);
  assert(parseLines(stdout)[0].tokens.length > 0);
}

const TRANSFORMS: Readonly<Record<string, readonly string[]>> = {
  "--streams 2 --transform lora": ["lora_a", "lora_b"],
  "--streams 2 --transform bitfit": ["stream_bias"],
  "--streams 2 --transform prefix,lora --lora-rank 3": ["lora_a", "lora_b", "prefix_k", "prefix_v"],
  "--streams 1 --transform prefix": ["prefix_k", "prefix_v"],
};

for (const [flags, kinds] of Object.entries(TRANSFORMS)) {
  Deno.test(`${flags} trains, is saved and opens`, () =>
    withWorkplace(async (place) => {
      const metrics = await place.trained(
        `--model p1 ${flags} ${BATCH} --eval-data rows.jsonl --out all`,
      );
      assert(metrics.at(-1).loss < metrics[0].loss / 5, `${metrics.at(-1).loss}`);
      const stored = await place.weights("all");
      const found = [...stored.keys()].map((name) => name.split(".").pop()!);
      const special = found.filter((kind) => /^(lora_|prefix_|stream_bias)/.test(kind));
      assertEquals([...new Set(special)].sort(), [...kinds].sort());
      const streams = Number(/streams (\d)/.exec(flags)![1]);
      assertEquals([...stored.keys()].some((name) => name.includes("aggregate")), streams > 1);
      const a = [...stored.keys()].find((name) => name.endsWith("q_proj.lora_a"));
      if (a !== undefined) {
        const rank = flags.includes("rank 3") ? 3 : 8;
        assertEquals(stored.get(a)!.length, streams * rank * 64);
      }
      const weights = await scored(place, "all");
      assertEquals(weights.map((row) => row.length), Array(6).fill(streams));
      assertAlmostEquals(await lossOf(place, "all"), metrics.at(-1).eval_loss, 1e-5);

      await learnsAlone(place, flags);
    }));
}

Deno.test("fresh LoRA leaves the loss as it is", () =>
  withWorkplace(async (place) => {
    const [plain, lora] = await Promise.all([
      place.trained(`--model p1 ${BATCH.replace("12", "1")} --out plain`),
      place.trained(
        `--model p1 --streams 2 --transform lora ${BATCH.replace("12", "2")} --out lora`,
      ),
    ]);
    assertAlmostEquals(lora![0].loss, plain![0].loss, 1e-6);
    assert(lora![1].loss < lora![0].loss);
  }));

Deno.test("averaged streams all weigh the same, and the aggregator stays zero", () =>
  withWorkplace(async (place) => {
    const metrics = await place.trained(
      `--model p1 --streams 4 --aggregation average --smoothing 0 ${BATCH} --out run`,
    );
    for (const { stream_weights } of metrics) assertEquals(stream_weights, Array(4).fill(0.25));
    for (const [name, values] of await place.weights("run")) {
      if (name.includes("aggregate_layer")) assert(values.every((value) => value === 0), name);
    }
    assert(metrics.at(-1).loss < metrics[0].loss / 5);
    for (const row of await scored(place, "run")) assertEquals(row, Array(4).fill(0.25));
  }));

Deno.test("static weights are the same at every token, and are learned", () =>
  withWorkplace(async (place) => {
    const metrics = await place.trained(
      `--model p1 --streams 2 --aggregation static ${BATCH} --lr-aggregator 0.3 --out run`,
    );
    assert(metrics.at(-1).loss < metrics[0].loss / 5);
    const rows = await scored(place, "run");
    for (const row of rows) assertEquals(row, rows[0]);
    assert(Math.abs(rows[0]![0]! - 0.5) > 0.02, `${rows[0]}`);
    for (const [name, values] of await place.weights("run")) {
      if (!name.includes("aggregate_layer")) continue;
      const isLearned = name === "model.aggregate_layer.2.bias";
      assertEquals(values.some((value) => value !== 0), isLearned, name);
    }
  }));

Deno.test("linear aggregation trains from the average, is saved, opens and continues", () =>
  withWorkplace(async (place) => {
    const line = `--model p1 --streams 2 --aggregation linear ${BATCH} --eval-data rows.jsonl`;
    const metrics = await place.trained(`${line} --save-every 6 --out run`);
    assert(metrics.at(-1).loss < metrics[0].loss / 5);
    assert(metrics.every(({ stream_weights }: Record<string, unknown>) => stream_weights === null));
    const average = await place.trained(
      `--model p1 --streams 2 --aggregation average --smoothing 0 ${BATCH} --out average`,
    );
    assertAlmostEquals(metrics[0].loss, average[0].loss, 1e-5);
    const stored = await place.weights("run");
    const added = [...stored.keys()].filter((name) => name.includes("aggregate_layer"));
    assertEquals(added, ["model.aggregate_layer.weight", "model.aggregate_layer.bias"]);
    assertEquals(added.map((name) => stored.get(name)!.length), [64 * 2 * 64, 64]);
    assert(stored.get("model.aggregate_layer.bias")!.some((value) => value !== 0));
    assertAlmostEquals(await lossOf(place, "run"), metrics.at(-1).eval_loss, 1e-5);

    const before = place.steady("run");
    place.write("run/last", "checkpoint-000006\n");
    await place.trained("--resume --out run");
    assertEquals(place.steady("run"), before);
    assertEquals(await place.weights("run"), stored);

    const row = jsonLines({ tokens: [3, 1, 4, 1, 5, 9] });
    const { stdout } = await place.run("generate --model run --max-tokens 3 --jsonl", row);
    assert(parseLines(stdout)[0].tokens.length > 0);
    for (const command of ["score --stream-weights", "visualize"]) {
      const args = `${command} --model run --jsonl`.split(" ");
      const { code, stderr } = await runParscale(args, { cwd: place.cwd, stdin: row });
      assertEquals(code, 3);
      assertStringIncludes(stderr, "linear aggregation has no stream weights");
    }
    const other = await place.train(`--model run --aggregation dynamic ${BATCH} --out x`);
    assertEquals(other.code, 2);
    assertStringIncludes(other.stderr, "`--aggregation` cannot change a ParScale model");
  }));

Deno.test("linear aggregation alone is an adapter over a plain backbone", () =>
  withWorkplace((place) => learnsAlone(place, "--streams 4 --aggregation linear")));

Deno.test("reparameterised prefixes are folded into plain ones that compute the same", () =>
  withWorkplace(async (place) => {
    const line = `--model p1 --streams 2 --prefix-tokens 6 --reparameterize 16 ${BATCH}`;
    const metrics = await place.trained(
      `${line} --lr-prefix 3e-2 --eval-data rows.jsonl --save-every 6 --out run`,
    );
    assert(metrics.at(-1).loss < metrics[0].loss / 5);
    const tensors = await place.weights("run");
    assertEquals([...tensors.keys()].filter((name) => name.includes("prefix_mlp")), []);
    assertEquals(tensors.get("model.layers.1.self_attn.prefix_v")!.length, 2 * 6 * 2 * 16);
    assertAlmostEquals(await lossOf(place, "run"), metrics.at(-1).eval_loss, 1e-5);
    assertEquals((await scored(place, "run"))[0]!.length, 2);

    const before = place.steady("run");
    place.write("run/last", "checkpoint-000006\n");
    await place.trained("--resume --out run");
    assertEquals(place.steady("run"), before);
    assertEquals(await place.weights("run"), tensors);
  }));
