/** Ends of lines: words, wide characters, indentation, colours, and text that comes in parts. */
import { assertEquals } from "@std/assert";
import { LetteredText } from "../../../cli/commands/chat/talk.ts";
import { mayBreak, WordWrapper, wrapLines } from "../../../cli/output/wrap.ts";
import { captureIo } from "./capture_io.ts";

const TEXT = "Hello world, this is a stream of tokens\n\n" +
  "    def f(a, b): pass # 漢字漢字漢字。ok\n👩‍💻👩‍💻👩‍💻👩‍💻👩‍💻👩‍💻 end  ";

const AT_20 = [
  ["Hello world, this is", "a stream of tokens", "", "    def f(a, b):"],
  ["    pass # 漢字漢字", "    漢字。ok", "👩‍💻👩‍💻👩‍💻👩‍💻👩‍💻", "👩‍💻 end  "],
].flat().join("\n");

Deno.test("lines end at words and between wide characters, below their indentation", () => {
  assertEquals(wrapLines(TEXT, 20), AT_20);
  assertEquals(wrapLines(TEXT, 1000), TEXT);
});

Deno.test("text that comes in parts breaks as the whole does, wherever the parts end", () => {
  const letters = Array.from(TEXT);
  for (const size of [1, 2, 3, 7]) {
    const wrapper = new WordWrapper(20);
    let shown = "";
    for (let at = 0; at < letters.length; at += size) {
      shown += wrapper.add(letters.slice(at, at + size).join(""));
    }
    assertEquals(shown + wrapper.end(), AT_20, `parts of ${size}`);
  }
});

Deno.test("a word is shown once it has ended, and one that is too long stays whole", () => {
  const wrapper = new WordWrapper(10);
  const parts = ["one", " tw", "o ", "abcdefghijkl", "mn op"];
  assertEquals(parts.map((part) => wrapper.add(part)), ["", "one", " two", "", "\nabcdefghijklmn"]);
  assertEquals(wrapper.end(), "\nop");
});

Deno.test("colours take no columns", () => {
  const red = (text: string) => `\x1b[31m${text}\x1b[39m`;
  assertEquals(wrapLines(`${red("error:")} abc def`, 10), `${red("error:")} abc\ndef`);
});

Deno.test("a line may end beside spaces and wide characters alone", () => {
  const pairs: [string, string, boolean][] = [["", "a", true], ["a", "b", false]];
  pairs.push(["a", " b", true], ["a ", "b", true], ["-", "1", false]);
  pairs.push(["漢", "字", true], ["a", "漢", true]);
  for (const [before, after, may] of pairs) assertEquals(mayBreak(before, after), may, before);
});

Deno.test("notes, warnings, errors and results break at words on a terminal, nowhere else", () => {
  const text = "a long message that tells of many things".repeat(3);
  for (const terminals of [["stdout", "stderr"], []] as const) {
    const settings = { color: "never" } as const;
    const { io, stdout, stderr } = captureIo({ terminals, columns: 40, settings });
    io.note(text);
    io.warn(text, text);
    io.writeError(`${text}\n`);
    io.say(`${text}\n`);
    for (const shown of [stdout(), stderr()]) {
      const lines = shown.trimEnd().split("\n");
      assertEquals(lines.every((line) => line.length <= 40), terminals.length > 0, shown);
      assertEquals(lines.join(" ").includes(text), true, shown);
    }
  }
});

Deno.test("commands stay whole where they fit a line of their own", () => {
  const command = "`parscale train --resume --out run`";
  assertEquals(
    wrapLines(`hint: continue with ${command}, or not`, 40),
    ["hint: continue with", `${command}, or`, "not"].join("\n"),
  );
  assertEquals(
    wrapLines(`  see ${command} (\`a b\`).`, 36),
    "  see `parscale train --resume --out\n  run` (`a b`).",
    "with its indentation it does not fit",
  );
  const [bare] = /parscale[^`]+/.exec(command)!;
  assertEquals(
    wrapLines(`\x1b[36mhint:\x1b[39m ${bare}\nand so on: ${bare}`, 34),
    `\x1b[36mhint:\x1b[39m\n${bare}\nand so on:\n${bare}`,
  );
  assertEquals(wrapLines("parscale reads a line", 12), "parscale\nreads a line");
});

Deno.test("letters stay below their tokens where a word moves to the next line", () => {
  const lettered = new LetteredText(2, 10, false);
  const part = (text: string, first: number) => ({ text, weights: [first, 1 - first] });
  const parts = [part("abc", 1), part(" de", 0), part("fgh", 1), part("ij", 0), part(" k", 1)];
  const shown = parts.map((one) => lettered.add(one as never)).join("") + lettered.end();
  assertEquals(shown, "abc\nA\n defghij k\nB  A  B A\n");
});
