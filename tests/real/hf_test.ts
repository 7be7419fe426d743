/**
 * Our folders in transformers, by the Python file that they carry: logits, caches, padding, generation,
 * pipelines, beams, bfloat16, the way back, gradients, checkpointing and a step of Trainer, against golden
 * values. Skipped where pip cannot install torch and transformers.
 */
import { fileURLToPath } from "node:url";
import { assertEquals } from "@std/assert";
import { cacheFolder } from "../../core/base/cache_folder.ts";
import { succeed } from "../cli/models.ts";
import { withScratch } from "../scratch.ts";
import { FIXTURES } from "../fixtures.ts";

const SCRIPT = fileURLToPath(new URL("hf_model.py", import.meta.url));

/** The versions of docs/formats.md. */
const VERSIONS = ["4.57.6", "5.24.0"];

/** Largest differences: logits absolute, gradients of their tensor's largest. */
const TOLERANCE = 1e-4;

/** All take minutes; an older version gets one of each family. */
const MODELS = ["qwen2-p4-untied-f32", "qwen3-p2-untied-f32"];
const MORE_MODELS = ["qwen2-p2-tied-f32", "qwen2-p2-untied-bf16"];

const PACKAGES = ["torch==2.13.0", "accelerate==1.12.0", "numpy"];

async function run(program: string, args: string[], env: Record<string, string> = {}) {
  const { success, stdout, stderr } = await new Deno.Command(program, { args, env }).output();
  const decoder = new TextDecoder();
  return { success, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

/** A Python with torch, and a folder with each version of transformers; undefined where pip has none. */
async function python(): Promise<string | undefined> {
  const folder = `${cacheFolder((name) => Deno.env.get(name))}/tests/hf`;
  const program = `${folder}/bin/python`, done = `${folder}/done`;
  if (await Deno.stat(done).catch(() => undefined)) return program;
  if (!(await run("python3", ["-m", "venv", folder]).catch(() => undefined))?.success) return;
  const pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check"];
  const installs = [
    PACKAGES,
    ...VERSIONS.map((version) => [
      ...["--target", `${folder}/${version}`],
      `transformers==${version}`,
    ]),
  ];
  for (const install of installs) {
    const { success, stderr } = await run(program, [...pip, ...install]);
    if (success) continue;
    console.error(`tests in transformers are skipped: ${stderr.trim().split("\n").at(-1)}`);
    return undefined;
  }
  await Deno.writeTextFile(done, "");
  return program;
}

const program = await python();

for (const version of VERSIONS) {
  Deno.test({
    name: `transformers ${version} gives the golden values of our folders${
      program ? "" : " (skipped: pip has no torch)"
    }`,
    ignore: program === undefined,
    fn: () =>
      withScratch(async (cwd) => {
        const models = version === VERSIONS.at(-1) ? [...MODELS, ...MORE_MODELS] : MODELS;
        for (const model of models) {
          const out = `${cwd}/${model}`, golden = `${FIXTURES}golden/${model}`;
          await succeed(`convert --model ${FIXTURES}models/${model} --merge --out ${out} -q`);
          const env = { PYTHONPATH: `${program}/../../${version}` };
          const { stdout, stderr } = await run(program!, [SCRIPT, out, golden], env);
          const line = stdout.trim().split("\n").at(-1);
          if (!line) throw new Error(stderr.slice(-3000));
          const { worst, failures } = JSON.parse(line);
          assertEquals(failures, [], model);
          for (const [what, difference] of Object.entries(worst)) {
            assertEquals(difference as number < TOLERANCE, true, `${model} ${what} ${difference}`);
          }
        }
      }),
  });
}
