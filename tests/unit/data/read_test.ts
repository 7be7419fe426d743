/** Protects the readers: every format and packing, and what each bad file is told. */
import { spawnSync } from "node:child_process";
import { assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { parseExactJson } from "../../../core/base/exact_json.ts";
import { DataError } from "../../../core/base/errors.ts";
import type { Document } from "../../../core/data/document.ts";
import { withScratch } from "../../scratch.ts";
import { bytesOf, DATA, gzip, jsonLines, readAll, streamOf, zstd } from "./testing.ts";

const ROWS = [{ text: "One" }, { text: "Größe 你好 👍🏽" }, { text: "" }];
const TEXTS = ROWS.map(({ text }) => text);

const textsOf = async (path: string, stdin?: ReadableStream<Uint8Array>) =>
  (await readAll(path, stdin)).map((document) => document.kind === "text" ? document.text : "?");

Deno.test("JSON lines are read plain, packed, under every ending", () =>
  withScratch(async (folder) => {
    const text = jsonLines(ROWS);
    const files: Record<string, Uint8Array> = {
      "a.jsonl": bytesOf(text),
      "a.ndjson": bytesOf(text.replaceAll("\n", "\r\n")),
      "a.JSON": bytesOf(text.trimEnd()),
      "a.jsonl.gz": await gzip(text),
      "a.jsonl.zst": zstd(text),
      "a.json.zstd": zstd(`\ufeff${text}`),
    };
    for (const [name, bytes] of Object.entries(files)) {
      Deno.writeFileSync(`${folder}/${name}`, bytes);
      assertEquals(await textsOf(`${folder}/${name}`), TEXTS, name);
    }
  }));

Deno.test("packed files of several members or frames are read to their end", () =>
  withScratch(async (folder) => {
    const [a, b] = [jsonLines(ROWS.slice(0, 1)), jsonLines(ROWS.slice(1))];
    // Between the frames one that decompressors are to skip.
    const skipped = Uint8Array.of(0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3);
    const parts = { gz: [await gzip(a), await gzip(b)], zst: [zstd(a), skipped, zstd(b)] };
    for (const [ending, pieces] of Object.entries(parts)) {
      const path = `${folder}/a.jsonl.${ending}`;
      Deno.writeFileSync(path, new Uint8Array(await new Blob(pieces as BlobPart[]).arrayBuffer()));
      assertEquals(await textsOf(path), TEXTS);
    }
    assertEquals(await textsOf(`${DATA}/packed.jsonl.zst`), ["From a file", "packed by zstd"]);
    // Many blocks, with and without content that repeats.
    const long = ["x".repeat(1e6), Array.from({ length: 2e5 }, Math.random).join()];
    Deno.writeFileSync(`${folder}/long.jsonl.zst`, zstd(jsonLines(long.map((text) => ({ text })))));
    assertEquals(await textsOf(`${folder}/long.jsonl.zst`), long);
  }));

Deno.test("packed files that are cut short or damaged are refused", () =>
  withScratch(async (folder) => {
    const text = jsonLines(Array.from({ length: 3000 }, (_, i) => ({ text: `row ${i * i}` })));
    for (const [ending, bytes] of [["gz", await gzip(text)], ["zst", zstd(text)]] as const) {
      const path = `${folder}/a.jsonl.${ending}`;
      for (const cut of [3, 9, bytes.length >> 1, bytes.length - 1]) {
        Deno.writeFileSync(path, bytes.slice(0, cut));
        const words = `"${path}" is not valid ${ending === "gz" ? "gzip" : "zstd"} data: `;
        await assertRejects(() => readAll(path), DataError, words);
      }
      Deno.writeFileSync(path, bytesOf(text));
      await assertRejects(() => readAll(path), DataError, "is not valid ");
    }
  }));

Deno.test("anything else is plain text, one document per file", () =>
  withScratch(async (folder) => {
    const text = '{"not": "JSON lines"}\n\n  é\n';
    Deno.writeTextFileSync(`${folder}/a.py`, text);
    Deno.writeFileSync(`${folder}/b.txt.gz`, await gzip(text));
    const documents = [{ row: 1, kind: "text", text } as const];
    assertEquals(await readAll(`${folder}/a.py`), documents);
    assertEquals(await readAll(`${folder}/b.txt.gz`), documents);
  }));

Deno.test("standard input tells its format by its first bytes", async () => {
  const text = jsonLines(ROWS);
  for (const piece of [1, 7, 1e6]) {
    const read = (bytes: Uint8Array) => textsOf("-", streamOf(bytes, piece));
    assertEquals(await read(bytesOf(text)), TEXTS);
    assertEquals(await read(bytesOf(`\ufeff${text}`)), TEXTS);
    assertEquals(await read(await gzip(text)), TEXTS);
    assertEquals(await read(zstd(text)), TEXTS);
    assertEquals(await read(bytesOf("[plain] text")), ["[plain] text"]);
    assertEquals(await read(bytesOf("a")), ["a"]);
  }
  const table = Deno.readFileSync(`${DATA}/text.parquet`);
  await assertRejects(() => readAll("-", streamOf(table)), DataError, "Parquet");
});

Deno.test("a line may be far longer than what is read at once", () =>
  withScratch(async (folder) => {
    const text = "0123456789".repeat(1e6);
    const rows = [{ text: "a" }, { text }, { text: "b" }];
    Deno.writeTextFileSync(`${folder}/a.jsonl`, jsonLines(rows));
    assertEquals(await textsOf(`${folder}/a.jsonl`), ["a", text, "b"]);
  }));

Deno.test("rows of every kind are read, other keys ignored, null taken for absent", () =>
  withScratch(async (folder) => {
    const read = async (...rows: unknown[]) => {
      Deno.writeTextFileSync(`${folder}/a.jsonl`, `\n${jsonLines(rows)}  \n`);
      return await readAll(`${folder}/a.jsonl`);
    };
    assertEquals(await read({ id: 1, text: "a", tokens: null }), [
      { row: 2, kind: "text", text: "a" }, // the line, though the first is blank
    ]);
    assertEquals(await read({ tokens: [1, 2], labels: [-100, 2] }, { tokens: [3] }), [
      { row: 2, kind: "tokens", tokens: Int32Array.of(1, 2), labels: Int32Array.of(-100, 2) },
      { row: 3, kind: "tokens", tokens: Int32Array.of(3) },
    ]);
    Deno.writeTextFileSync(`${folder}/b.jsonl`, '{"text": "a", "score": NaN}\n'); // of Python
    assertEquals(await readAll(`${folder}/b.jsonl`), [{ row: 1, kind: "text", text: "a" }]);
    assertEquals(await read({ prompt: "", completion: "b" }), [
      { row: 2, kind: "completion", prompt: "", completion: "b" },
    ]);
    const answer = { role: "assistant", content: "Ho", x: [1] };
    const messages = [{ role: "user", content: "Hi" }, answer];
    assertEquals(await read({ messages, tools: [{}] }), [
      { row: 2, kind: "messages", messages, tools: [{}] },
    ]);
    assertEquals(await read({ input_ids: [1, 2], attention_mask: [1, 1], tokens: null }), [
      { row: 2, kind: "tokens", tokens: Int32Array.of(1, 2) },
    ]);
    // ShareGPT, as by trl.data_utils.maybe_convert_to_chatml, and the names of its roles.
    const from = (from: string, value: unknown) => ({ from, value, weight: null });
    const chat = (role: string, content: unknown) => ({ role, content, weight: null });
    const conversations = [
      from("system", "s"),
      from("human", "a"),
      { ...from("gpt", null), tool_calls: [{}] },
      from("tool", "1"),
      from("assistant", "b"),
    ];
    const converted = [
      chat("system", "s"),
      chat("user", "a"),
      { ...chat("assistant", null), tool_calls: [{}] },
      chat("tool", "1"),
      chat("assistant", "b"),
    ];
    const expected = { row: 2, kind: "messages", messages: converted } as const;
    for (
      const row of [{ conversations }, { messages: conversations }, { conversations: converted }]
    ) {
      assertEquals(await read({ id: 1, ...row }), [expected]);
    }
    // Tables hold lists of different shapes as JSON text.
    const texts = { conversations: JSON.stringify(conversations), tools: '[{"x": 1.0}]' };
    const blank = { ...texts, tools: "" }, none = { ...texts, tools: "null" };
    assertEquals(await read(texts, blank, none), [
      { ...expected, tools: parseExactJson(texts.tools) as unknown[] },
      { ...expected, row: 3 },
      { ...expected, row: 4 },
    ]);
  }));

Deno.test("a bad row is named with what is wrong", () =>
  withScratch(async (folder) => {
    const path = `${folder}/a.jsonl`;
    const user = { role: "user", content: "Hi" };
    const cases: [string, RegExp][] = [
      ["[1]", /is not a JSON object: \[1\]/],
      ["{}", /is an empty object/],
      ['{"text": null}', /has null in "text"$/],
      ['{"id": 1, "text": null, "messages": null}', /has null in "text", "messages"$/],
      ['{"body": "a"}', /has no "text", "tokens", "prompt" or "messages": its keys are "body"/],
      ['{"text": 1}', /has 1 in "text", expected text/],
      ['{"text": "a", "tokens": [1]}', /mixes the keys of several kinds: "text" and "tokens"/],
      ['{"text": "a", "messages": []}', /"text" and "messages"/],
      ['{"tokens": []}', /no token in "tokens"/],
      ['{"tokens": [1, -1]}', /token id -1/],
      ['{"tokens": [1.5]}', /1.5 in "tokens"/],
      ['{"tokens": [2147483648]}', /2147483648 in "tokens"/],
      ['{"tokens": ["1"]}', /"1" in "tokens"/],
      ['{"tokens": [1, {"toString": 1, "__proto__": null}, 3]}', /in "tokens", expected integers/],
      ['{"tokens": [[1]]}', /in "tokens", expected integers/],
      ['{"tokens": "12"}', /has "12" in "tokens", expected a list/],
      ['{"labels": [1]}', /has nothing in "tokens", expected a list/],
      ['{"tokens": [1, 2], "labels": [1]}', /1 labels, expected 2/],
      ['{"tokens": [1, 2], "labels": [2, -100]}', /label 2 for token 1/],
      ['{"prompt": "a"}', /has nothing in "completion", expected text/],
      ['{"prompt": "a", "completion": ""}', /empty "completion"/],
      ['{"messages": []}', /has \[\] in "messages"/],
      ['{"messages": ["Hi"]}', /message "Hi"/],
      ['{"messages": "Hi"}', /has "Hi" in "messages", expected a list/],
      ['{"conversations": []}', /has \[\] in "conversations"/],
      ['{"conversations": [{"value": "a"}]}', /has message \{"value":"a"\}/],
      ['{"conversations": [{"from": "human", "value": "a"}]}', /has no assistant turn,/],
      ['{"input_ids": []}', /has no token in "input_ids"/],
      [
        '{"messages": [{"role": "assistant", "weight": 0.0}]}',
        /no assistant turn but of weight 0,/,
      ],
      [
        '{"messages": [{"role": "assistant", "weight": 0.5}]}',
        /has weight 0.5 .*, expected 0 or 1/,
      ],
      ['{"messages": [{"role": "assistant", "weight": true}]}', /has weight true/],
      ['{"conversations": [{"from": "gpt", "weight": "0"}]}', /has weight "0"/],
      [JSON.stringify({ messages: [user] }), /no assistant turn/],
      [JSON.stringify({ messages: [user, { role: "assistant" }], tools: 1 }), /has 1 in "tools"/],
    ];
    for (const [row, reason] of cases) {
      Deno.writeTextFileSync(path, `\n${row}\n`);
      const { message } = await assertRejects(() => readAll(path), DataError);
      assertStringIncludes(message, `row 2 of "${path}" `);
      assertMatch(message, reason);
    }
  }));

Deno.test({
  name: "rows of other programs are refused with the jq command that converts them",
  ignore: spawnSync("jq", ["--version"]).status !== 0,
  fn: () =>
    withScratch(async (cwd) => {
      const path = `${cwd}/a.jsonl`;
      const turn = (role: string, content: string) => ({ role, content });
      const answer = turn("assistant", "3");
      const task = { instruction: "Add", output: "3" };
      const cases: [content: string, document: Record<string, unknown>][] = [
        [jsonLines([{ ...task, input: "1 2" }]), {
          messages: [turn("user", "Add\n\n1 2"), answer],
        }],
        [jsonLines([{ ...task, input: "" }]), { messages: [turn("user", "Add"), answer] }],
        [jsonLines([task]), { messages: [turn("user", "Add"), answer] }],
        [jsonLines([{ id: 1, content: "a" }]), { text: "a" }],
        ['[{"text": "a"}]', { text: "a" }],
        ['[\n{"text": "a"}\n]', { text: "a" }],
        ['{\n"text": "a"\n}', { text: "a" }],
      ];
      for (const [content, document] of cases) {
        Deno.writeTextFileSync(path, content);
        const { hints } = await assertRejects(() => readAll(path), DataError);
        const [, command] = /`(jq .*)`$/.exec(hints.at(-1)!)!;
        const { status } = spawnSync("sh", ["-c", command!.replace("FILE", "a.jsonl")], { cwd });
        assertEquals(status, 0, command);
        const [{ row, kind: _kind, ...made }] = await readAll(`${cwd}/rows.jsonl`) as [Document];
        assertEquals([row, made], [1, document]);
      }
    }),
});

Deno.test("a file without rows, not in UTF-8 or of one JSON array is refused", () =>
  withScratch(async (folder) => {
    const path = `${folder}/a.jsonl`, text = `${folder}/a.txt`;
    const bad = Uint8Array.of(...bytesOf('{"text": "a"}\n{"text": "'), 0xff, ...bytesOf('"}\n'));
    const cases: [string, Uint8Array, string][] = [
      [path, bytesOf(" \n\n"), `"${path}" has no rows`],
      [text, bytesOf(""), "has no rows"],
      [path, bad, `row 2 of "${path}" is not UTF-8 text`],
      [text, Uint8Array.of(0xff), "not UTF-8"],
    ];
    for (const [name, content, words] of cases) {
      Deno.writeFileSync(name, content);
      await assertRejects(() => readAll(name), DataError, words);
    }
    Deno.writeTextFileSync(path, JSON.stringify([{ text: "a" }], null, 2));
    const { hints } = await assertRejects(() => readAll(path), DataError);
    assertStringIncludes(hints.join(), "one JSON object per line");
    const none = () => readAll(`${folder}/none.jsonl`);
    await assertRejects(none, DataError, "no such file or folder: ");
  }));

Deno.test("Parquet tables of every kind and packing are read", async () => {
  assertEquals(await readAll(`${DATA}/text.parquet`), [
    { row: 1, kind: "text", text: "Hello world." },
    { row: 2, kind: "text", text: "Größe, 你好 👍🏽" },
    { row: 3, kind: "text", text: "" },
    { row: 4, kind: "text", text: "Two\nlines of text" },
  ]);
  assertEquals(await readAll(`${DATA}/tokens.parquet`), [
    { row: 1, kind: "tokens", tokens: Int32Array.of(1, 2, 3), labels: Int32Array.of(-100, 2, 3) },
    { row: 2, kind: "tokens", tokens: Int32Array.of(4) },
    { row: 3, kind: "tokens", tokens: Int32Array.of(5, 6), labels: Int32Array.of(5, 6) },
  ]);
  const [hi, hello] = [{ role: "user", content: "Hi" }, { role: "assistant", content: "Hello!" }];
  const ann = { role: "user", content: "2+2?", name: "Ann" };
  assertEquals(await readAll(`${DATA}/messages.parquet`), [
    { row: 1, kind: "messages", messages: [hi, hello] },
    { row: 2, kind: "messages", messages: [ann, { role: "assistant", content: "4" }] },
  ]);
  assertEquals(await readAll(`${DATA}/completion.parquet`), [
    { row: 1, kind: "completion", prompt: "a", completion: "x" },
    { row: 2, kind: "completion", prompt: "b", completion: "y" },
  ]);
  const [chat] = await readAll(`${DATA}/sharegpt.parquet`);
  assertEquals(chat, {
    row: 1,
    kind: "messages",
    messages: [
      { role: "user", content: "a" },
      { role: "assistant", content: "b", weight: 0 },
      { role: "user", content: "c" },
      { role: "assistant", content: "d", weight: 1 },
    ],
    tools: [{ name: "f", x: 1 }],
  });
});

Deno.test("Parquet tables without our columns or with damage are refused", () =>
  withScratch(async (folder) => {
    const columns = 'or "messages": it has "body", "n"';
    await assertRejects(() => readAll(`${DATA}/other.parquet`), DataError, columns);
    const absent = () => readAll(`${DATA}/input_ids.parquet`);
    await assertRejects(
      absent,
      DataError,
      'row 2 of "' + `${DATA}/input_ids.parquet" has null in "input_ids"`,
    );
    // The command was run by DuckDB 2.0.
    const { hints } = await assertRejects(() => readAll(`${DATA}/alpaca.parquet`), DataError);
    assertEquals(hints, [
      "convert: `duckdb -c \"COPY (SELECT [{role: 'user', content: concat_ws(chr(10) || chr(10), " +
      "instruction, nullif(input, ''))}, {role: 'assistant', content: output}] AS messages " +
      "FROM 'FILE') TO 'rows.parquet'\"`",
    ]);
    const bytes = Deno.readFileSync(`${DATA}/text.parquet`), path = `${folder}/a.parquet`;
    for (const content of [bytes.slice(0, 400), bytes.slice(400), bytes.slice(0, 0)]) {
      Deno.writeFileSync(path, content);
      await assertRejects(() => readAll(path), DataError);
    }
    Deno.writeFileSync(`${path}.gz`, await gzip("PAR1"));
    await assertRejects(() => readAll(`${path}.gz`), DataError, "compressed Parquet");
  }));
