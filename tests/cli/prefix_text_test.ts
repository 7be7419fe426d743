/** `convert --prefix-init text`: a new model that begins as good as its source. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { runParscale, withScratch } from "./run.ts";

const MODEL = fileURLToPath(new URL("../../fixtures/models/qwen2-p1-tied-f32", import.meta.url));

Deno.test("prefixes from text equal that text put before", async () => {
  await withScratch(async (cwd) => {
    const before = "The streams of a model are mixed per token.";
    const ids = JSON.parse(
      (await runParscale(["inspect", "--model", MODEL, "--tokenize", before], { cwd })).stdout,
    ) as number[];
    await Deno.writeTextFile(`${cwd}/text.txt`, before);
    // With one segment as long as the text, every stream starts from the whole of it.
    const made = await runParscale([
      ...["convert", "--model", MODEL, "--streams", "2", "--out", "p2"],
      ...["--prefix-tokens", String(ids.length), "--prefix-init", "text"],
      ...["--prefix-text", "text.txt"],
    ], { cwd });
    assertEquals(made.stderr, "");
    assertEquals(made.code, 0);

    const score = async (model: string, tokens: number[]) => {
      const stdin = JSON.stringify({ tokens });
      const { stdout } = await runParscale(["score", "--model", model, "--jsonl"], { cwd, stdin });
      return JSON.parse(stdout).token_logprobs as number[];
    };
    const text = [9, 12, 200, 31, 64];
    const parallel = await score("p2", text);
    const plain = (await score(MODEL, [...ids, ...text])).slice(-parallel.length);
    parallel.forEach((logprob, i) => assert(Math.abs(logprob - plain[i]!) < 1e-4));
  });
});

Deno.test("prefix text that is missing, too short or unasked for is refused", async () => {
  await withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/short.txt`, "short");
    const base = ["convert", "--model", MODEL, "--streams", "2", "--out", "p2"];
    const short = await runParscale(
      [...base, "--prefix-init", "text", "--prefix-text", "short.txt"],
      { cwd },
    );
    assertEquals(short.code, 3);
    assertStringIncludes(short.stderr, "fewer than `--prefix-tokens 48`");
    const absent = await runParscale(
      [...base, "--prefix-init", "text", "--prefix-text", "absent.txt"],
      { cwd },
    );
    assertEquals(absent.code, 3);
    for (const flags of [["--prefix-init", "text"], ["--prefix-text", "short.txt"]]) {
      assertEquals((await runParscale([...base, ...flags], { cwd })).code, 2);
    }
    assertEquals([...Deno.readDirSync(cwd)].map((entry) => entry.name), ["short.txt"]);
  });
});
