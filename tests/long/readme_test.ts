/**
 * Every command of the README runs, block by block, in a folder that has what the README speaks of.
 *
 * Models, data and benchmarks are the fixtures under the README's names. What would take long is cut
 * short by `SHORTER`, and the paper's recipes are only planned; all else runs as it is written. Lines
 * that start something else than `parscale` must be known by `ELSEWHERE`.
 */
import { assertEquals } from "@std/assert";
import { jsonLines } from "../cli/models.ts";
import { runShell, withScratch } from "../cli/run.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const FIXTURES = `${ROOT}fixtures`;

/** Lines that run elsewhere, and where. */
const ELSEWHERE: readonly (readonly [pattern: RegExp, where: string])[] = [
  [/^npx -y deno@2\.9\.6 (install|task test)/, "CI, on a machine with Node alone"],
  [/^npx -y deno@2\.9\.6 task demo/, "takes minutes; its parts are tested by tests/cli"],
  [/^alias parscale=/, "names the program; the tests define a function instead"],
  [/^deno run -A tests\/bench\//, "benchmarks, which need a quiet machine and other programs"],
  [/^deno task bench/, "the same"],
  [/^deno task test:gpu --emulated/, "tests/device/runtime/gpu_script_test.ts"],
  [/^deno task test:gpu/, "needs a GPU"],
  [/^deno task (compile|bundle|test:release)/, "tests/release; a base program is downloaded"],
  [/^tar -xf /, "tests/release/bundle_test.ts"],
  [/^PARSCALE_(HF_PYTHON|ORT_WEB)=/, "tests/interop, which needs other programs"],
];

/** What makes a command short enough, in this order. */
const SHORTER: readonly (readonly [pattern: RegExp, replacement: string])[] = [
  [/^(parscale train --preset .*?|parscale train .*--preset .*?)( --dry-run)?$/, "$1 --dry-run"],
  [/^(parscale train(?!.*--dry-run)(?!.*--resume).*)$/, "$1 --seq-len 48 --batch 2"],
  [/^(parscale train(?!.*--dry-run).*)--(tokens|epochs|steps) \S+/, "$1--steps 2"],
  [/--limit 50/, "--limit 1"],
  [/^(parscale (eval --model|compare)(?!.*--limit)(?!.*--shard).*?)( \|\| .*)?$/, "$1 --limit 1$3"],
  [/^(parscale (eval --model|compare).*?)( \|\| .*)?$/, "$1 --max-tokens 4$3"],
  [/--preset paper-1t/, "--preset paper-1t --n-samples 1"],
  [/--input 128 --output 32/, "--input 8 --output 2"],
  [/--bootstrap 500/, "--bootstrap 20"],
  [/^(parscale bench --model \S+)/, "$1 --rounds 1 --prompt 32"],
  [/(parscale bench --compare .*--against \S+)/, "$1 --tolerance 100000%"],
];

/** Fenced blocks of shell lines, without comments. */
function blocks(): string[][] {
  const text = Deno.readTextFileSync(`${ROOT}README.md`);
  return [...text.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block]) =>
    block!.split("\n").map((line) => line.replace(/\s+# .*$/, "").trim()).filter((line) => line)
  );
}

function shorter(line: string): string {
  return SHORTER.reduce((text, [pattern, by]) => text.replace(pattern, by), line);
}

const TEXTS = Array.from({ length: 60 }, (_, i) => ({
  text: `Row ${i}: the sum of ${i} and ${i + 1} is ${2 * i + 1}, which is odd. `.repeat(4),
}));

/** A folder in which the commands of the README find what they name. */
async function furnish(cwd: string): Promise<void> {
  const link = (from: string, to: string) =>
    Deno.symlinkSync(`${FIXTURES}/${from}`, `${cwd}/${to}`);
  link("models/tiny-qwen2", "qwen2.5-0.5b");
  link("eval/data", "bench");
  link("data/text.parquet", "texts.parquet");
  const write = (name: string, text: string) => Deno.writeTextFileSync(`${cwd}/${name}`, text);
  for (const folder of ["corpus", "web"]) Deno.mkdirSync(`${cwd}/${folder}`);
  write("corpus/a.jsonl", jsonLines(...TEXTS));
  write("code.jsonl", jsonLines(...TEXTS));
  write("corpus.jsonl", jsonLines(...TEXTS));
  write("prompts.jsonl", jsonLines({ id: "a", prompt: "2 + 2 =" }, { prompt: "Once" }));
  write("rows.jsonl", jsonLines({ prompt: "2 + 2 =", continuation: " 4" }));
  write("story.txt", "Once there was a sum that was hard to find.");
  const turn = (role: string, content: string) => ({ role, content });
  const chat = { messages: [turn("user", "2 + 2?"), turn("assistant", "4, of course.")] };
  write("chats.jsonl", jsonLines(...Array.from({ length: 12 }, () => chat)));
  const script = `set -e
gzip -k corpus.jsonl
parscale convert --model qwen2.5-0.5b --streams 4 --out qwen-p4 -qq
parscale train --model qwen-p4 --data code.jsonl --seq-len 48 --batch 2 --steps 2 --out run -qq`;
  const { code, stderr } = await runShell(script, { cwd });
  assertEquals(code, 0, stderr);
  writeRuns(`${cwd}/runs`);
  const zstd = new Uint8Array(Deno.readFileSync(`${FIXTURES}/data/packed.jsonl.zst`));
  Deno.writeFileSync(`${cwd}/web/a.jsonl.zst`, zstd);
}

/** Finished runs of three sizes and three numbers of streams, whose losses follow a law. */
function writeRuns(folder: string): void {
  const plain = JSON.parse(Deno.readTextFileSync(`${FIXTURES}/models/tiny-qwen2/config.json`));
  for (const width of [64, 128, 256]) {
    for (const P of [1, 2, 4]) {
      const run = `${folder}/width-${width}-p${P}`;
      Deno.mkdirSync(`${run}/checkpoint-000001`, { recursive: true });
      const config = { ...plain, hidden_size: width, intermediate_size: 2 * width, parscale_n: P };
      const name = P > 1 ? { model_type: "qwen2_parscale" } : {};
      Deno.writeTextFileSync(
        `${run}/checkpoint-000001/config.json`,
        JSON.stringify({ ...config, ...name }),
      );
      Deno.writeTextFileSync(`${run}/last`, "checkpoint-000001\n");
      const loss = 1.3 + 40 * (width ** 2 * (1 + 0.33 * Math.log(P))) ** -0.3;
      Deno.writeTextFileSync(`${run}/metrics.jsonl`, jsonLines({ step: 1, eval_loss: loss }));
    }
  }
}

/** Results of commands that the block runs itself. */
async function clear(cwd: string, lines: readonly string[]): Promise<void> {
  for (const line of lines.filter((line) => !line.includes("--dry-run"))) {
    const out = /--out (\S+)/.exec(line)?.[1];
    if (out && !line.includes("--resume")) {
      await Deno.remove(`${cwd}/${out}`, { recursive: true }).catch(() => {});
    }
  }
}

for (const [i, block] of blocks().entries()) {
  const isOwn = (line: string) => /(^|\| )parscale /.test(line);
  const own = block.filter(isOwn);
  const others = block.filter((line) => !isOwn(line));

  Deno.test(`README block ${i + 1}: ${block[0]!.slice(0, 60)}`, async () => {
    const unknown = others.filter((line) => !ELSEWHERE.some(([pattern]) => pattern.test(line)));
    assertEquals(unknown, []);
    if (own.length === 0) return;
    await withScratch(async (cwd) => {
      await furnish(cwd);
      const lines = own.map(shorter);
      await clear(cwd, lines);
      for (const line of lines) {
        const env = { PARSCALE_CACHE: `${cwd}/cache` };
        const { code, stderr } = await runShell(line, { cwd, env });
        assertEquals(code, 0, `${line}\n${stderr}`);
      }
    });
  });
}
