/** `parscale chat` with lines on stdin, and on a terminal: editing, history, commands, streams. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { jsonLines, names, rowsOf } from "./models.ts";
import { parscale, runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { CHAT_MODEL, makeAdapter } from "./serve_testing.ts";
import { HAS_TERMINALS, Terminal, type TerminalOptions } from "./terminal.ts";

const GREEDY = `--model ${CHAT_MODEL} --temperature 0`;

Deno.test("/help leaves the wrapping of its text to the terminal", async () => {
  const { stderr } = await runParscale(`chat ${GREEDY}`, { stdin: "/help\n" });
  assertStringIncludes(stderr, "are one message; the arrow keys go through earlier lines.\n");
});

Deno.test("answers are those of generate with the whole conversation; /p keeps it; /weights shows", () =>
  withScratch(async (folder) => {
    const adapter = await makeAdapter(CHAT_MODEL, 2, `${folder}/two`);
    const stdin = "Tell me\n/p 1\n/p 2\nMore\n/p 3\n/weights\nAgain\n/clear\nTell me\n";
    const line = `chat ${GREEDY} --adapter p2=${adapter} --max-tokens 6`;
    const { code, stdout, stderr } = await runParscale(line, { stdin });
    assertEquals(code, 0, stderr);
    assertStringIncludes(stderr, ": 1 stream\n");
    assertStringIncludes(stderr, "p2: 2 streams");
    assertStringIncludes(stderr, "no model has that many streams; there are: 1, 2");

    const messages: { role: string; content: string }[] = [];
    const texts: string[] = [];
    for (const [content, streams] of [["Tell me", 1], ["More", 2], ["Again", 2]] as const) {
      messages.push({ role: "user", content });
      const over = streams === 2 ? `--adapter ${adapter}` : "";
      const generate = `generate --model ${CHAT_MODEL} --max-tokens 6 ${over}`;
      const [{ text }] = await rowsOf(generate, { stdin: jsonLines({ messages }) });
      texts.push(text);
      messages.push({ role: "assistant", content: text });
    }
    const printable = (text: string) => text.replaceAll(/[^ -~]|\\x..|\\u\{.*?\}/g, "");
    const lines = stdout.split("\n");
    lines[2] = lines[2]!.replaceAll(/\[[AB]\]/g, "");
    assertEquals(lines.slice(0, 3).map(printable), texts.map(printable));
    const weights = lines.slice(3, 9);
    for (const line of weights) assert(/^ {2}A 0\.\d{4} {2}B 0\.\d{4} {2}"/.test(line), line);
  }));

for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143]] as const) {
  Deno.test(`Ctrl-C stops an answer and not the program, which ${signal} ends between answers`, async () => {
    const pipes = { stdin: "piped", stdout: "piped", stderr: "piped" } as const;
    const process = parscale(`chat ${GREEDY} --max-tokens 100000`, pipes).spawn();
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
    for (const message of ["Tell me\n", "And more\n"]) {
      text = "";
      await say(message);
      await readUntil(() => text.length > 20);
      process.kill("SIGINT");
      await readUntil(() => text.endsWith("\n"));
    }
    process.kill(signal);
    assertEquals((await process.status).code, code);
    await writer.close().catch(() => {});
    assertEquals(await new Response(process.stderr).text(), "");
    await reader.cancel();
  });
}

Deno.test("a conversation that exceeds the context is told, and the next line is taken", async () => {
  const stdin = `${"x ".repeat(40_000)}\n/clear\nHello\n`;
  const { code, stdout, stderr } = await runParscale(`chat ${GREEDY} --max-tokens 3`, { stdin });
  assertEquals(code, 1, "a message has no answer");
  assertStringIncludes(stderr, "exceed the model's context");
  assert(stdout.trim() !== "");
});

Deno.test("/retry answers the message that failed, and keeps it where it fails again", () =>
  withScratch(async (cwd) => {
    const long = "x ".repeat(40_000);
    const stdin = `/save none\nHello\n${long}\n/retry\n/save talk.jsonl\n/clear\nHello\n` +
      `/system ${long}\n/retry\n/save again.jsonl\n`;
    const { code, stderr } = await runParscale(`chat ${GREEDY} --max-tokens 3`, { stdin, cwd });
    assertEquals([code, names(cwd)], [1, ["again.jsonl", "talk.jsonl"]]);
    assertEquals(stderr.match(/exceed the model's context/g)?.length, 3);
    assertEquals(stderr.match(/or forget the conversation by \/clear/g)?.length, 2);
    const [talk, again] = await Promise.all(
      ["talk", "again"].map(async (name) =>
        JSON.parse(await Deno.readTextFile(`${cwd}/${name}.jsonl`)).messages
      ),
    );
    assertEquals(again.slice(1), talk);
    assertEquals([talk.length, talk[0].content], [2, "Hello"]);
  }));

const CHAT = ["chat", CHAT_MODEL, "--temperature", "0", "--max-tokens", "6"];
const PROMPT = (screen: string) => screen.endsWith("\n>");

function onTerminal(name: string, body: (cwd: string) => Promise<void>): void {
  Deno.test({ name, ignore: !HAS_TERMINALS, fn: () => withScratch(body) });
}

/** A conversation that keeps its history in `cwd`. */
async function converse(cwd: string, args: readonly string[] = [], options: TerminalOptions = {}) {
  const env = { XDG_STATE_HOME: `${cwd}/state`, ...options.env };
  const terminal = new Terminal([...CHAT, ...args], { cwd, ...options, env });
  await terminal.until(PROMPT);
  return terminal;
}

/** Types lines, and waits for a text and the next prompt after each. */
function typing(chat: Terminal): (line: string, shows?: string) => Promise<void> {
  let prompts = 1;
  return async (line, shows = "") => {
    await chat.type(`${line}\r`);
    prompts++;
    const isNext = (screen: string) => screen.match(/^>/gm)?.length === prompts && PROMPT(screen);
    await chat.until((screen) => screen.includes(shows) && isNext(screen));
  };
}

onTerminal("chat: a line is edited, and the arrows recall earlier messages", async (cwd) => {
  const history = `${cwd}/state/parscale/chat_history`;
  for (const first of [true, false]) {
    await using chat = await converse(cwd);
    if (first) await chat.type("Tell yo\x7f\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x1b[DI \x05u");
    else await chat.type("\x1b[A");
    await chat.until("> I Tell yu");
    await chat.type("\r");
    await chat.until(PROMPT);
    await chat.type("\x04");
    const { code, screen } = await chat.end();
    assertEquals(code, 0);
    assert(screen[screen.indexOf("> I Tell yu") + 1] !== ">", screen.join("\n"));
    // As a full disk cuts a line.
    await Deno.writeTextFile(history, '"Hel\n', { append: true });
  }
  const { mode } = await Deno.stat(history);
  assertEquals(mode! & 0o777, 0o600);
});

onTerminal("chat --no-history writes no file", async (cwd) => {
  await using chat = await converse(cwd, ["--no-history"]);
  await chat.type("Hello\r");
  await chat.until((screen) => screen.includes("> Hello") && PROMPT(screen));
  await chat.type("/quit\r");
  assertEquals((await chat.end()).code, 0);
  assertEquals(names(cwd), []);
});

onTerminal("chat: what is typed during an answer stands at the next prompt", async (cwd) => {
  await using chat = await converse(cwd, ["--max-tokens", "300"]);
  await chat.type("Hello\r");
  await chat.until((screen) => screen.split("> Hello\n")[1]?.length! > 5);
  await chat.type("second");
  await chat.until("\n> second");
  const { screen } = chat;
  const answer = screen.slice(screen.indexOf("> Hello") + 1, -1).join("\n");
  assert(!answer.includes("second"), answer);
  await chat.type("\x15\x04");
  assertEquals((await chat.end()).code, 0);
});

onTerminal("chat: Ctrl-C empties a line, stops an answer, and then ends with 130", async (cwd) => {
  await using chat = await converse(cwd, ["--max-tokens", "100000"]);
  await chat.type("not this");
  await chat.until("> not this");
  await chat.type("\x03");
  await chat.until(PROMPT);
  await chat.type("Hello\r");
  await chat.until((screen) => screen.split("> Hello\n")[1]?.length! > 20);
  await chat.type("\x03");
  await chat.until(PROMPT);
  await chat.type("\x03");
  assertEquals((await chat.end()).code, 130);
});

onTerminal("chat: /system, /temp, /save and /retry", async (cwd) => {
  await using chat = await converse(cwd);
  const say = typing(chat);
  await say("/system Be kind", "system message: Be kind");
  await say("/temp -1", "a temperature is a number from 0 on");
  await say("/temp 0.5", "temperature 0.5");
  await say("/retry", "there is no message yet");
  await say("/temp 0", "temperature 0");
  await say("one\ntwo", "  two");
  await say("/save talk.jsonl", 'saved to "talk.jsonl"');
  await say("/save talk.jsonl", '"talk.jsonl" already exists');
  await say("/retry", "/retry");
  await say("/save again.jsonl", 'saved to "again.jsonl"');
  await chat.type("\x04");
  await chat.end();
  const read = async (name: string) => JSON.parse(await Deno.readTextFile(`${cwd}/${name}`));
  const { messages } = await read("talk.jsonl");
  assertEquals(messages.map(({ role }: { role: string }) => role), ["system", "user", "assistant"]);
  assertEquals([messages[0].content, messages[1].content], ["Be kind", "one\ntwo"]);
  assertEquals(await read("again.jsonl"), { messages });
});

for (const columns of [40, 80]) {
  onTerminal(
    `chat: /weights puts letters under the answer, which has none of its own, ${columns} columns`,
    async (cwd) => {
      const adapter = await makeAdapter(CHAT_MODEL, 2, `${cwd}/two`);
      const args = ["--adapter", `p2=${adapter}`, "--max-tokens", "40"];
      await using chat = await converse(cwd, args, { columns, env: { NO_COLOR: "1" } });
      const say = typing(chat);
      for (const line of ["/p 2", "Tell", "/weights", "/clear", "Tell"]) await say(line);
      await chat.type("\x04");
      const { screen } = await chat.end();
      for (const line of screen) assert(line.length <= columns, line);
      const first = screen.indexOf("> Tell"), second = screen.lastIndexOf("> Tell");
      const answer = screen.slice(first + 1, screen.indexOf("> /weights"));
      const lettered = screen.slice(second + 1, -2);
      assertStringIncludes(lettered.at(-1)!, "mean weights: A 0.");
      const under = lettered.filter((line) => /^[AB ]*[AB]$/.test(line));
      assert(under.length > 0, screen.join("\n"));
      const plain = (lines: readonly string[]) => lines.join("").replaceAll(" ", "");
      const without = lettered.slice(0, -1).filter((line) => !under.includes(line));
      assertEquals(plain(without), plain(answer));
    },
  );
}
