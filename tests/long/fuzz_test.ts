/**
 * Twenty thousand mutated inputs: checkpoints, configurations, tokenizers, chat templates, JSON lines,
 * Parquet tables, compressed files. Each is read or refused with an error of ours.
 */
import { fileURLToPath } from "node:url";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { parseConfig } from "../../core/checkpoint/config.ts";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { readTensor } from "../../core/checkpoint/read.ts";
import { readDocuments } from "../../core/data/read.ts";
import { renderTemplate } from "../../core/tokenizer/template_renderer.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { withScratch } from "../scratch.ts";
import { type Draws, fuzz, type Json, mutateBytes, mutateJson, mutateText } from "./fuzzing.ts";

const FIXTURES = fileURLToPath(new URL("../../fixtures/", import.meta.url));
const MODELS = ["qwen2-p2-tied-f32", "qwen3-p1-tied-f32", "qwen2-p2-untied-bf16"];
const TINY = `${FIXTURES}models/tiny-qwen2`;

const read = (path: string) => Deno.readFileSync(path);
const encode = (value: Json) => new TextEncoder().encode(JSON.stringify(value) ?? "");

function present(names: readonly string[]): string[] {
  const known = new Set([...Deno.readDirSync(`${FIXTURES}models`)].map(({ name }) => name));
  return names.filter((name) => known.has(name));
}

/** A weight file with its header as a document. */
function openWeights(path: string): { header: Json; data: Uint8Array } {
  const bytes = read(path);
  const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  return { header, data: bytes.subarray(8 + length) };
}

function closeWeights(header: Uint8Array, data: Uint8Array, length = header.length): Uint8Array {
  const file = new Uint8Array(8 + header.length + data.length);
  new DataView(file.buffer).setBigUint64(0, BigInt(length), true);
  file.set(header, 8);
  file.set(data, 8 + header.length);
  return file;
}

/** Splits a model into two shards with an index, as documents. */
function shardsOf(header: Json): { index: Json; parts: [string, Json][] } {
  const names = Object.keys(header).filter((name) => name !== "__metadata__");
  const parts = [1, 2].map((i): [string, Json] => [`model-0000${i}-of-00002.safetensors`, {}]);
  const weight_map: Json = {};
  names.forEach((name, i) => {
    const [file, part] = parts[i % 2]!;
    part[name] = header[name];
    weight_map[name] = file;
  });
  return { index: { metadata: { total_size: 1 }, weight_map }, parts };
}

Deno.test("fuzz: 5,000 checkpoints", () =>
  withScratch(async (scratch) => {
    const models = present(MODELS).map((name) => ({
      config: read(`${FIXTURES}models/${name}/config.json`),
      ...openWeights(`${FIXTURES}models/${name}/model.safetensors`),
    }));
    await fuzz("checkpoint", 5000, async (draws) => {
      const folder = `${scratch}/m`;
      Deno.mkdirSync(folder, { recursive: true });
      const { config, header, data } = draws.pick(models);
      const write = (name: string, bytes: Uint8Array) =>
        Deno.writeFileSync(`${folder}/${name}`, bytes);
      const headerOf = (document: Json) => {
        const bytes = draws.below(2) === 0
          ? encode(mutateJson(document, draws))
          : mutateBytes(encode(document), draws);
        const length = draws.pick([bytes.length, bytes.length, bytes.length, 0, 7, 2 ** 40]);
        return closeWeights(bytes, data.subarray(0, draws.pick([data.length, 64])), length);
      };
      write("config.json", config);
      if (draws.below(3) > 0) write("model.safetensors", headerOf(header));
      else {
        const { index, parts } = shardsOf(header);
        write("model.safetensors.index.json", encode(mutateJson(index, draws)));
        for (const [name, part] of parts) {
          write(name, draws.below(2) ? headerOf(part) : closeWeights(encode(part), data));
        }
      }
      try {
        const checkpoint = await openCheckpoint(folder);
        for (const tensor of [...checkpoint.tensors.values()].slice(0, 2)) await readTensor(tensor);
      } finally {
        Deno.removeSync(folder, { recursive: true });
      }
    });
  }));

Deno.test("fuzz: 3,000 configurations", async () => {
  const configs = [...Deno.readDirSync(`${FIXTURES}models`)].filter(({ isDirectory }) =>
    isDirectory
  )
    .map(({ name }) => JSON.parse(Deno.readTextFileSync(`${FIXTURES}models/${name}/config.json`)));
  await fuzz("config", 3000, async (draws) => {
    let config = draws.pick(configs);
    for (let changes = 1 + draws.below(3); changes > 0; changes--) {
      config = mutateJson(config, draws);
    }
    await Promise.resolve(parseConfig(isObject(config) ? config : {}, "config.json"));
  });
});

const isObject = (value: unknown) =>
  typeof value === "object" && value !== null && !Array.isArray(value);

Deno.test("fuzz: 3,000 tokenizers", () =>
  withScratch(async (folder) => {
    const files = ["tokenizer.json", "tokenizer_config.json"];
    const documents = files.map((file) => JSON.parse(Deno.readTextFileSync(`${TINY}/${file}`)));
    const plain = documents.map(encode);
    await fuzz("tokenizer", 3000, async (draws) => {
      const hit = draws.below(4) === 0 ? 1 : 0;
      files.forEach((file, i) => {
        const bytes = i !== hit
          ? plain[i]!
          : draws.below(3) > 0
          ? encode(mutateJson(documents[i], draws))
          : mutateBytes(plain[i]!, draws);
        Deno.writeFileSync(`${folder}/${file}`, bytes);
      });
      const tokenizer = await openTokenizer(folder);
      tokenizer.decode(tokenizer.encode("Hello, wörld <|im_start|> 12 + 34\n\n日本"));
    });
  }));

const FRAGMENTS = `
{{ ¦ }} ¦ {% ¦ %} ¦ {% for i in range(3) %} ¦ {% endfor %} ¦ {% if x %} ¦ {% endif %}
{% else %} ¦ {{ messages }} ¦ {{ messages[0] }} ¦ {% set x = 1 %} ¦ | ¦ |tojson(indent=2)
|length ¦ |join(',') ¦ |upper ¦ [' ¦ '] ¦ ( ¦ ) ¦ . ¦ + ¦ ~ ¦ {% macro f(x) %}
{% endmacro %} ¦ {{ f(1) }} ¦ {# ¦ #} ¦ {%- ¦ -%} ¦ is defined ¦ namespace(a=1)
raise_exception('no') ¦ constructor ¦ __proto__ ¦ messages[::-1] ¦ messages[1:]
strftime_now('%Y') ¦ none ¦ [1, 2] ¦ {'a': 1}
`.trim().split(/ ¦ |\n/).concat(["not ", " in ", "\0", "\\"]);

Deno.test("fuzz: 3,000 chat templates", async () => {
  const own = Deno.readTextFileSync(`${TINY}/chat_template.jinja`);
  const templates = [
    own,
    "{% for m in messages %}{{ m.role + ': ' + m.content }}{% if loop.last %}!{% endif %}{% endfor %}",
  ];
  const variables = {
    messages: [{ role: "user", content: "Hi" }, { role: "assistant", content: "Ho", x: [1] }],
    tools: null,
    add_generation_prompt: true,
  };
  await fuzz("template", 3000, (draws) => {
    const template = mutateText(draws.pick(templates), FRAGMENTS, draws);
    return renderTemplate({ template, variables });
  });
});

async function readAll(path: string): Promise<void> {
  for await (const _ of readDocuments(path));
}

const ROWS = [
  { text: "A line of text" },
  { prompt: "2 + 2 =", completion: " 4" },
  { tokens: [1, 2, 3, 4], labels: [-100, 2, 3, 4] },
  { messages: [{ role: "user", content: "Hi" }, { role: "assistant", content: "Ho" }] },
];

/** Lines of one kind, some of them changed. */
function linesFor(draws: Draws): Uint8Array {
  const row = draws.pick(ROWS);
  const lines = Array.from(
    { length: 5 },
    () => JSON.stringify(draws.below(4) === 0 ? mutateJson(row, draws) : row) ?? "",
  );
  return new TextEncoder().encode(lines.join("\n") + "\n");
}

Deno.test("fuzz: 2,500 files of JSON lines", () =>
  withScratch((folder) =>
    fuzz("jsonl", 2500, async (draws) => {
      const path = `${folder}/rows.jsonl`, lines = linesFor(draws);
      Deno.writeFileSync(path, draws.below(2) ? mutateBytes(lines, draws) : lines);
      await readAll(path);
    })
  ));

Deno.test("fuzz: 1,500 compressed files", () =>
  withScratch((folder) =>
    fuzz("packed", 1500, async (draws) => {
      const isGzip = draws.below(3) > 0;
      const path = `${folder}/rows.jsonl.${isGzip ? "gz" : "zst"}`;
      const lines = linesFor(draws);
      const packed = isGzip ? gzipSync(lines) : zstdCompressSync(lines);
      Deno.writeFileSync(path, mutateBytes(packed, draws));
      await readAll(path);
    })
  ));

Deno.test("fuzz: 2,000 Parquet tables", () =>
  withScratch(async (folder) => {
    const tables = [...Deno.readDirSync(`${FIXTURES}data`)].filter(({ name }) =>
      name.endsWith(".parquet")
    ).map(({ name }) => read(`${FIXTURES}data/${name}`));
    await fuzz("parquet", 2000, async (draws) => {
      const path = `${folder}/table.parquet`;
      Deno.writeFileSync(path, mutateBytes(draws.pick(tables), draws));
      await readAll(path);
    });
  }));
