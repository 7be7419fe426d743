/** Every command that takes data refuses archives by name. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { gzipSync } from "node:zlib";
import { withScratch } from "../scratch.ts";
import { assertFailed, MODEL } from "./models.ts";
import { runParscale } from "./run.ts";
import { withWorkplace } from "./train_testing.ts";

const ZIP = Uint8Array.from("PK\x03\x04 rows.jsonl", (letter) => letter.charCodeAt(0));

Deno.test("archives given as data are refused with exit code 3 and a hint", () =>
  withScratch(async (cwd) => {
    Deno.writeFileSync(`${cwd}/data.jsonl`, ZIP);
    Deno.writeFileSync(`${cwd}/data.tar.gz`, gzipSync("text"));
    Deno.writeFileSync(`${cwd}/packed.jsonl`, gzipSync("text"));
    const lines = [
      `train --model ${MODEL} --steps 1 --out run --data`,
      `eval --model ${MODEL} --tasks gsm8k --shots 0 --data`,
      `generate ${MODEL}`,
      `score ${MODEL}`,
      `visualize ${MODEL}`,
      "fit",
    ];
    for (const line of lines) {
      const zip = await runParscale(`${line} data.jsonl`, { cwd });
      assertFailed(zip, 3, '"data.jsonl" is a zip archive, not text');
      assertStringIncludes(zip.stderr, 'hint: unpack it: `unzip "data.jsonl"`');
      const packed = await runParscale(`${line} packed.jsonl`, { cwd });
      assertFailed(packed, 3, '"packed.jsonl" is gzip data, not text');
    }
    const tar = await runParscale(`${lines[0]} data.tar.gz`, { cwd });
    assertFailed(tar, 3, '"data.tar.gz" is a tar archive, not text');
  }));

Deno.test("train notes once that tables in text form are read as plain text", () =>
  withWorkplace(async (place) => {
    for (const name of ["a.csv", "b.TSV"]) place.write(name, "one,two\nthree,four\n".repeat(9));
    const line = "--model p2 --batch 1 --seq-len 8 --steps 1 --data a.csv b.TSV --out run";
    const { code, stderr } = await place.train(line);
    assertEquals(code, 0, stderr);
    assertEquals(stderr.split("reading tables as plain text").length, 2, stderr);
    assertStringIncludes(stderr, '"a.csv" and 1 more; rows are read from JSON lines and Parquet');
  }));
