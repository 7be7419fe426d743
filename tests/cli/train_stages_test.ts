/** Models from scratch, training in two stages, quick checks and longer context. */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { assertFailed } from "./models.ts";
import { ROWS, withWorkplace } from "./train_testing.ts";

const SCRATCH = "--init scratch --config-from p1";

Deno.test("from scratch: drawn from the seed with the asked deviation, tokenizer taken along", () =>
  withWorkplace(async (place) => {
    const line = `${ROWS} --steps 1 --lr 0`;
    const [a, b, other, wide, streams] = await Promise.all([
      ...[SCRATCH, SCRATCH, `${SCRATCH} --seed 1`, `${SCRATCH} --init-std 0.1`],
      "--init scratch --config-from p2",
    ].map(async (how, i) => {
      await place.trained(`${how} ${line} --out ${i}`);
      return await place.weights(`${i}`);
    }));
    const losses = [0, 1].map((run) => place.metrics(`${run}`)[0].loss);
    assertEquals(losses[0], losses[1]);
    assertAlmostEquals(losses[0], Math.log(512), 0.1);
    assertEquals(a, b);
    const name = "model.layers.0.mlp.up_proj.weight";
    assert(a!.get(name)!.some((value, i) => value !== other!.get(name)![i]));
    const deviation = (values: Float32Array) =>
      Math.hypot(...Array.from(values)) / Math.sqrt(values.length);
    assertAlmostEquals(deviation(a!.get(name)!), 0.02, 1e-3);
    assertAlmostEquals(deviation(wide!.get(name)!), 0.1, 5e-3);
    assert(a!.get("model.norm.weight")!.every((value) => value === 1));
    assert(a!.get("model.layers.0.self_attn.q_proj.bias")!.every((value) => value === 0));
    const prefix = streams!.get("model.layers.0.self_attn.prefix_k")!;
    assertAlmostEquals(deviation(prefix), 0.02, 2e-3);
    assert(place.names("0/checkpoint-000001").includes("tokenizer.json"));
  }));

Deno.test("from scratch with --tokenizer: a config.json reads texts", () =>
  withWorkplace(async (place) => {
    place.write("shape.json", place.read("p1/config.json"));
    const texts = "--tokenizer p1 --data texts.jsonl --seq-len 24 --batch 2 --steps 1";
    await place.trained(`--init scratch --config-from shape.json ${texts} --out run`);
    assert(place.names("run/checkpoint-000001").includes("tokenizer.json"));
    await place.run("generate --model run --prompt two --max-tokens 2");
    await place.run("inspect --model run --tokenize two");
  }));

Deno.test("presets fit every transform and give no warning of their own", () =>
  withWorkplace(async (place) => {
    const scratch = "--init scratch --config-from p1 --streams 1";
    for (const line of ["paper-peft -m p1 -P 2 --transform lora", `paper-stage1 ${scratch}`]) {
      const rest = `${ROWS} --steps 40 --warmup 2 --out run --dry-run`;
      const { code, stderr } = await place.train(`--preset ${line} ${rest}`);
      assertEquals([code, stderr], [0, ""], line);
    }
  }));

Deno.test("small rates fall too, those of a frozen backbone's prefixes as well", () =>
  withWorkplace(async (place) => {
    const [low, frozen] = await Promise.all([
      place.trained(`--model p2 ${ROWS} --steps 4 --lr 1e-6 --out low`),
      place.trained(`--model p2 ${ROWS} --steps 4 --lr 0 --lr-prefix 0.01 --out frozen`),
    ]);
    assertAlmostEquals(low!.at(-1).lr, 1e-7, 1e-12);
    assertAlmostEquals(frozen!.at(-1).lr_prefix, 1e-5, 1e-9);
  }));

Deno.test("two stages: one stream with WSD, then converted, then trained with two", () =>
  withWorkplace(async (place) => {
    const wsd = "--schedule wsd --warmup 2 --decay-steps 3 --steps 10 --lr 3e-3 --lr-min 1e-4";
    const first = await place.trained(`${SCRATCH} ${ROWS} ${wsd} --out one`);
    const rates = first.map(({ lr }) => Number(lr.toPrecision(6)));
    assertEquals(rates.slice(0, 7), [1.5e-3, ...Array(6).fill(3e-3)]);
    assertEquals(rates[9], 1e-4);
    assert(rates[7]! > rates[8]! && rates[8]! > rates[9]!);
    await place.run("convert --model one --streams 2 --out two");
    const fixed = `${ROWS} --steps 4 --lr 1e-3`;
    const [converted, direct, plain] = await Promise.all([
      place.trained(`--model two ${fixed} --out converted`),
      place.trained(`--model one --streams 2 ${fixed} --out direct`),
      place.trained(`--model one ${fixed} --out plain`),
    ]);
    assertEquals(converted!.map(({ loss }) => loss), direct!.map(({ loss }) => loss));
    assert(converted![0].loss < first[0].loss, "stage two begins where stage one ended");
    assertAlmostEquals(converted![0].loss, plain![0].loss, 0.2);
    assertEquals(converted![0].stream_weights.length, 2);
    assertEquals(plain![0].stream_weights, null);
  }));

Deno.test("longer context: base and length are saved, and longer rows can follow", () =>
  withWorkplace(async (place) => {
    const rope = "--rope-theta 1e6 --context 4096 --save-dtype bf16";
    await place.trained(`--model p2 ${ROWS} --steps 1 ${rope} --out long`);
    const config = place.config("long/checkpoint-000001");
    assertEquals([config.rope_theta, config.max_position_embeddings], [1e6, 4096]);
    assertEquals([config.torch_dtype, config.parscale_n], ["bfloat16", 2]);
    await place.trained(`--model long ${ROWS} --steps 1 --context 16 --out short`);
    const longer = "--model short --data texts.jsonl --seq-len 24 --batch 2 --steps 1";
    const context = "exceeds the model's context of 16 tokens";
    assertFailed(await place.train(`${longer} --out no`), 2, context);
    await place.trained(`${longer} --context 24 --out again`);
  }));
