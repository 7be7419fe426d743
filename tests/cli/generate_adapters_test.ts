/** `generate` with several adapters over one backbone: rows choose. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { jsonLines, parseLines, rowsOf } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { CHAT_MODEL, makeAdapter } from "./serve_testing.ts";

Deno.test("rows choose an adapter by name or path; others run on the backbone", () =>
  withScratch(async (folder) => {
    const two = await makeAdapter(CHAT_MODEL, 2, `${folder}/two`);
    const four = await makeAdapter(CHAT_MODEL, 4, `${folder}/four`);
    const common = ["generate", "--model", CHAT_MODEL, "--max-tokens", "40"];
    const prompt = "The red fox";
    const stdin = jsonLines(
      { prompt, adapter: "p2" },
      { prompt },
      { prompt, adapter: four },
      { prompt, adapter: "p2" },
    );
    const several = [...common, "--adapter", `p2=${two}`, "--adapter", four];
    const texts = (await rowsOf(several, { stdin })).map(({ text }) => text);
    const alone = async (...adapter: string[]) =>
      (await rowsOf([...common, "--prompt", prompt, ...adapter]))[0].text;
    const expected = [await alone("--adapter", two), await alone(), await alone("--adapter", four)];
    assertEquals(texts, [...expected, expected[0]]);
    assertEquals(new Set(expected).size, 3);
    const beams = [...several, "--num-beams", "2"];
    const searched = (await rowsOf(beams, { stdin })).map(({ text }) => text);
    assertEquals(searched[0], searched[3]);

    const wrong = await runParscale([...several, "--jsonl"], {
      stdin: jsonLines({ prompt, adapter: "p8" }),
    });
    assertEquals(wrong.code, 3);
    assertStringIncludes(wrong.stderr, "line 1 of stdin names no adapter");
    const twice = await runParscale([...common, "--adapter", `a=${two}`, "--adapter", `a=${four}`]);
    assertEquals(twice.code, 2);
    const kept = parseLines(
      (await runParscale([...common, "--jsonl"], { stdin: jsonLines({ prompt, adapter: "any" }) }))
        .stdout,
    );
    assertEquals(kept[0].text, expected[1], "without adapters the field means nothing");
  }));
