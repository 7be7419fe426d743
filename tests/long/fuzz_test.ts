/**
 * Eight thousand mutated inputs, twenty thousand with `PARSCALE_LONG_TESTS=1`: checkpoints,
 * configurations, tokenizers, chat templates, JSON lines, Parquet tables, compressed files. Each is read or
 * refused with an error of ours.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { ParscaleError } from "../../core/base/errors.ts";
import { isObject } from "../../core/base/files.ts";
import { parseConfig } from "../../core/checkpoint/config.ts";
import { convert } from "../../core/convert/convert.ts";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { planConversion } from "../../core/convert/plan.ts";
import { readTensor } from "../../core/checkpoint/read.ts";
import { readDocuments } from "../../core/data/read.ts";
import { renderTemplate } from "../../core/tokenizer/template_renderer.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { MODELS, readRaw, withScratch } from "../unit/checkpoint/testing.ts";
import {
  type Draws,
  fuzz,
  type Json,
  mutateBytes,
  mutateJson,
  mutateText,
  nonsense,
} from "./fuzzing.ts";

const TINY = `${MODELS}/tiny-qwen2`;
const DATA = `${MODELS}/../data`;

const encode = (value: Json) => new TextEncoder().encode(JSON.stringify(value) ?? "");

/** A checkpoint in memory: its documents, and weight files as header and length of the data. */
interface Folder {
  config: Json;
  index?: Json;
  shards: { name: string; header: Json; size: number }[];
}

function readFolder(name: string): Folder {
  const config = JSON.parse(Deno.readTextFileSync(`${MODELS}/${name}/config.json`));
  const { header, data } = readRaw(`${MODELS}/${name}/model.safetensors`);
  return { config, shards: [{ name: "model.safetensors", header, size: data.length }] };
}

/** Splits a folder into two shards of alternating tensors. */
function shard({ config, shards }: Folder): Folder {
  const { __metadata__, ...header } = shards[0]!.header;
  const parts = [1, 2].map((i) => ({
    name: `model-0000${i}-of-00002.safetensors`,
    header: {} as Json,
    size: 0,
  }));
  const weight_map: Json = {};
  Object.keys(header).forEach((name, i) => {
    const part = parts[i % 2]!, [start, end] = header[name].data_offsets;
    part.header[name] = { ...header[name], data_offsets: [part.size, part.size += end - start] };
    weight_map[name] = part.name;
  });
  return { config, shards: parts, index: { metadata: {}, weight_map } };
}

/** The entry of a tensor in one of the headers. */
function entryOf({ shards }: Folder, draws: Draws): Json {
  const { __metadata__, ...header } = draws.pick(shards).header;
  return draws.pick(Object.values(header));
}

/** Changes that leave documents well-formed, each of something a reader must check. */
const CHANGES: readonly ((folder: Folder, draws: Draws) => unknown)[] = [
  ({ config }, draws) =>
    config[draws.pick(["rope_parameters", "rope_scaling", "head_dim", "parscale_n", "dtype"])] =
      nonsense(draws),
  (folder, draws) =>
    entryOf(folder, draws).dtype = draws.pick(["F16", "BF16", "F64", "I8", "F4", "X", "__proto__"]),
  (folder, draws) => entryOf(folder, draws).shape.reverse(),
  (folder, draws) => entryOf(folder, draws).data_offsets.reverse(),
  (folder, draws) =>
    entryOf(folder, draws).data_offsets[draws.below(2)] += draws.pick([-4, 2, 64, 1e9]),
  ({ shards }, draws) => {
    const { header } = draws.pick(shards), names = Object.keys(header);
    const [one, two] = [draws.pick(names), draws.pick(names)];
    [header[one], header[two]] = [header[two], header[one]];
  },
  ({ shards }, draws) => draws.pick(shards).size += draws.pick([-1, -1000, 8, 1e9, -1e9]),
  ({ index, shards }, draws) =>
    index && (index.weight_map.ghost = draws.pick(["../x", "/etc/passwd", shards[0]!.name])),
  ({ shards }) => shards.pop(),
];

/** One changed thing and up to two damaged documents. */
function damage(folder: Folder, draws: Draws): void {
  draws.pick([...CHANGES, () => {}])(folder, draws);
  for (let n = draws.below(3); n > 0; n--) {
    const part = draws.pick([folder, ...folder.shards]) as Json;
    const key = "header" in part ? "header" : part.index && draws.below(2) ? "index" : "config";
    part[key] = mutateJson(part[key], draws);
  }
}

/** The bytes of a document, sometimes others. */
function bytesOf(value: Json, draws: Draws): Uint8Array {
  const turn = draws.below(16);
  if (turn === 0) return new TextEncoder().encode("[".repeat(100_000));
  return turn < 3 ? mutateBytes(encode(value), draws) : encode(value);
}

/** Writes a folder; the data of weights is a hole in the file. */
function writeFolder(path: string, { config, index, shards }: Folder, draws: Draws): void {
  Deno.mkdirSync(path);
  Deno.writeFileSync(`${path}/config.json`, bytesOf(config, draws));
  if (index) Deno.writeFileSync(`${path}/model.safetensors.index.json`, bytesOf(index, draws));
  for (const { name, header, size } of shards) {
    const text = bytesOf(header, draws), start = new Uint8Array(8 + text.length);
    const length = text.length + draws.pick([0, 0, 0, 0, 0, 0, 1, -1, 2 ** 32, 2 ** 62]);
    new DataView(start.buffer).setBigUint64(0, BigInt.asUintN(64, BigInt(length)), true);
    start.set(text, 8);
    Deno.writeFileSync(`${path}/${name}`, start);
    Deno.truncateSync(`${path}/${name}`, Math.max(0, start.length + size));
  }
}

/** Opens a checkpoint and reads some of it, or converts it. */
async function use(path: string, out: string, config: Json): Promise<void> {
  const { tensors } = await openCheckpoint(path);
  for (const tensor of [...tensors.values()].slice(0, 2)) await readTensor(tensor);
  if (!out) return;
  const isConverted = String(config.model_type).endsWith("_parscale");
  const change = isConverted ? { strip: true } : { streams: 2 };
  await convert(await planConversion({ model: path, out, ...change }));
  await openCheckpoint(out);
}

Deno.test("fuzz: checkpoints", () =>
  withScratch(async (scratch) => {
    const whole = ["qwen2-p1-tied-f32", "qwen2-p2-untied-bf16", "qwen3-p2-untied-f32"]
      .map(readFolder);
    const originals = [...whole, ...whole.map(shard)];
    const messages = new Set<string>();
    await fuzz("checkpoint", 5000, async (draws, i) => {
      const folder = structuredClone(draws.pick(originals)), path = `${scratch}/m`;
      damage(folder, draws);
      writeFolder(path, folder, draws);
      try {
        await use(path, i % 8 === 0 ? `${scratch}/out` : "", folder.config);
      } catch (error) {
        if (!(error instanceof ParscaleError)) throw error;
        const { kind, message } = error;
        assertEquals([kind, message.includes(path), message.length < 1000], ["data", true, true]);
        assertMatch(message, /^["_a-z][^]*([^.]|\.\.\.)$/);
        assertEquals([...Deno.readDirSync(scratch)].map(({ name }) => name), ["m"]);
        messages.add(message.replaceAll(/\d+/g, "#").slice(0, 200));
        throw error;
      } finally {
        for await (const { name } of Deno.readDir(scratch)) {
          await Deno.remove(`${scratch}/${name}`, { recursive: true });
        }
      }
    });
    assert(messages.size > 40, `${messages.size} kinds of messages`);
  }));

Deno.test("fuzz: configurations", async () => {
  const configs = [...Deno.readDirSync(MODELS)].filter(({ isDirectory }) => isDirectory)
    .map(({ name }) => JSON.parse(Deno.readTextFileSync(`${MODELS}/${name}/config.json`)));
  await fuzz("config", 3000, async (draws) => {
    let config = draws.pick(configs);
    for (let changes = 1 + draws.below(3); changes > 0; changes--) {
      config = mutateJson(config, draws);
    }
    await Promise.resolve(parseConfig(isObject(config) ? config : {}, "config.json"));
  });
});

Deno.test("fuzz: tokenizers", () =>
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

Deno.test("fuzz: chat templates", async () => {
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
  await fuzz("template", 3000, async (draws) => {
    const template = mutateText(draws.pick(templates), FRAGMENTS, draws);
    return await Promise.resolve(renderTemplate({ template, variables }));
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

Deno.test("fuzz: files of JSON lines", () =>
  withScratch((folder) =>
    fuzz("jsonl", 2500, async (draws) => {
      const path = `${folder}/rows.jsonl`, lines = linesFor(draws);
      Deno.writeFileSync(path, draws.below(2) ? mutateBytes(lines, draws) : lines);
      await readAll(path);
    })
  ));

Deno.test("fuzz: compressed files", () =>
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

Deno.test("fuzz: Parquet tables", () =>
  withScratch(async (folder) => {
    const tables = [...Deno.readDirSync(DATA)].filter(({ name }) => name.endsWith(".parquet"))
      .map(({ name }) => Deno.readFileSync(`${DATA}/${name}`));
    await fuzz("parquet", 2000, async (draws) => {
      const path = `${folder}/table.parquet`;
      Deno.writeFileSync(path, mutateBytes(draws.pick(tables), draws));
      await readAll(path);
    });
  }));
