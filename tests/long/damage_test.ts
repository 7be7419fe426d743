/**
 * Protects against damaged files: whatever is wrong with a checkpoint, it either opens or the user is
 * told what is wrong. Never another exception, a hang, or output left behind.
 */
import { assert, assertEquals } from "@std/assert";
import { convert } from "../../core/checkpoint/convert.ts";
import { planConversion } from "../../core/checkpoint/plan_conversion.ts";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { ParscaleError } from "../../core/base/errors.ts";
import { RandomStream } from "../../core/base/random.ts";
import { MODELS, readRaw, withScratch } from "../unit/checkpoint/testing.ts";

const CASES = 2400;

// deno-lint-ignore no-explicit-any -- mutated documents may be anything
type Json = any;

/** A checkpoint in memory: parsed documents, and weight files as header and data length. */
interface Folder {
  config: Json;
  index?: Json;
  shards: { name: string; header: Json; size: number }[];
}

const random = new RandomStream(20240611, "damage");
const pick = <T>(list: readonly T[]): T => list[random.integer(list.length)]!;

/** Values that have broken readers of other formats. */
const NONSENSE: readonly (() => Json)[] = [
  () => null,
  () => true,
  () => -1,
  () => 0,
  () => 1.5,
  () => 3,
  () => 2 ** 31,
  () => 2 ** 53,
  () => 1e300,
  () => "",
  () => "64",
  () => "F32",
  () => "\u0000",
  () => [],
  () => [[]],
  () => [0, -8],
  () => ({}),
  () => ({ toString: 1, __proto__: null }),
  () => Array(200).fill(0).reduce((inner) => [inner], 1),
];

function readFolder(name: string): Folder {
  const config = JSON.parse(Deno.readTextFileSync(`${MODELS}/${name}/config.json`));
  const { header, data } = readRaw(`${MODELS}/${name}/model.safetensors`);
  return { config, shards: [{ name: "model.safetensors", header, size: data.length }] };
}

/** Splits a folder into two shards of alternating tensors. */
function shard(folder: Folder): Folder {
  const names = Object.keys(folder.shards[0]!.header).filter((name) => name !== "__metadata__");
  const weight_map: Record<string, string> = {};
  const shards = [1, 2].map((i) => ({
    name: `model-0000${i}-of-00002.safetensors`,
    header: {},
    size: 0,
  }));
  for (const [i, name] of names.entries()) {
    const into = shards[i % 2]!, entry = folder.shards[0]!.header[name];
    const length = entry.data_offsets[1] - entry.data_offsets[0];
    (into.header as Json)[name] = { ...entry, data_offsets: [into.size, into.size += length] };
    weight_map[name] = into.name;
  }
  return { ...folder, shards, index: { metadata: {}, weight_map } };
}

/** One way of damaging the documents of a folder. */
const DAMAGE: readonly ((folder: Folder) => void)[] = [
  ({ config }) => config[pick(Object.keys(config))] = pick(NONSENSE)(),
  ({ config }) => delete config[pick(Object.keys(config))],
  ({ config }) =>
    config[pick(["rope_parameters", "rope_scaling", "head_dim", "parscale_n", "dtype"])] = pick(
      NONSENSE,
    )(),
  ({ shards }) =>
    onTensor(
      shards,
      (entry) => entry.dtype = pick(["F16", "BF16", "F64", "I8", "F4", "X", "__proto__"]),
    ),
  ({ shards }) => onTensor(shards, (entry) => entry.shape = pick(NONSENSE)()),
  ({ shards }) => onTensor(shards, (entry) => entry.shape[0] = pick(NONSENSE)()),
  ({ shards }) => onTensor(shards, (entry) => entry.shape.reverse()),
  ({ shards }) => onTensor(shards, (entry) => entry.data_offsets = pick(NONSENSE)()),
  ({ shards }) => onTensor(shards, (entry) => entry.data_offsets.reverse()),
  ({ shards }) =>
    onTensor(shards, (entry) => entry.data_offsets[random.integer(2)] += pick([-4, 2, 64, 1e9])),
  ({ shards }) => onTensor(shards, (entry) => delete entry[pick(Object.keys(entry))]),
  ({ shards }) => {
    const { header } = pick(shards);
    header[pick(Object.keys(header))] = pick(NONSENSE)();
  },
  ({ shards }) => {
    const { header } = pick(shards);
    delete header[pick(Object.keys(header))];
  },
  ({ shards }) => {
    const { header } = pick(shards),
      [one, two] = [pick(Object.keys(header)), pick(Object.keys(header))];
    [header[one], header[two]] = [header[two], header[one]];
  },
  ({ shards }) => void (pick(shards).size += pick([-1, -1000, 8, 1e9, -1e9])),
  ({ shards }) => void (pick(shards).header.__metadata__ = pick(NONSENSE)()),
  (folder) => folder.index && (folder.index.weight_map = pick(NONSENSE)()),
  ({ index }) =>
    index && (index.weight_map[pick(Object.keys(index.weight_map))] = pick(NONSENSE)()),
  ({ index }) =>
    index &&
    (index.weight_map.ghost = pick([
      "x.safetensors",
      "../x",
      "/etc/passwd",
      "model-00001-of-00002.safetensors",
    ])),
  ({ shards }) => void shards.pop(),
];

function damage(folder: Folder): void {
  try {
    pick(DAMAGE)(folder);
  } catch (error) {
    // What this change would alter fell victim to an earlier one.
    if (!(error instanceof TypeError || error instanceof RangeError)) throw error;
  }
}

function onTensor(shards: Folder["shards"], change: (entry: Json) => void): void {
  const entries = shards.flatMap(({ header }) =>
    Object.values(header).filter((entry: Json) =>
      Array.isArray(entry?.data_offsets) && Array.isArray(entry.shape)
    )
  );
  if (entries.length > 0) change(pick(entries));
}

/** Writes a folder, sometimes damaging bytes on the way; data is a hole in the file. */
function writeFolder(path: string, folder: Folder): void {
  Deno.mkdirSync(path);
  const document = (value: Json) => {
    const bytes = new TextEncoder().encode(JSON.stringify(value) ?? "");
    const length = bytes.length;
    switch (random.integer(24)) {
      case 0:
        bytes[random.integer(length || 1)] = random.integer(256);
        return bytes;
      case 1:
        return bytes.subarray(0, random.integer(length + 1));
      case 2:
        return new TextEncoder().encode("[".repeat(100_000));
    }
    return bytes;
  };
  Deno.writeFileSync(`${path}/config.json`, document(folder.config));
  if (folder.index) {
    Deno.writeFileSync(`${path}/model.safetensors.index.json`, document(folder.index));
  }
  for (const { name, header, size } of folder.shards) {
    const text = document(header);
    const length = pick([0, 0, 0, 0, 0, 1, -1, 2 ** 32, 2 ** 62]) + text.length;
    const start = new Uint8Array(8 + text.length);
    new DataView(start.buffer).setBigUint64(0, BigInt.asUintN(64, BigInt(length)), true);
    start.set(text, 8);
    Deno.writeFileSync(`${path}/${name}`, start);
    Deno.truncateSync(`${path}/${name}`, Math.max(0, start.length + size));
  }
}

Deno.test(`${CASES} damaged checkpoints open or are refused as bad data`, () =>
  withScratch(async (scratch) => {
    const whole = ["qwen2-p1-tied-f32", "qwen2-p2-untied-bf16", "qwen3-p2-untied-f32"].map(
      readFolder,
    );
    const originals = [...whole, ...whole.map(shard)];
    const outcomes = { opened: 0, refused: 0 };
    const messages = new Set<string>();
    for (let i = 0; i < CASES; i++) {
      const folder = structuredClone(pick(originals));
      for (let n = random.integer(3); n >= 0; n--) damage(folder);
      const path = `${scratch}/${i}`, out = `${scratch}/${i}-out`;
      writeFolder(path, folder);
      try {
        const { tensors } = await openCheckpoint(path);
        assert(tensors.size > 0);
        outcomes.opened++;
        if (i % 8 === 0) {
          const strip = String(folder.config.model_type).endsWith("_parscale");
          await convert(
            await planConversion({ model: path, out, ...(strip ? { strip } : { streams: 2 }) }),
          );
          await openCheckpoint(out);
        }
      } catch (error) {
        if (!(error instanceof ParscaleError)) throw new Error(`case ${i}`, { cause: error });
        assertEquals(error.kind, "data", error.message);
        assert(
          /^["_a-z][^]*([^.]|\.\.\.)$/.test(error.message) && error.message.includes(`${path}`) &&
            error.message.length < 1000,
          error.message,
        );
        assertEquals(
          [...Deno.readDirSync(scratch)].filter((entry) => entry.name.includes("-out")),
          [],
        );
        messages.add(error.message.replaceAll(/\d+/g, "#").slice(0, 200));
        outcomes.refused++;
      }
      await Deno.remove(path, { recursive: true });
      await Deno.remove(out, { recursive: true }).catch(() => {});
    }
    // Guards the test itself: most damage must be seen, and some of it be harmless.
    assert(outcomes.opened > CASES / 50 && outcomes.refused > CASES / 2, JSON.stringify(outcomes));
    assert(messages.size > 40, `${messages.size} kinds of messages`);
  }));
