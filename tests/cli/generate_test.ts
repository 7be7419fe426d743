/** `parscale generate` as a black box: results. Input, errors and streams are in `generate_io_test`. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import {
  copyFolder,
  documentOf,
  EXPECTED,
  jsonLines,
  MODEL,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { readFixture } from "../fixtures.ts";

const GENERATE = `generate --model ${MODEL}`;
const { prompts, outputs, with_eos: withEos } = EXPECTED.greedy;
const GREEDY = { stdin: jsonLines(...prompts.map((tokens: number[]) => ({ tokens }))) };

/** Ids of every result of a row, or of an entry of the golden file. */
const idsOf = (sequences: readonly { tokens?: number[]; ids?: number[] }[]) =>
  sequences.map(({ tokens, ids }) => tokens ?? ids);

Deno.test("greedy rows: the golden ids, and exactly the fields of the contract", async () => {
  const rows = await rowsOf(`${GENERATE} --max-tokens 32 --ignore-eos`, GREEDY);
  assertEquals(idsOf(rows), outputs);
  rows.forEach((row, i) => {
    assertEquals(Object.keys(row), ["id", "text", "tokens", "finish_reason", "stats"]);
    assertEquals([row.id, row.finish_reason, typeof row.text], [i, "length", "string"]);
    assertEquals(row.stats, { prompt_tokens: prompts[i].length, new_tokens: 32 });
  });
  const begun = outputs.map((ids: number[]) => ids.slice(0, 6));
  for (const how of ["--device reference", "--threads 1", "--batch 1"]) {
    const few = await rowsOf(`${GENERATE} --max-tokens 6 --ignore-eos ${how}`, GREEDY);
    assertEquals(idsOf(few), begun, how);
  }
});

Deno.test("table, json, csv and md hold the same results", async () => {
  const options = { stdin: jsonLines({ id: "x", prompt: "a" }, { prompt: "b" }) };
  const line = `${GENERATE} --max-tokens 4`;
  const { schema, command, device, seed, config, results } = await documentOf(line, options);
  assertEquals([schema, command], ["parscale.generate/1", "generate"]);
  assertEquals([device, seed, config.max_tokens], ["cpu", 0, 4]);
  assertEquals(results, await rowsOf(line, options));
  const csv = await succeed(`${line} --format csv`, options);
  assertStringIncludes(csv, "id,finish_reason,text,error");
  assertStringIncludes(csv, "x,length,");
  const table = (await succeed(line, options)).trimEnd().split("\n");
  assertEquals(table.length, 3);
  assertMatch(table[0]!.trim(), /^id +finish reason +text +error$/);
  assertStringIncludes(await succeed(`${line} --format md`, options), "| x | length |");
  const beams = `${line} --num-beams 3 --num-return 2`;
  const [{ sequences: [best, second] }] = await rowsOf(beams, options);
  const [head, ...rows] = (await succeed(`${beams} --format csv`, options)).split("\n");
  assertEquals(head, "id,finish_reason,text,error,sequence,score");
  const ends = [best, second].map(({ score }, i) => `,,${i},${score}`);
  assertEquals(rows.slice(0, 2).map((row, i) => row.slice(-ends[i]!.length)), ends);
  const sampled = `${GENERATE} --prompt a --temperature 1 --num-return 2 --max-tokens 3`;
  const several = await succeed(`${sampled} --format csv`);
  assertMatch(
    several,
    /^id,finish_reason,text,error,sequence\n0,length,[^]*,,0\n0,length,[^]*,,1\n$/,
  );
});

Deno.test("one prompt is plain text; --stop cuts it where the earliest of several begins", async () => {
  const line = `${GENERATE} --prompt 'hello world' --max-tokens 12`;
  const [{ text }] = await rowsOf(line);
  assertEquals(await succeed(line), `${text}\n`);
  const [best] = await rowsOf(`${line} --num-beams 3`);
  assertEquals(await succeed(`${line} --num-beams 3`), `${best.text}\n`);

  const [first, second] = [text.slice(3, 5), text.slice(5, 8)];
  const at = Math.min(...[first, second].map((stop) => text.indexOf(stop)));
  const stops = `${line} --stop '${second}' --stop '${first}'`;
  const [stopped] = await rowsOf(stops);
  assertEquals([stopped.text, stopped.finish_reason], [text.slice(0, at), "stop"]);
  assert(stopped.tokens.length > 0 && stopped.tokens.length < 12, "tokens are kept");
  assertEquals(await succeed(stops), `${stopped.text}\n`);
});

Deno.test("end tokens: the model's, other ones, none", async () => {
  const { eos, prompt, output } = withEos, stdin = jsonLines({ tokens: prompt });
  for (
    const [flags, length, reason] of [
      [`--eos ${eos}`, output.length, "eos"],
      [`--eos 511,${eos}`, output.length, "eos"],
      [`--eos ${eos} --ignore-eos`, 32, "length"],
    ]
  ) {
    const [row] = await rowsOf(`${GENERATE} --max-tokens 32 ${flags}`, { stdin });
    assertEquals([row.tokens.length, row.finish_reason], [length, reason], flags);
    assertEquals(row.tokens.slice(0, output.length), output);
  }
});

Deno.test("beams: golden ids and scores, best first", async () => {
  const { beams, max_new_tokens, prompt, outputs } = EXPECTED.beam.find((
    { eos, length_penalty }: Record<string, number | null>,
  ) => eos === null && length_penalty === 1);
  const [{ id, sequences, stats }] = await rowsOf(
    `${GENERATE} --num-beams ${beams} --num-return ${beams} --max-tokens ${max_new_tokens} --ignore-eos`,
    { stdin: jsonLines({ id: "b", tokens: prompt }) },
  );
  assertEquals([id, stats.prompt_tokens], ["b", prompt.length]);
  assertEquals(idsOf(sequences), idsOf(outputs));
  sequences.forEach((sequence: { score: number }, i: number) => {
    assertEquals(Object.keys(sequence), ["text", "tokens", "finish_reason", "score"]);
    assert(Math.abs(sequence.score - outputs[i].score) < 1e-4);
  });
});

Deno.test("sampling: a seed repeats its results, in any batch; samples of a prompt differ", async () => {
  const how = "--temperature 1.2 --top-p 0.95 --top-k 50 --num-return 3 --max-tokens 8 --seed";
  const sampled = (flags: string) =>
    rowsOf(`${GENERATE} ${how} ${flags}`, { stdin: jsonLines({ prompt: "a" }, { prompt: "b" }) });
  const rows = await sampled("1");
  assertEquals(await sampled("1 --batch 1 --threads 1"), rows);
  assert(JSON.stringify(await sampled("2")) !== JSON.stringify(rows));
  assertEquals(new Set(idsOf(rows[0].sequences).join(";").split(";")).size, 3);
  assertEquals(rows[0].stats.new_tokens, 24);
});

Deno.test("--early-stopping and --repetition-penalty are those of transformers", async () => {
  const golden = readFixture("golden/decoding.json");
  const plain = `generate --model ${PLAIN_MODEL} --repetition-penalty`;
  const { beams, ...search } = golden.beam.find((one: Record<string, number>) =>
    one.repetition_penalty! > 1
  );
  const line = `${plain} ${search.repetition_penalty} --max-tokens ${search.max_new_tokens} ` +
    `--eos ${search.eos} --num-beams ${beams} --num-return ${beams} ` +
    `--length-penalty ${search.length_penalty} --early-stopping`;
  for (const [stopping, outputs] of Object.entries<{ ids: number[] }[]>(search.outputs)) {
    const stdin = jsonLines({ tokens: search.prompt });
    const [row] = await rowsOf(`${line} ${stopping}`, { stdin });
    assertEquals(idsOf(row.sequences), idsOf(outputs), stopping);
  }
  const { prompt, output, repetition_penalty } = golden.greedy.at(-1);
  const [row] = await rowsOf(`${plain} ${repetition_penalty} --ignore-eos --max-tokens 24`, {
    stdin: jsonLines({ tokens: prompt }),
  });
  assertEquals(row.tokens, output);
});

Deno.test("--logit-bias, --frequency-penalty and --presence-penalty change tokens as they say", async () => {
  const tokensOf = async (flags = "") => {
    const line = `${GENERATE} --max-tokens 12 --ignore-eos ${flags}`;
    return (await rowsOf(line, { stdin: jsonLines({ prompt: "The fox" }) }))[0].tokens as number[];
  };
  const [first] = await tokensOf();
  assertEquals(new Set(await tokensOf(`--logit-bias ${first}=100`)), new Set([first]));
  for (const beams of ["", "--num-beams 2"]) {
    assert(!(await tokensOf(`--logit-bias ${first}=-100 ${beams}`)).includes(first!));
  }
  const once = `--logit-bias ${first}=1.5 --frequency-penalty=2 --presence-penalty=2`;
  assert(new Set(await tokensOf(once)).size > 1);
});

Deno.test("--json-schema limits every answer, of beams too", () =>
  withScratch(async (cwd) => {
    const schema = { type: "object", properties: { a: { type: "boolean" } }, required: ["a"] };
    await Deno.writeTextFile(`${cwd}/schema.json`, JSON.stringify(schema));
    const plain = `${GENERATE} --max-tokens 60 --json-schema`;
    const stdin = jsonLines({ prompt: "a" }, { prompt: "b" });
    for (const flags of ["", "--num-beams 2", "--temperature 1 --num-return 2"]) {
      const rows = await rowsOf(`${plain} schema.json ${flags}`, { stdin, cwd });
      for (const { text } of rows.flatMap((row) => row.sequences ?? [row])) {
        assertEquals(typeof JSON.parse(text).a, "boolean", flags);
      }
    }
  }));

const TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}" +
  "{% if add_generation_prompt %}<assistant>{% endif %}";

Deno.test("messages and --chat go through the template, with the tools of a row", () =>
  withScratch(async (folder) => {
    const tooled = `{% for t in tools or [] %}{{ t.name }}{% endfor %}${TEMPLATE}`;
    const model = await copyFolder(MODEL, `${folder}/m`, { "chat_template.jinja": tooled });
    const run = `generate --model ${model} --max-tokens 4`, text = "<user>hi\n<assistant>";
    const messages = [{ role: "user", content: "hi" }], tools = [{ name: "clock" }];
    const prompts = [{ prompt: text }, { prompt: `clock${text}` }];
    const stdin = jsonLines({ messages }, { messages, tools }, ...prompts);
    const [row, withTools, ...expected] = await rowsOf(run, { stdin });
    assertEquals([row.tokens, withTools.tokens], expected.map(({ tokens }) => tokens));
    assertEquals((await rowsOf(`${run} --chat --prompt hi`))[0].tokens, row.tokens);
    const brief = { messages: [{ role: "system", content: "Brief" }, ...messages] };
    const [asked] = await rowsOf(run, { stdin: jsonLines(brief) });
    assertEquals(
      (await rowsOf(`${run} --chat --system Brief --prompt hi`))[0].tokens,
      asked.tokens,
    );
  }));

Deno.test("beams: a prompt that fills the context has its own row, and the rows after it too", async () => {
  const stdin = jsonLines({ tokens: new Array(2048).fill(1) }, { tokens: [5, 6, 7] });
  const beams = `${GENERATE} --num-beams 2 --max-tokens 4`;
  const single = await rowsOf(beams, { stdin });
  assertEquals(single.map(({ id, tokens }) => [id, tokens.length]), [[0, 0], [1, 4]]);
  assertEquals(single[0]!.finish_reason, "length");
  // Fewer results than were asked for still end the prompt, in the same form as any other.
  const several = await rowsOf(`${beams} --num-return 2`, { stdin });
  assertEquals(several.map(({ id, sequences }) => [id, sequences.length]), [[0, 1], [1, 2]]);
});

Deno.test("samples of a prompt keep their order, whichever ends first", async () => {
  const ends = Array.from({ length: 60 }, (_, id) => id * 8).join(",");
  const line =
    `${GENERATE} --prompt a --temperature 1 --num-return 6 --max-tokens 40 --eos ${ends}`;
  const [alone, together] = await Promise.all(
    ["1", "6"].map(async (batch) => idsOf((await rowsOf(`${line} --batch ${batch}`))[0].sequences)),
  );
  assertEquals(together, alone);
  const lengths = alone!.map((ids) => ids!.length);
  assert(lengths.some((length, i) => length < (lengths[i - 1] ?? 0)), "a later one ends first");
});

Deno.test("-v tells load time, first token, rates and peak memory", async () => {
  const { code, stderr } = await runParscale(`${GENERATE} --prompt a --max-tokens 4 -v`);
  assertEquals(code, 0);
  assertMatch(
    stderr,
    /^loaded in [\d.]+ s; first text after [\d.]+ s; \d+ prompt tokens, [\d,]+ tok\/s; 4 new tokens, [\d,]+ tok\/s; peak memory [\d.]+ MB$/m,
  );
  assertMatch(stderr, /^generate took [\d.]+ s$/m);
  const beams = await runParscale(`${GENERATE} --prompt a --max-tokens 4 --num-beams 2 -v`);
  assertMatch(beams.stderr, /; \d+ prompt tokens; 4 new tokens, /);
});
