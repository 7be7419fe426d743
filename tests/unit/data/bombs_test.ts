/** A small file that unpacks to gigabytes is refused while it is read, whatever the format. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { Buffer } from "node:buffer";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { DataError } from "../../../core/base/errors.ts";
import { readDocuments } from "../../../core/data/read.ts";
import { environment } from "../../cli/run.ts";
import { withScratch } from "../../scratch.ts";
import { captureIo } from "../cli/capture_io.ts";
import { FIXTURES, ROOT } from "../../fixtures.ts";

/** The longest line there may be. */
const LIMIT = 32 << 20;

/** Unpacked bytes of a bomb: a line that never ends. */
const BOMB_BYTES = 1.3e9;

/** Packs `text` and then as many times 64 MiB of one letter as make the size. */
function bomb(text: string, pack: (bytes: Uint8Array) => Uint8Array): Uint8Array<ArrayBuffer> {
  const part = pack(new Uint8Array(64 << 20).fill(97));
  const count = Math.ceil(BOMB_BYTES / (64 << 20));
  const parts = [pack(new TextEncoder().encode(text)), ...Array(count).fill(part)];
  const bytes = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let done = 0;
  for (const piece of parts) {
    bytes.set(piece, done);
    done += piece.length;
  }
  return bytes;
}

/** Reads a file in another process; returns its output and peak memory in MB. */
async function readIn(path: string, viaStdin: boolean): Promise<{ text: string; peak: number }> {
  const at = (file: string) => JSON.stringify(new URL(file, import.meta.url).href);
  const program = `
    import { readDocuments } from ${at("../../../core/data/read.ts")};
    const stdin = Deno.stdin.readable, path = ${JSON.stringify(viaStdin ? "-" : path)};
    let text = "";
    try {
      for await (const document of readDocuments(path, { stdin })) text += document.kind + " ";
    } catch (error) {
      text += error.name + ": " + error.message;
    }
    const [, peak] = /VmHWM:\\s+(\\d+)/.exec(Deno.readTextFileSync("/proc/self/status"));
    console.log(JSON.stringify({ text, peak: Number(peak) / 1e3 }));`;
  const config = `${ROOT}deno.json`;
  const child = new Deno.Command(Deno.execPath(), {
    args: ["eval", "--node-modules-dir=manual", "--config", config, "--ext=ts", program],
    env: environment(),
    clearEnv: true,
    stdin: viaStdin ? "piped" : "null",
    stdout: "piped",
  }).spawn();
  if (viaStdin) {
    await new Blob([Deno.readFileSync(path)]).stream().pipeTo(child.stdin).catch(() => {});
  }
  return JSON.parse(new TextDecoder().decode((await child.output()).stdout));
}

Deno.test("compressed bombs are refused while they are read, below 500 MB of memory", {
  ignore: Deno.build.os !== "linux",
}, () =>
  withScratch(async (folder) => {
    const packs = { gz: (bytes: Uint8Array) => gzipSync(bytes), zst: zstdCompressSync };
    for (const [ending, pack] of Object.entries(packs)) {
      for (const format of ["jsonl", "txt"]) {
        const path = `${folder}/bomb.${format}.${ending}`;
        const text = format === "jsonl" ? '{"text":"fine"}\n{"text":"' : "";
        Deno.writeFileSync(path, bomb(text, pack));
        for (const viaStdin of [false, true]) {
          const { text, peak } = await readIn(path, viaStdin);
          const first = format === "jsonl" ? "text DataError: row 2 of " : "DataError: ";
          assertEquals(text.slice(0, first.length), first, text);
          assertStringIncludes(text, `is longer than ${LIMIT} bytes`);
          assert(peak < 500, `${path}: ${peak} MB`);
        }
      }
    }
  }));

Deno.test(
  "many small gzip members or Zstandard frames are one text, read in bounded memory and time",
  { ignore: Deno.build.os !== "linux" },
  () =>
    withScratch(async (folder) => {
      const row = new TextEncoder().encode('{"text":"fine"}\n');
      const files = { gz: [gzipSync(row), 100_000], zst: [zstdCompressSync(row), 10_000] } as const;
      for (const [ending, [member, count]] of Object.entries(files)) {
        const path = `${folder}/rows.jsonl.${ending}`;
        Deno.writeFileSync(path, Buffer.concat(Array(count).fill(member)));
        for (const viaStdin of [false, true]) {
          const start = performance.now();
          const { text, peak } = await readIn(path, viaStdin);
          assertEquals(text.length, "text ".length * count);
          assert(peak < 400, `${path}: ${peak} MB`);
          const seconds = (performance.now() - start) / 1000;
          assert(seconds < 30, `${path}: ${seconds} s`);
        }
      }
    }),
);

Deno.test("rows on stdin: a line is limited while it is read, the next ones are not harmed", async () => {
  const stdin = new Uint8Array(LIMIT + 10).fill(97);
  stdin[3] = stdin[LIMIT + 4] = 10; // the longest line there may be, between two short ones
  const lines: number[] = [];
  for await (const line of captureIo({ stdin }).io.readLines()) lines.push(line.length);
  assertEquals(lines, [3, LIMIT, 5]);
  stdin[LIMIT + 4] = 97;
  const error = await Array.fromAsync(captureIo({ stdin }).io.readLines()).catch((error) => error);
  assert(error instanceof DataError);
  assertEquals(error.message, `line 2 of stdin is longer than ${LIMIT} characters`);
});

Deno.test("a Parquet column that is not in its schema is bad data, and fails no other read", () =>
  withScratch(async (folder) => {
    const table = Deno.readFileSync(`${FIXTURES}data/tokens.parquet`);
    const text = new TextDecoder("latin1").decode(table);
    const at = text.lastIndexOf("element");
    const path = `${folder}/table.parquet`;
    Deno.writeFileSync(path, table.with(at, 0x22));
    const error = await Array.fromAsync(readDocuments(path)).catch((error) => error);
    assert(error instanceof DataError, `${error}`);
    assertStringIncludes(error.message, "a column is missing from its schema");
  }));
