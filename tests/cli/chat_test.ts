/** `parscale chat`: history, the switch of P, weights, Ctrl-C. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { jsonLines, parseLines } from "./models.ts";
import { parscale, runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { CHAT_MODEL, makeAdapter } from "./serve_testing.ts";

const GREEDY = ["--model", CHAT_MODEL, "--temperature", "0"];

Deno.test("answers are those of generate with the whole conversation; /p keeps it; /weights shows", () =>
  withScratch(async (folder) => {
    const adapter = await makeAdapter(CHAT_MODEL, 2, `${folder}/two`);
    const stdin = "Tell me\n/p 2\nMore\n/p 3\n/weights\nAgain\n/clear\nTell me\n";
    const args = ["chat", ...GREEDY, "--adapter", `p2=${adapter}`, "--max-tokens", "6"];
    const { code, stdout, stderr } = await runParscale(args, { stdin });
    assertEquals(code, 0, stderr);
    assertStringIncludes(stderr, "p2: 2 streams");
    assertStringIncludes(stderr, "no model with so many streams; there are: 1, 2");

    const messages: { role: string; content: string }[] = [];
    const texts: string[] = [];
    for (const [content, streams] of [["Tell me", 1], ["More", 2], ["Again", 2]] as const) {
      messages.push({ role: "user", content });
      const over = streams === 2 ? ["--adapter", adapter] : [];
      const result = await runParscale(
        ["generate", "--model", CHAT_MODEL, ...over, "--max-tokens", "6", "--jsonl"],
        { stdin: jsonLines({ messages }) },
      );
      const { text } = parseLines(result.stdout)[0];
      texts.push(text);
      messages.push({ role: "assistant", content: text });
    }
    const printable = (text: string) => text.replaceAll(/[^ -~]|\\x..|\\u\{.*?\}/g, "");
    const lines = stdout.split("\n");
    assertEquals(printable(lines[0]!), printable(texts[0]!));
    assertEquals(printable(lines[1]!), printable(texts[1]!));
    assertEquals(printable(lines[2]!.replaceAll(/\[[AB]\]/g, "")), printable(texts[2]!));
    const weights = lines.slice(3, 9);
    for (const line of weights) assert(/^ {2}A 0\.\d{4} {2}B 0\.\d{4} {2}"/.test(line), line);
  }));

Deno.test("Ctrl-C stops an answer and not the program; between answers it ends it with 130", async () => {
  const process = parscale(["chat", ...GREEDY, "--max-tokens", "100000"], {
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = process.stdin.getWriter();
  const reader = process.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  const readUntil = async (condition: () => boolean) => {
    while (!condition()) {
      const { value, done } = await reader.read();
      assert(!done, "the program has ended");
      text += value;
    }
  };
  const say = (line: string) => writer.write(new TextEncoder().encode(line));
  await say("Tell me\n");
  await readUntil(() => text.length > 20);
  process.kill("SIGINT");
  await readUntil(() => text.endsWith("\n"));
  text = "";
  await say("And more\n");
  await readUntil(() => text.length > 20);
  process.kill("SIGINT");
  await readUntil(() => text.endsWith("\n"));
  process.kill("SIGINT");
  assertEquals((await process.status).code, 130);
  await writer.close().catch(() => {});
  assertEquals(await new Response(process.stderr).text(), "");
  await reader.cancel();
});

Deno.test("a conversation that exceeds the context is told, and the next line is taken", async () => {
  const { code, stdout, stderr } = await runParscale(
    ["chat", ...GREEDY, "--max-tokens", "3"],
    { stdin: `${"x ".repeat(40_000)}\n/clear\nHello\n` },
  );
  assertEquals(code, 0);
  assertStringIncludes(stderr, "exceed the model's context");
  assert(stdout.trim() !== "");
});
