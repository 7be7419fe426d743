/** Llama models through the commands: they are run, scored, costed and given streams. */
import { fileURLToPath } from "node:url";
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { jsonLines, rowsOf } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { linkSync } from "../links.ts";

const FIXTURES = fileURLToPath(new URL("../../fixtures/", import.meta.url));
const LLAMA = `${FIXTURES}models/llama-p1-llama3-tied-f32`;
const GOLDEN = JSON.parse(Deno.readTextFileSync(`${FIXTURES}golden/llama.json`))
  .models["llama-p1-llama3-tied-f32"];

/** Runs a line that must succeed; it may say more on stderr. */
async function run(line: string, cwd: string): Promise<void> {
  const { code, stderr } = await runParscale(line, { cwd });
  assertEquals(code, 0, `${line}: ${stderr}`);
}

Deno.test("generate, score, inspect and cost take a Llama model", async () => {
  const { pairs, generation } = GOLDEN.scores;
  const rows = pairs.map((pair: Record<string, string>) => ({
    prompt: pair.context,
    continuation: pair.continuation,
  }));
  const [prompt] = GOLDEN.greedy;
  const model = `--model ${LLAMA} --device reference`;
  const [ids, text, scores, [inspected], [cost]] = await Promise.all([
    rowsOf(`generate ${model} --max-tokens 12 --ignore-eos`, {
      stdin: jsonLines({ tokens: prompt.prompt }),
    }),
    rowsOf(["generate", ...model.split(" "), "--max-tokens", "8", "--prompt", generation.context]),
    rowsOf(`score ${model}`, { stdin: jsonLines(...rows) }),
    rowsOf(`inspect --model ${LLAMA}`),
    rowsOf(`cost --model ${LLAMA}`),
  ]);
  assertEquals(ids[0].tokens, prompt.tokens);
  assertEquals(text[0].text, generation.text);
  scores.forEach((row, i) => {
    assertAlmostEquals(row.loglikelihood, pairs[i].loglikelihood, 1e-3);
    assertEquals(row.is_greedy, pairs[i].is_greedy);
  });
  assertEquals([inspected.family, inspected.rope_scaling], ["llama", "llama3"]);
  assertEquals([inspected.params, inspected.tokenizer], [GOLDEN.parameters, "byte-level-bpe"]);
  assert(cost.memory_bytes > 0 && cost.latency_s > 0);
});

Deno.test("a Llama model gets streams, is trained, evaluated and stripped again", () =>
  withScratch(async (cwd) => {
    linkSync(LLAMA, `${cwd}/llama`);
    const texts = Array.from({ length: 8 }, (_, i) => ({ text: `Two brothers built raft ${i}.` }));
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...texts));
    await run("convert --model llama --streams 2 --prefix-tokens 4 --out p2", cwd);
    const config = JSON.parse(await Deno.readTextFile(`${cwd}/p2/config.json`));
    assertEquals(config.model_type, "llama_parscale");
    assertEquals(config.architectures, ["LlamaParScaleForCausalLM"]);
    assertEquals([config.auto_map, config.rope_scaling.rope_type], [undefined, "llama3"]);
    const short = "--seq-len 16 --batch 2 --steps 2";
    await run(`train --model p2 --data rows.jsonl ${short} --out run`, cwd);
    const stdin = jsonLines({ tokens: [0, 5, 9] });
    const [trained] = await rowsOf("score --model run --stream-weights", { cwd, stdin });
    assertEquals(trained.weights[0].length, 2);
    const data = `--data ${FIXTURES}eval/data --limit 1 --max-tokens 2 --out results`;
    await run(`eval --model p2 --tasks gsm8k,arc_easy ${data}`, cwd);
    await run("convert --model p2 --strip --out back", cwd);
    const inspected = async (name: string) => ({
      ...(await rowsOf(`inspect --model ${name}`, { cwd }))[0],
      model: "",
      directory: "",
    });
    assertEquals(await inspected("back"), await inspected("llama"));
  }));

Deno.test("a chat prompt of a Llama model starts with one beginning-of-text token", async () => {
  const line = `generate --model ${LLAMA} --device reference --max-tokens 2`;
  const [chat] = await rowsOf(line, { stdin: jsonLines({ messages: GOLDEN.chat.messages }) });
  const [ids] = await rowsOf(line, { stdin: jsonLines({ tokens: GOLDEN.chat.ids }) });
  assertEquals(chat.tokens, ids.tokens);
});

Deno.test("training keeps rotary scaling and the context that goes with it", () =>
  withScratch(async (cwd) => {
    const rows = Array.from({ length: 4 }, (_, i) => ({ tokens: [1, 2, 3, 4, 5 + i] }));
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...rows));
    const stdin = jsonLines({ tokens: Array.from({ length: 60 }, (_, i) => (7 * i) % 120) });
    for (const name of ["qwen2-p1-yarn-f32", "llama-p1-llama3-tied-f32"]) {
      const model = `${FIXTURES}models/${name}`;
      const data = "--data rows.jsonl --no-pack --seq-len 8 --batch 2 --steps 1 --lr 0";
      await run(`train --model ${model} ${data} --out ${name}`, cwd);
      const of = async (path: string) => {
        const [scores] = await rowsOf(`score --model ${path}`, { cwd, stdin });
        const [{ max_position_embeddings, rope_scaling }] = await rowsOf(
          `inspect --model ${path}`,
          { cwd },
        );
        return { scores, max_position_embeddings, rope_scaling };
      };
      assertEquals(await of(name), await of(model));
    }
  }));
