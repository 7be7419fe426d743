/**
 * Pipes, devices, sockets, folders, loops of links and files of the kernel where a file is expected: each
 * is refused by name and not read. Opening a pipe would wait for a writer, so one comes after a while: a
 * test that opens it fails instead of waiting for ever.
 */
import { assert, assertStringIncludes } from "@std/assert";
import { readConfig } from "../../../cli/framework/config_file.ts";
import { openRegularFile, readRegularFile } from "../../../core/base/files.ts";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { readDocuments } from "../../../core/data/read.ts";
import { resolveSources } from "../../../core/data/sources.ts";
import { openTokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { makeAdapter } from "../../cli/serve_testing.ts";
import { copyModel, MODELS, userError, withScratch } from "../checkpoint/testing.ts";

const MODEL = "qwen2-p1-tied-f32";
const LINUX = Deno.build.os === "linux";

/** After this time something writes into the pipe. */
const WRITER_S = 20;

interface Odd {
  /** Puts it at a path. */
  readonly make: (path: string) => void;
  readonly words: string;
}

const link = (target: string) => (path: string) => Deno.symlinkSync(target, path);
const KINDS: Readonly<Record<string, Odd>> = {
  pipe: {
    make: (path) => assert(new Deno.Command("mkfifo", { args: [path] }).outputSync().success),
    words: "is a pipe, not a regular file",
  },
  device: { make: link("/dev/zero"), words: "is a device, not a regular file" },
  folder: { make: (path) => Deno.mkdirSync(path), words: "is a folder, not a file" },
  loop: { make: (path) => Deno.symlinkSync(path, path), words: "symbolic links form a loop" },
  kernel: { make: link("/proc/self/environ"), words: "leads to a file of the kernel" },
};

/** Calls `open` with each kind at a path in turn; it must refuse it by the path's name. */
async function refuse(
  path: string,
  open: () => Promise<unknown>,
  kinds: Readonly<Record<string, Odd>> = KINDS,
): Promise<void> {
  for (const [kind, { make, words }] of Object.entries(kinds)) {
    await Deno.remove(path, { recursive: true }).catch(() => {});
    make(path);
    const waker = kind === "pipe"
      ? new Deno.Command("sh", { args: ["-c", `sleep ${WRITER_S}; : > "$0"`, path] }).spawn()
      : undefined;
    const error = await userError(open);
    waker?.kill();
    await waker?.status;
    assertStringIncludes(error.message + error.cause, words, `${kind} at ${path}`);
    assertStringIncludes(error.message, path.slice(path.lastIndexOf("/") + 1));
  }
}

async function readAll(spec: string): Promise<void> {
  for (const { files } of await resolveSources([spec])) {
    for (const file of files) for await (const _ of readDocuments(file));
  }
}

Deno.test(
  "odd files in a model folder are refused by name",
  { ignore: !LINUX },
  () =>
    withScratch(async (scratch) => {
      const folder = `${scratch}/model`;
      const model = ["config.json", "generation_config.json", "model.safetensors"];
      const tokenizer = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];
      for (const file of [...model, ...tokenizer]) {
        copyModel(MODEL, folder);
        const isModel = model.includes(file);
        await refuse(
          `${folder}/${file}`,
          () => isModel ? openCheckpoint(folder) : openTokenizer(folder),
        );
        await Deno.remove(folder, { recursive: true });
      }
      for (const file of ["vocab.json", "merges.txt"]) {
        copyModel(MODEL, folder);
        await Deno.remove(`${folder}/tokenizer.json`);
        const byte = JSON.parse(Deno.readTextFileSync(`${MODELS}/${MODEL}/tokenizer.json`)).model;
        Deno.writeTextFileSync(`${folder}/vocab.json`, JSON.stringify(byte.vocab));
        Deno.writeTextFileSync(`${folder}/merges.txt`, "");
        await refuse(`${folder}/${file}`, () => openTokenizer(folder));
        await Deno.remove(folder, { recursive: true });
      }
      copyModel(MODEL, folder);
      await Deno.rename(`${folder}/model.safetensors`, `${folder}/model-1.safetensors`);
      const index = `${folder}/model.safetensors.index.json`;
      const weight_map = { "model.norm.weight": "model-1.safetensors" };
      Deno.writeTextFileSync(index, JSON.stringify({ weight_map }));
      await refuse(`${folder}/model-1.safetensors`, () => openCheckpoint(folder));
      await refuse(index, () => openCheckpoint(folder));
    }),
);

Deno.test("odd files in an adapter, among data and as a config are refused by name", {
  ignore: !LINUX,
}, () =>
  withScratch(async (scratch) => {
    const adapter = await makeAdapter(`${MODELS}/${MODEL}`, 2, `${scratch}/adapter`);
    const open = () => openCheckpoint(`${MODELS}/${MODEL}`, { adapter });
    await open();
    await refuse(`${adapter}/introduced.safetensors`, open);
    Deno.mkdirSync(`${scratch}/data`);
    const { folder: _, ...odd } = KINDS; // a folder of data is searched
    for (const ending of ["jsonl", "txt", "parquet", "jsonl.gz"]) {
      const path = `${scratch}/data/rows.${ending}`;
      await refuse(path, () => readAll(path), odd);
      await Deno.remove(path, { recursive: true });
    }
    await refuse(`${scratch}/config.json`, () => readConfig(`${scratch}/config.json`, "train"));
  }));

Deno.test("a socket is refused by name, and so is a file above the limit of its kind", {
  ignore: !LINUX,
}, () =>
  withScratch(async (scratch) => {
    using _ = Deno.listen({ transport: "unix", path: `${scratch}/config.json` });
    const error = await userError(() => openRegularFile(`${scratch}/config.json`));
    assertStringIncludes(error.message, "is a socket, not a regular file");
    using file = Deno.openSync(`${scratch}/large`, { write: true, create: true });
    file.truncateSync(1e12);
    const large = await userError(() => readRegularFile(`${scratch}/large`));
    assertStringIncludes(large.message, "is too large: 1000000000000 bytes");
    for (const name of ["config.json", "tokenizer.json", "chat_template.jinja"]) {
      copyModel(MODEL, `${scratch}/model`);
      using file = Deno.openSync(`${scratch}/model/${name}`, { write: true, create: true });
      file.truncateSync(1e12);
      const work = name === "config.json" ? openCheckpoint : openTokenizer;
      const { message } = await userError(() => work(`${scratch}/model`));
      assertStringIncludes(message, `${name}" is too large`);
      await Deno.remove(`${scratch}/model`, { recursive: true });
    }
  }));
