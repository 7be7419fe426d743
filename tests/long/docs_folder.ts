/** The folder in which commands of the documents run: fixtures under the names the documents use. */
import { assertEquals } from "@std/assert";
import { jsonLines } from "../cli/models.ts";
import { runShell } from "../cli/run.ts";
import { FIXTURES, readFixture, ROOT } from "../fixtures.ts";

const TEXTS = Array.from({ length: 60 }, (_, i) => ({
  text: `Row ${i}: the sum of ${i} and ${i + 1} is ${2 * i + 1}, which is odd. `.repeat(4),
}));

/** Writes everything the documents name and do not make themselves. */
export async function furnish(cwd: string): Promise<void> {
  const link = (from: string, to: string) => Deno.symlinkSync(`${FIXTURES}${from}`, `${cwd}/${to}`);
  link("", "fixtures");
  Deno.symlinkSync(`${ROOT}docs`, `${cwd}/docs`);
  link("models/tiny-qwen2", "qwen2.5-0.5b");
  link("eval/data", "bench");
  link("data/text.parquet", "texts.parquet");
  const write = (name: string, text: string) => Deno.writeTextFileSync(`${cwd}/${name}`, text);
  for (const folder of ["corpus", "web"]) Deno.mkdirSync(`${cwd}/${folder}`);
  for (const name of ["corpus/a.jsonl", "code.jsonl", "corpus.jsonl"]) {
    write(name, jsonLines(...TEXTS));
  }
  write("damaged.jsonl", '{"text": "a"}\nplain\n');
  write("prompts.jsonl", jsonLines({ id: "a", prompt: "2 + 2 =" }, { prompt: "Once" }));
  write("sums.jsonl", jsonLines({ prompt: "2 + 2 =", answer: "4" }, { prompt: "1 +", answer: 1 }));
  write("colors.jsonl", jsonLines({ prompt: "Sky", choices: ["blue", "red"], answer: "A" }));
  // Solved by the prompt, whatever a model adds.
  const program = jsonLines({ prompt: "def f(x):\n    return 2 * x", tests: "assert f(1) == 2" });
  for (const name of ["programs.jsonl", "held_out.jsonl"]) write(name, program);
  write("rows.jsonl", jsonLines({ prompt: "2 + 2 =", continuation: " 4" }));
  write("story.txt", "Once there was a sum that was hard to find.");
  const turn = (role: string, content: string) => ({ role, content });
  const chat = { messages: [turn("user", "2 + 2?"), turn("assistant", "4, of course.")] };
  write("chats.jsonl", jsonLines(...Array.from({ length: 12 }, () => chat)));
  const train = "--seq-len 48 --batch 2 --steps 2 -qq";
  const script = `set -e
gzip -k corpus.jsonl
parscale convert --model qwen2.5-0.5b --streams 4 --out qwen-p4 -qq
parscale train --model qwen-p4 --data code.jsonl ${train} --out run
parscale train --model qwen2.5-0.5b --streams 4 --train-params introduced --data code.jsonl ${train} --out run-p4`;
  const { code, stderr } = await runShell(script, { cwd });
  assertEquals(code, 0, stderr);
  writeRuns(`${cwd}/runs`);
  const zstd = new Uint8Array(Deno.readFileSync(`${FIXTURES}data/packed.jsonl.zst`));
  Deno.writeFileSync(`${cwd}/web/a.jsonl.zst`, zstd);
}

/** Finished runs of three sizes and three numbers of streams, whose losses follow a law. */
function writeRuns(folder: string): void {
  const plain = readFixture("models/tiny-qwen2/config.json");
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
