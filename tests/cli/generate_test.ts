/** `parscale generate` as a black box: results. Input, errors and streams are in `generate_io_test`. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import {
  assertRefused,
  copyFolder,
  EXPECTED,
  jsonLines,
  MODEL,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

const GENERATE = ["generate", "--model", MODEL];
const { prompts, outputs, with_eos: withEos } = EXPECTED.greedy;
const GREEDY_ROWS = jsonLines(...prompts.map((tokens: number[]) => ({ tokens })));

Deno.test("greedy rows: the golden ids, and exactly the fields of the contract", async () => {
  const rows = await rowsOf([...GENERATE, "--max-tokens", "32", "--ignore-eos"], {
    stdin: GREEDY_ROWS,
  });
  assertEquals(rows.map(({ tokens }) => tokens), outputs);
  rows.forEach((row, i) => {
    assertEquals(Object.keys(row), ["id", "text", "tokens", "finish_reason", "stats"]);
    assertEquals([row.id, row.finish_reason, typeof row.text], [i, "length", "string"]);
    assertEquals(row.stats, { prompt_tokens: prompts[i].length, new_tokens: 32 });
  });
});

Deno.test("the reference device and one thread give the same greedy ids", async () => {
  const few = [...GENERATE, "--max-tokens", "6", "--ignore-eos"];
  for (const device of [["--device", "reference"], ["--threads", "1"], ["--batch", "1"]]) {
    const rows = await rowsOf([...few, ...device], { stdin: GREEDY_ROWS });
    assertEquals(
      rows.map(({ tokens }) => tokens),
      outputs.map((ids: number[]) => ids.slice(0, 6)),
      device.join(" "),
    );
  }
});

Deno.test("table, json, csv and md hold the same results", async () => {
  const run = async (...format: string[]) => {
    const args = [...GENERATE, "--max-tokens", "4", ...format];
    const result = await runParscale(args, {
      stdin: jsonLines({ id: "x", prompt: "a" }, { prompt: "b" }),
    });
    assertEquals([result.code, result.stderr], [0, ""]);
    return result.stdout;
  };
  const rows = parseLines(await run("--jsonl"));
  const document = JSON.parse(await run("--json"));
  assertEquals([document.schema, document.command], ["parscale.generate/1", "generate"]);
  assertEquals([document.device, document.seed, document.config.max_tokens], ["cpu", 0, 4]);
  assertEquals(document.results, rows);
  const csv = await run("--format", "csv");
  assertStringIncludes(csv, "id,finish_reason,text,error");
  assertStringIncludes(csv, "x,length,");
  const table = (await run()).trimEnd().split("\n");
  assertEquals(table.length, 3);
  assertMatch(table[0]!.trim(), /^id +finish reason +text +error$/);
  assertStringIncludes(await run("--format", "md"), "| x | length |");
});

Deno.test("one prompt is plain text: the row's text and a line end", async () => {
  const args = [...GENERATE, "--prompt", "hello world", "--max-tokens", "12"];
  const [plain, [row]] = await Promise.all([runParscale(args), rowsOf(args)]);
  assertEquals([plain.code, plain.stderr], [0, ""]);
  assertEquals(plain.stdout, `${row.text}\n`);
  const beams = [...args, "--num-beams", "3"];
  const [searched, [best]] = await Promise.all([runParscale(beams), rowsOf(beams)]);
  assertEquals(searched.stdout, `${best.text}\n`);
});

Deno.test("end tokens: the model's, other ones, none", async () => {
  const { eos, prompt, output } = withEos;
  const stdin = jsonLines({ tokens: prompt });
  const run = async (...args: string[]) =>
    (await rowsOf([...GENERATE, "--max-tokens", "32", ...args], { stdin }))[0];
  const ended = await run("--eos", String(eos));
  assertEquals([ended.tokens, ended.finish_reason], [output, "eos"]);
  const several = await run("--eos", `511,${eos}`);
  assertEquals(several.tokens, output);
  const ignored = await run("--eos", String(eos), "--ignore-eos");
  assertEquals([ignored.tokens.length, ignored.finish_reason], [32, "length"]);
});

Deno.test("--stop cuts the text, keeps the tokens; the earliest of several wins", async () => {
  const args = [...GENERATE, "--prompt", "hello world", "--max-tokens", "12"];
  const [{ text }] = await rowsOf(args);
  const [first, second] = [text.slice(3, 5), text.slice(5, 8)];
  const at = Math.min(...[first, second].map((stop) => text.indexOf(stop)));
  const [stopped] = await rowsOf([...args, "--stop", second, "--stop", first]);
  assertEquals([stopped.text, stopped.finish_reason], [text.slice(0, at), "stop"]);
  assert(stopped.tokens.length > 0 && stopped.tokens.length < 12);
  const plain = await runParscale([...args, "--stop", second, "--stop", first]);
  assertEquals(plain.stdout, `${stopped.text}\n`);
});

Deno.test("beams: golden ids and scores, best first", async () => {
  const search = EXPECTED.beam.find((one: { eos: number | null; length_penalty: number }) =>
    one.eos === null && one.length_penalty === 1
  );
  const rows = await rowsOf([
    ...[...GENERATE, "--num-beams", String(search.beams), "--num-return", String(search.beams)],
    ...["--max-tokens", String(search.max_new_tokens), "--ignore-eos"],
  ], { stdin: jsonLines({ id: "b", tokens: search.prompt }) });
  const [{ id, sequences, stats }] = rows;
  assertEquals([id, stats.prompt_tokens], ["b", search.prompt.length]);
  assertEquals(
    sequences.map(({ tokens }: { tokens: number[] }) => tokens),
    search.outputs.map(({ ids }: { ids: number[] }) => ids),
  );
  sequences.forEach((sequence: { score: number }, i: number) => {
    assertEquals(Object.keys(sequence), ["text", "tokens", "finish_reason", "score"]);
    assert(Math.abs(sequence.score - search.outputs[i].score) < 1e-4);
  });
});

Deno.test("sampling: a seed repeats its results, in any batch; samples of a prompt differ", async () => {
  const sampled = (...args: string[]) =>
    rowsOf([
      ...[...GENERATE, "--temperature", "1.2", "--top-p", "0.95", "--top-k", "50"],
      ...["--num-return", "3", "--max-tokens", "8", ...args],
    ], { stdin: jsonLines({ prompt: "a" }, { prompt: "b" }) });
  const rows = await sampled("--seed", "1");
  assertEquals(await sampled("--seed", "1", "--batch", "1", "--threads", "1"), rows);
  const other = await sampled("--seed", "2");
  assert(JSON.stringify(other) !== JSON.stringify(rows));
  const texts = rows[0].sequences.map(({ tokens }: { tokens: number[] }) => tokens.join());
  assertEquals(new Set(texts).size, 3);
  assertEquals(rows[0].stats.new_tokens, 24);
});

Deno.test("several results per prompt are a table row each", async () => {
  const { code, stdout } = await runParscale([
    ...[...GENERATE, "--prompt", "a", "--temperature", "1", "--num-return", "2"],
    ...["--max-tokens", "3", "--format", "csv"],
  ]);
  assertEquals(code, 0);
  assertEquals(stdout.match(/^0,length,/gm)?.length, 2);
});

Deno.test("--quantize q8 and q4 run, with blocks of other sizes; q3 is misuse", async () => {
  for (const how of [["q8"], ["q4"], ["q4", "--block-size", "64"]]) {
    const args = [...GENERATE, "--max-tokens", "4", "--quantize", ...how];
    assertEquals((await rowsOf(args, { stdin: GREEDY_ROWS })).length, prompts.length, `${how}`);
  }
  const wrong = await runParscale([...GENERATE, "--quantize", "q3", "--prompt", "a"]);
  assertEquals(wrong.code, 2);
});

Deno.test("--early-stopping and --repetition-penalty are those of transformers", async () => {
  const golden = JSON.parse(
    Deno.readTextFileSync(new URL("../../fixtures/golden/decoding.json", import.meta.url)),
  );
  const plain = ["generate", "--model", PLAIN_MODEL];
  const search = golden.beam.find((one: Record<string, number>) => one.repetition_penalty! > 1);
  for (const [stopping, outputs] of Object.entries(search.outputs)) {
    const [row] = await rowsOf([
      ...[...plain, "--max-tokens", `${search.max_new_tokens}`, "--eos", search.eos.join()],
      ...["--num-beams", `${search.beams}`, "--num-return", `${search.beams}`],
      ...["--length-penalty", `${search.length_penalty}`, "--early-stopping", stopping],
      ...["--repetition-penalty", `${search.repetition_penalty}`],
    ], { stdin: jsonLines({ tokens: search.prompt }) });
    assertEquals(
      row.sequences.map(({ tokens }: { tokens: number[] }) => tokens),
      (outputs as { ids: number[] }[]).map(({ ids }) => ids),
      stopping,
    );
  }
  const { prompt, output, repetition_penalty } = golden.greedy.at(-1);
  const flags = ["--ignore-eos", "--max-tokens", "24", "--repetition-penalty"];
  const stdin = jsonLines({ tokens: prompt });
  const [row] = await rowsOf([...plain, ...flags, `${repetition_penalty}`], { stdin });
  assertEquals(row.tokens, output);
  for (const bad of [["--repetition-penalty", "0"], ["--early-stopping", "maybe"]]) {
    assertEquals((await runParscale([...plain, "--prompt", "a", ...bad])).code, 2, bad.join(" "));
  }
});

Deno.test("--logit-bias, --frequency-penalty and --presence-penalty change tokens as they say", async () => {
  const plain = [...GENERATE, "--max-tokens", "12", "--ignore-eos"];
  const stdin = jsonLines({ prompt: "The fox" });
  const tokensOf = async (...flags: string[]) =>
    (await rowsOf([...plain, ...flags], { stdin }))[0].tokens as number[];
  const [first] = await tokensOf();
  assertEquals(new Set(await tokensOf("--logit-bias", `${first}=100`)), new Set([first]));
  assertEquals((await tokensOf("--logit-bias", `${first}=-100`)).includes(first!), false);
  const once = ["--logit-bias", `${first}=1.5`, "--frequency-penalty=2", "--presence-penalty=2"];
  assertEquals(new Set(await tokensOf(...once)).size > 1, true);
  const beams = await tokensOf("--num-beams", "2", "--logit-bias", `${first}=-100`);
  assertEquals(beams.includes(first!), false);
  const wrong = ["--logit-bias=x", "--logit-bias=1=101", "--logit-bias=99999=1"];
  for (const bad of [...wrong, "--presence-penalty=3"]) {
    assertEquals((await runParscale([...GENERATE, "--prompt", "a", bad])).code, 2, bad);
  }
});

Deno.test("--json-schema limits every answer, of beams too", () =>
  withScratch(async (cwd) => {
    const schema = { type: "object", properties: { a: { type: "boolean" } }, required: ["a"] };
    await Deno.writeTextFile(`${cwd}/schema.json`, JSON.stringify(schema));
    await Deno.writeTextFile(`${cwd}/bad.json`, JSON.stringify({ not: schema }));
    const plain = [...GENERATE, "--max-tokens", "60", "--json-schema"];
    const stdin = jsonLines({ prompt: "a" }, { prompt: "b" });
    for (const flags of [[], ["--num-beams", "2"], ["--temperature", "1", "--num-return", "2"]]) {
      const rows = await rowsOf([...plain, "schema.json", ...flags], { stdin, cwd });
      for (const row of rows) {
        for (const { text } of row.sequences ?? [row]) {
          assertEquals(typeof JSON.parse(text).a, "boolean", flags.join(" "));
        }
      }
    }
    const refused = await runParscale([...plain, "bad.json", "--prompt", "a"], { cwd });
    assertRefused(refused, 3, 'the schema keyword "not" is not supported');
    assertEquals((await runParscale([...plain, "none.json", "--prompt", "a"], { cwd })).code, 3);
  }));

Deno.test("--quantize needs a device that can, --block-size needs --quantize", async () => {
  const run = (command: string, ...args: string[]) =>
    runParscale([command, "--model", MODEL, ...args], { stdin: "" });
  for (const command of ["generate", "score", "visualize"]) {
    assertRefused(
      await run(command, "--quantize", "q8", "--device", "reference"),
      2,
      "the reference device cannot run with `--quantize q8`",
    );
    const message = "`--block-size` needs `--quantize q8` or `q4`";
    assertRefused(await run(command, "--block-size", "64"), 2, message);
  }
});

Deno.test("--adapter lays introduced tensors over a plain backbone", () =>
  withScratch(async (folder) => {
    const convert = ["convert", "--model", PLAIN_MODEL, "--streams", "2", "--prefix-tokens", "4"];
    for (const out of [["adapter", "--introduced-only"], ["whole"]]) {
      await succeed([...convert, "--out", ...out], { cwd: folder });
    }
    const few = ["--max-tokens", "6"];
    const [laid, written, bare] = await Promise.all([
      ["--model", PLAIN_MODEL, "--adapter", `${folder}/adapter`],
      ["--model", `${folder}/whole`],
      ["--model", PLAIN_MODEL],
    ].map((args) => rowsOf(["generate", ...args, ...few], { stdin: GREEDY_ROWS })));
    assertEquals(laid, written);
    assert(JSON.stringify(laid) !== JSON.stringify(bare));
  }));

const TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}" +
  "{% if add_generation_prompt %}<assistant>{% endif %}";

Deno.test("messages and --chat go through the template, and say so where there is none", () =>
  withScratch(async (folder) => {
    const model = await copyFolder(MODEL, `${folder}/m`, { "chat_template.jinja": TEMPLATE });
    const run = ["generate", "--model", model, "--max-tokens", "4"];
    const messages = [{ role: "user", content: "hi" }];
    const [rows, [chat]] = await Promise.all([
      rowsOf(run, { stdin: jsonLines({ messages }, { prompt: "<user>hi\n<assistant>" }) }),
      rowsOf([...run, "--chat", "--prompt", "hi"]),
    ]);
    assertEquals([rows[1].tokens, chat.tokens], [rows[0].tokens, rows[0].tokens]);
    const wrong = await runParscale(run, { stdin: jsonLines({ messages: [{ role: "user" }, 5] }) });
    assertEquals([wrong.code, wrong.stdout], [3, ""]);
    assertStringIncludes(
      wrong.stderr,
      "error: line 1 of stdin: message 2 must have role and content as text: 5",
    );
    for (const args of [[], ["--chat"]]) {
      const row = args.length > 0 ? { prompt: "hi" } : { messages };
      const none = await runParscale([...GENERATE, ...args], { stdin: jsonLines(row) });
      assertEquals(none.code, 3);
      assertStringIncludes(
        none.stderr,
        `"${MODEL}" has no chat template for messages`,
      );
    }
  }));

Deno.test("beams: a prompt that fills the context has its own row, and the rows after it too", async () => {
  const full = { tokens: new Array(2048).fill(1) };
  const stdin = [full, { tokens: [5, 6, 7] }].map((row) => JSON.stringify(row)).join("\n");
  const beams = ["--num-beams", "2", "--max-tokens", "4"];
  const single = await rowsOf([...GENERATE, ...beams], { stdin });
  assertEquals(single.map(({ id, tokens }) => [id, tokens.length]), [[0, 0], [1, 4]]);
  assertEquals(single[0]!.finish_reason, "length");
  // Fewer results than were asked for still end the prompt, in the same form as any other.
  const several = await rowsOf([...GENERATE, ...beams, "--num-return", "2"], { stdin });
  assertEquals(several.map(({ id, sequences }) => [id, sequences.length]), [[0, 1], [1, 2]]);
});

Deno.test("samples of a prompt keep their order, whichever ends first", async () => {
  const ends = Array.from({ length: 60 }, (_, id) => id * 8).join(",");
  const args = [
    ...[...GENERATE, "--prompt", "a", "--temperature", "1", "--num-return", "6"],
    ...["--max-tokens", "40", "--eos", ends],
  ];
  const [[alone], [together]] = await Promise.all(
    ["1", "6"].map((batch) => rowsOf([...args, "--batch", batch])),
  ) as [Record<string, { tokens: number[] }[]>[], Record<string, { tokens: number[] }[]>[]];
  const tokens = (row: typeof alone) => row!.sequences!.map((sequence) => sequence.tokens);
  assertEquals(tokens(together), tokens(alone));
  const lengths = tokens(alone).map(({ length }) => length);
  assert(
    lengths.some((length, i) => length < (lengths[i - 1] ?? 0)),
    "some later sample ends first",
  );
});

Deno.test("-v tells load time, first token, rates and peak memory", async () => {
  const args = [...GENERATE, "--prompt", "a", "--max-tokens", "4", "-v"];
  const { code, stderr } = await runParscale(args);
  assertEquals(code, 0);
  assertMatch(
    stderr,
    /^loaded in [\d.]+ s; first text after [\d.]+ s; \d+ prompt tokens, [\d,]+ tok\/s; 4 new tokens, [\d,]+ tok\/s; peak memory [\d.]+ MB$/m,
  );
  assertMatch(stderr, /^generate took [\d.]+ s$/m);
});
