/**
 * Misuse and bad data of every command: `refusals.txt` has a line for each, with its exit code and what
 * stderr says. Nothing is printed on stdout, and nothing is written. With `--dry-run` it is the same, but
 * for the cases with a star, which only a run finds.
 *
 *   CODE[*] COMMAND LINE [< STDIN] [→ TEXT]
 *     TEXT
 *
 * An ellipsis in a text stands for any text; an error or hint without one at its end is a whole line.
 */
import { dirname } from "node:path";
import { gzipSync } from "node:zlib";
import { assert, assertEquals, assertMatch } from "@std/assert";
import { DATA, TINY } from "./eval_testing.ts";
import {
  assertFailed,
  copyFolder,
  jsonLines,
  MODEL,
  MODEL4,
  NO_TOKENIZER,
  PLAIN_MODEL,
  succeed,
} from "./models.ts";
import { runParscale } from "./run.ts";
import { allPaths } from "./stand_in_hub.ts";
import { withScratch } from "../scratch.ts";
import { linkSync } from "../links.ts";
import { fillWorkplace, ROWS } from "./train_testing.ts";
import { FIXTURES, readFixture } from "../fixtures.ts";

/** Short names in the table. */
const SHORT: Readonly<Record<string, string>> = {
  $ROWS: ROWS,
  $ONE: `${ROWS} --steps 1`,
  $SHAPE: "--hidden-size 1536 --intermediate-size 8320",
  $STACK: "--data-set stack-v2-python",
  $TINY: "-m tiny --data data",
  $GSM8K: "-m tiny --data data --tasks gsm8k",
  $SCORED: "--tasks gsm8k --shots 0 --data data --score -",
};

const TOKENS = { step: 1, tokens: 1 }, STEP = { ...TOKENS, loss: 2 };
const QUESTION = { question: "1+1?" }, CHOICE = { goal: "g", sol1: "a", sol2: "b", label: 2 };
const ANSWERED = { key: 7, prompt: "p", instruction_id_list: [], kwargs: [] };

const SUM = { prompt: "2 + 2?", answer: 4 },
  COLOR = { prompt: "x", choices: ["a", "b"], answer: "D" };
const QWEN35 = readFixture("models/qwen35-p1-tied-f32/config.json");
const LORA = readFixture("golden/peft/all/adapter_config.json");

/** Settings of adapters of PEFT, each in a folder of its name. */
const PEFT: Readonly<Record<string, unknown>> = {
  use_dora: true,
  modules_to_save: ["lm_head"],
  rank_pattern: { q_proj: 4 },
  alpha_pattern: { q_proj: 4 },
  bias: "all",
  init_lora_weights: "pissa",
  layers_to_transform: [0],
  a_field_of_tomorrow: 1,
  peft_type: "IA3",
  base_model_name_or_path: null,
};

/** Files of a scratch folder, most with a fault. */
const FILES: Readonly<Record<string, unknown>> = {
  "config.json": { modle: "p2" },
  "short.txt": "short",
  "short.gguf": "GGUF",
  "empty.jsonl": "",
  "mixed.jsonl": jsonLines({ text: "a b" }, { tokens: [1, 2] }),
  "masked.jsonl": { tokens: [1, 2, 3], labels: [1, -100, -100] },
  "unknown.jsonl": { tokens: [1, 512] },
  "broken.jsonl": '{"tokens": [1, 2]}\n{"tokens":',
  "mistral/config.json": { model_type: "mistral" },
  "a/metrics.jsonl": STEP,
  "b/metrics.jsonl": STEP,
  "steps.jsonl": STEP,
  "later.jsonl": { ...STEP, tokens: 2 },
  "loss.jsonl": `${JSON.stringify(STEP)}\nloss 3\n`,
  "text.jsonl": { ...TOKENS, loss: "2" },
  "other.jsonl": TOKENS,
  "timing.json": { schema: "parscale.bench/1", results: [1] },
  "question.jsonl": QUESTION,
  "label.jsonl": CHOICE,
  "cut.jsonl": `${JSON.stringify({ ...QUESTION, answer: "#### 2" })}\n{"question": "2+`,
  "twice/ifeval/input_data.jsonl": jsonLines(ANSWERED, ANSWERED),
  "trained/gsm8k/test.jsonl": jsonLines({ ...QUESTION, answer: "#### 1" }).repeat(7473),
  "trained/gsm8k/train.jsonl": jsonLines({ ...QUESTION, answer: "#### 1" }),
  "not.json": { not: {} },
  "kept.jsonl.partial": "",
  "taken/mine": "",
  "taken/p1/mine": "",
  "project/config.json": {},
  "empty/.keep": "",
  "zip.jsonl": "PK\x03\x04 rows.jsonl",
  "packed.jsonl": gzipSync("text"),
  "data.tar.gz": gzipSync("text"),
  "own/mixed.jsonl": jsonLines(SUM, { ...COLOR, answer: 0 }),
  "own/column.jsonl": { prompt: "x", test: "assert f()" },
  "own/letter.jsonl": COLOR,
  "own/question.jsonl": { question: "x", answer: "1" },
  "own/check.jsonl": { prompt: "x", tests: "def check(candidate):\n  pass" },
  "own/cut.jsonl": '{"prompt": "x"\n',
  "own/program.jsonl": { prompt: "def f(x):", tests: "assert f(2) == 4" },
  "own/gsm8k.jsonl": SUM,
  "own/a.json": SUM,
  "own/a.ndjson": SUM,
  "t.jinja": "{{ a }}|{{ b }}|{{ messages[0].content }}",
  "qwen35/moe/config.json": { ...QWEN35, model_type: "qwen3_5_moe" },
  "qwen35/text/config.json": { ...QWEN35, model_type: "qwen3_5_moe_text" },
  "qwen35/next/config.json": { ...QWEN35, model_type: "qwen3_next" },
  "qwen35/gate/config.json": { ...QWEN35, attn_output_gate: false },
  "qwen35/heads/config.json": { ...QWEN35, linear_num_value_heads: 3 },
  ...Object.fromEntries(
    Object.entries(PEFT).map((
      [key, value],
    ) => [`peft/${key}/adapter_config.json`, { ...LORA, [key]: value }]),
  ),
};

async function fill(cwd: string): Promise<void> {
  fillWorkplace(cwd);
  await copyFolder(PLAIN_MODEL, `${cwd}/bare`, NO_TOKENIZER);
  const lora = `${FIXTURES}golden/peft/all`;
  const links = { p4: MODEL4, tiny: TINY, data: DATA, lora };
  for (const [name, path] of Object.entries(links)) linkSync(path, `${cwd}/${name}`);
  for (const [path, content] of Object.entries(FILES)) {
    Deno.mkdirSync(dirname(`${cwd}/${path}`), { recursive: true });
    if (content instanceof Uint8Array) Deno.writeFileSync(`${cwd}/${path}`, content);
    else {Deno.writeTextFileSync(
        `${cwd}/${path}`,
        typeof content === "string" ? content : jsonLines(content),
      );}
  }
}

/** Returns the pattern of a text of the table. */
function patternOf(text: string): RegExp {
  const escaped = text.split(/ ?… ?/).map((part) => part.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  const isLine = /^(error|hint): /.test(text);
  return new RegExp(`${isLine ? "^" : ""}${escaped.join("[^]*")}${isLine ? "$" : ""}`, "m");
}

const [, ...sections] = Deno.readTextFileSync(new URL("refusals.txt", import.meta.url))
  .split(/^\[(.+)\]\n/m);

const CASE = /^(\d)(\*?) (.*)\n((?: {2}.*\n)*)/gm;

for (let i = 0; i < sections.length; i += 2) {
  const [title, body] = sections.slice(i) as [string, string];
  Deno.test(`refused: ${title}`, (t) =>
    withScratch(async (cwd) => {
      await fill(cwd);
      if (title === "quantized folders") {
        await succeed(`convert --model ${MODEL} --quantize q4 --out q4`, { cwd });
      }
      assertEquals(body.replaceAll(CASE, "").trim(), "", "every line is a case");
      const files = () => allPaths(cwd).filter((path) => !path.startsWith(`${cwd}/cache/`));
      const before = files(), env = { PARSCALE_CACHE: `${cwd}/cache` };
      for (const [, code, star, head, more] of body.matchAll(CASE)) {
        const [command, first] = head!.split(" → ");
        const [line, input = ""] = command!.split(" < ");
        const texts = [first ?? "", ...more!.split("\n").map((text) => text.trim())];
        const words = line!.replace(/\$\w+/g, (name) => SHORT[name]!);
        const stdin = input.replaceAll("\\n", "\n");
        const options = { cwd, stdin, env };
        await t.step(line!, async () => {
          const planned = await runParscale(`${words} --dry-run`, options);
          if (star) assertEquals(planned.code, 0, planned.stderr);
          for (const found of [await runParscale(words, options), ...star ? [] : [planned]]) {
            assertFailed(found, Number(code));
            for (const text of texts) assertMatch(found.stderr, patternOf(text));
            assert(!/^\s+at /m.test(found.stderr), found.stderr);
          }
        });
      }
      assertEquals(files(), before, "nothing is written");
    }));
}
