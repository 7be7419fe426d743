/** Llama models through the commands: they are run, scored, costed and given streams. */
import { fileURLToPath } from "node:url";
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { jsonLines, parseLines, rowsOf } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { linkSync } from "../links.ts";

const FIXTURES = fileURLToPath(new URL("../../fixtures/", import.meta.url));
const LLAMA = `${FIXTURES}models/llama-p1-llama3-tied-f32`;
const GOLDEN = JSON.parse(Deno.readTextFileSync(`${FIXTURES}golden/llama.json`))
  .models["llama-p1-llama3-tied-f32"];

async function succeed(line: string, cwd: string, stdin?: string): Promise<string> {
  const options = stdin === undefined ? { cwd } : { cwd, stdin };
  const { code, stdout, stderr } = await runParscale(line.split(" "), options);
  assertEquals(code, 0, `${line}: ${stderr}`);
  return stdout;
}

Deno.test("generate, score, inspect and cost take a Llama model", async () => {
  const { pairs, generation } = GOLDEN.scores;
  const rows = pairs.map((pair: Record<string, string>) => ({
    prompt: pair.context,
    continuation: pair.continuation,
  }));
  const [prompt] = GOLDEN.greedy;
  const model = ["--model", LLAMA, "--device", "reference"];
  const [ids, text, scores, [inspected], [cost]] = await Promise.all([
    rowsOf(["generate", ...model, "--max-tokens", "12", "--ignore-eos"], {
      stdin: jsonLines({ tokens: prompt.prompt }),
    }),
    rowsOf(["generate", ...model, "--max-tokens", "8", "--prompt", generation.context]),
    rowsOf(["score", ...model], { stdin: jsonLines(...rows) }),
    rowsOf(["inspect", "--model", LLAMA]),
    rowsOf(["cost", "--model", LLAMA]),
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
    await succeed("convert --model llama --streams 2 --prefix-tokens 4 --out p2", cwd);
    const config = JSON.parse(await Deno.readTextFile(`${cwd}/p2/config.json`));
    assertEquals(config.model_type, "llama_parscale");
    assertEquals(config.architectures, ["LlamaParScaleForCausalLM"]);
    assertEquals([config.auto_map, config.rope_scaling.rope_type], [undefined, "llama3"]);
    await succeed(
      "train --model p2 --data rows.jsonl --seq-len 16 --batch 2 --steps 2 --out run",
      cwd,
    );
    const [trained] = parseLines(
      await succeed(
        "score --model run --jsonl --stream-weights",
        cwd,
        jsonLines({ tokens: [0, 5, 9] }),
      ),
    );
    assertEquals(trained.weights[0].length, 2);
    const data = `--data ${FIXTURES}eval/data --limit 1 --max-tokens 2 --out results`;
    await succeed(`eval --model p2 --tasks gsm8k,arc_easy ${data}`, cwd);
    await succeed("convert --model p2 --strip --out back", cwd);
    const [before, after] = await Promise.all(
      ["llama", "back"].map((name) => succeed(`inspect --model ${name} --json`, cwd)),
    );
    const results = (text: string) => ({ ...JSON.parse(text).results, model: "", directory: "" });
    assertEquals(results(after!), results(before!));
  }));

Deno.test("a chat prompt of a Llama model starts with one beginning-of-text token", async () => {
  const model = ["--model", LLAMA, "--device", "reference", "--max-tokens", "2"];
  const [chat, ids] = await Promise.all([
    rowsOf(["generate", ...model], { stdin: jsonLines({ messages: GOLDEN.chat.messages }) }),
    rowsOf(["generate", ...model], { stdin: jsonLines({ tokens: GOLDEN.chat.ids }) }),
  ]);
  assertEquals(chat[0].tokens, ids[0].tokens);
});

Deno.test("training keeps rotary scaling and the context that goes with it", () =>
  withScratch(async (cwd) => {
    const rows = Array.from({ length: 4 }, (_, i) => ({ tokens: [1, 2, 3, 4, 5 + i] }));
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...rows));
    const tokens = jsonLines({ tokens: Array.from({ length: 60 }, (_, i) => (7 * i) % 120) });
    for (const name of ["qwen2-p1-yarn-f32", "llama-p1-llama3-tied-f32"]) {
      const model = `${FIXTURES}models/${name}`;
      const data = "--data rows.jsonl --no-pack --seq-len 8 --batch 2 --steps 1 --lr 0";
      await succeed(`train --model ${model} ${data} --out ${name}`, cwd);
      const [before, after] = await Promise.all(
        [model, name].map((path) => succeed(`score --model ${path} --jsonl`, cwd, tokens)),
      );
      assertEquals(after, before, name);
      const [first, second] = await Promise.all(
        [model, name].map(async (path) =>
          JSON.parse(await succeed(`inspect --model ${path} --json`, cwd)).results
        ),
      );
      const context = first.max_position_embeddings;
      assertEquals([second.max_position_embeddings, second.rope_scaling], [
        context,
        first.rope_scaling,
      ]);
    }
  }));

Deno.test("an architecture that is not supported is refused with those that are", () =>
  withScratch(async (cwd) => {
    await Deno.mkdir(`${cwd}/mistral`);
    await Deno.writeTextFile(`${cwd}/mistral/config.json`, '{ "model_type": "mistral" }');
    const { code, stderr } = await runParscale(["inspect", "--model", "mistral"], { cwd });
    assertEquals(code, 3);
    assertStringIncludes(stderr, 'model_type in "mistral/config.json" must be one of qwen2, ');
    assertStringIncludes(stderr, "hint: Qwen2.5 has model_type qwen2; Llama 3, SmolLM and SmolLM2");
  }));
