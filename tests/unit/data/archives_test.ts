/** Archives and compressed files are refused where text is expected, by content and by name. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "node:path";
import { DataError } from "../../../core/base/errors.ts";
import { withScratch } from "../../scratch.ts";
import { bytesOf, gzip, readAll, streamOf, zstd } from "./testing.ts";

const latin1 = (text: string) => Uint8Array.from(text, (letter) => letter.charCodeAt(0));
const TAR = "notes.txt".padEnd(257, "\0") + "ustar\0".padEnd(255, "\0") + "text".padEnd(512, "\0");

/** First bytes of each kind, and its command. */
const KINDS: readonly [name: string, bytes: Uint8Array, command: string][] = [
  ["a tar archive", latin1(TAR), "tar -xf"],
  ["a zip archive", latin1("PK\x03\x04 text"), "unzip"],
  ["a 7z archive", latin1("7z\xbc\xaf\x27\x1c"), "7z x"],
  ["a RAR archive", latin1("Rar!\x1a\x07\0"), "unrar x"],
  ["gzip data", await gzip("text"), "gzip -dc"],
  ["Zstandard data", zstd("text"), "zstd -dc"],
  ["xz data", latin1("\xfd7zXZ\0"), "xz -dc"],
  ["bzip2 data", latin1("BZh91AY&SY"), "bzip2 -dc"],
];

async function refusal(path: string, stdin?: ReadableStream<Uint8Array>): Promise<DataError> {
  const error = await readAll(path, stdin).then(() => undefined, (error) => error);
  assert(error instanceof DataError, `${path}: ${error}`);
  return error;
}

Deno.test("an archive is refused by its content, whatever its name", () =>
  withScratch(async (folder) => {
    for (const [name, bytes, command] of KINDS) {
      for (const ending of ["txt", "jsonl", "py"]) {
        const path = join(folder, `data.${ending}`);
        Deno.writeFileSync(path, bytes);
        const { message, hints } = await refusal(path);
        assertEquals(message, `"${path}" is ${name}, not text`);
        assertStringIncludes(hints.join(), `${command} ${JSON.stringify(path)}`);
      }
    }
  }));

Deno.test("an archive is refused by its name, whatever its content", () =>
  withScratch(async (folder) => {
    for (const ending of ["tar", "tar.gz", "TGZ", "zip", "7z", "rar", "xz", "bz2", "jsonl.xz"]) {
      const path = join(folder, `data.${ending}`);
      Deno.writeTextFileSync(path, "text");
      assertStringIncludes((await refusal(path)).message, "not text");
    }
  }));

Deno.test("an archive on standard input or inside of gzip is refused, and texts are not", () =>
  withScratch(async (folder) => {
    for (const [name, bytes] of KINDS) {
      if (name === "gzip data" || name === "Zstandard data") continue; // unpacked on standard input
      const { message } = await refusal("-", streamOf(bytes, 7));
      assertEquals(message, `"standard input" is ${name}, not text`);
    }
    const path = join(folder, "data.txt.gz");
    Deno.writeFileSync(path, await gzip(TAR));
    assertEquals(
      (await refusal(path)).message,
      `the content of "${path}" is a tar archive, not text`,
    );
    for (const text of ["PK is short for Park", "BZh", "7z", "a ustar".padStart(300)]) {
      const documents = [{ row: 1, kind: "text", text } as const];
      assertEquals(await readAll("-", streamOf(bytesOf(text))), documents);
      Deno.writeFileSync(path, await gzip(text));
      assertEquals(await readAll(path), documents);
    }
  }));
