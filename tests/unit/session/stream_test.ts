/** Stop strings and incomplete characters while text is being produced. */
import { assert, assertEquals } from "@std/assert";
import { CompletionStream, decodeCompletion, TextStream } from "../../../core/session/stream.ts";
import { openTokenizer, type StreamDecoder } from "../../../core/tokenizer/tokenizer.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { FIXTURE } from "../tokenizer/testing.ts";

/** A decoder whose token i is the i-th of the given pieces; `rest` is what it holds back at the end. */
function pieces(texts: readonly string[], rest = ""): StreamDecoder {
  return { push: (token) => texts[token]!, flush: () => rest };
}

/** Reads a stream: the text after each token, where it stopped, the whole. */
function read(texts: readonly string[], stops: readonly string[], rest = "") {
  const stream = new TextStream(pieces(texts, rest), stops);
  const taken: string[] = [];
  let stoppedAt: number | undefined;
  for (const token of texts.keys()) {
    const stopped = stream.push(token);
    taken.push(stream.take());
    if (!stopped) continue;
    stoppedAt = token;
    break;
  }
  stream.finish();
  taken.push(stream.take());
  assertEquals(taken.join(""), stream.text, "what is taken piece by piece is the whole text");
  assertEquals(stream.take(), "", "nothing is given twice");
  return { taken, stoppedAt, text: stream.text };
}

Deno.test("a piece is given at once, but for what may begin a stop string", () => {
  const plain = { taken: ["a", "", "bc", ""], stoppedAt: undefined, text: "abc" };
  assertEquals(read(["a", "", "bc"], []), plain);
  assertEquals(read(["a", "b"], [""]).text, "ab", "an empty stop string stops nothing");
  assertEquals(read(["x\n", "\n", "y"], ["\n\nz"]).taken, ["x", "", "\n\ny", ""]);
  const stopped = { taken: ["", "", "aab", "", "", "", ""], stoppedAt: 5, text: "aab" };
  assertEquals(read(["a", "a", "b", "a", "a", "a"], ["aaa"]), stopped);
});

Deno.test("text held back at the end is given by finish", () => {
  assertEquals(read(["x ST"], ["STOP"]).taken, ["x ", "ST"]);
  assertEquals(read(["x"], [], "\ufffd").text, "x\ufffd");
  assertEquals(
    read(["x"], ["\ufffd"], "\ufffd").text,
    "x",
    "a stop string may come out of the rest",
  );
  assertEquals(read(["stop"], ["stop"], "rest").text, "", "nothing follows a stop string");
});

Deno.test("characters of several tokens come out whole, and stop strings may cut at them", async () => {
  const tokenizer = await openTokenizer(FIXTURE);
  const text = "Größe 👩‍👩‍👧 你好 end";
  const ids = tokenizer.encode(text);
  const stream = new TextStream(tokenizer.streamDecoder(), ["好"]);
  const taken: string[] = [];
  for (const id of ids) {
    const stopped = stream.push(id);
    taken.push(stream.take());
    if (stopped) break;
  }
  assert(taken.every((piece) => !piece.includes("\ufffd") && piece.isWellFormed()));
  assertEquals(taken.join(""), "Größe 👩‍👩‍👧 你");
  const cut = new TextStream(tokenizer.streamDecoder());
  for (const id of tokenizer.encode("a👩").slice(0, -1)) cut.push(id);
  assertEquals(cut.take(), "a", "an incomplete character is not shown");
  cut.finish();
  assertEquals(cut.take(), "\ufffd", "unless nothing completes it");
});

Deno.test("1000 random texts: the stream stops where a search after every token stops", () => {
  const random = new RandomStream(11, "stops");
  const word = (longest: number) =>
    Array.from({ length: 1 + random.integer(longest) }, () => "ab\n"[random.integer(3)]).join("");
  for (let round = 0; round < 1000; round++) {
    const texts = Array.from({ length: 1 + random.integer(12) }, () => word(4));
    const stops = Array.from({ length: 1 + random.integer(3) }, () => word(4));
    let expected = "";
    let stoppedAt: number | undefined;
    for (const [token, text] of texts.entries()) {
      expected += text;
      const places = stops.map((stop) => expected.indexOf(stop)).filter((at) => at >= 0);
      if (places.length === 0) continue;
      expected = expected.slice(0, Math.min(...places));
      stoppedAt = token;
      break;
    }
    const actual = read(texts, stops);
    assertEquals([actual.text, actual.stoppedAt], [expected, stoppedAt], `${texts} | ${stops}`);
  }
});

Deno.test("a completion stream gives text with the event of its token, and null without a tokenizer", async () => {
  const tokenizer = await openTokenizer(FIXTURE);
  const [first, second] = tokenizer.encode("good day") as [number, number];
  const stream = new CompletionStream(tokenizer);
  stream.shouldStop(first);
  assertEquals(stream.take({ kind: "prefilled", index: 0, cached: 0 }).text, "");
  const token = (id: number) => stream.take({ kind: "token", index: 0, token: id });
  assertEquals(token(first).text, tokenizer.decode([first]));
  stream.shouldStop(second);
  assertEquals(token(second).tokens.map(({ id }) => id), [second]);
  assertEquals(stream.take({ kind: "done", index: 0, reason: "length" }).finishReason, "length");
  assertEquals(stream.text, tokenizer.decode([first, second]));
  assertEquals(new CompletionStream(undefined).text, null);
});

Deno.test("a stop string may be a special token, which is not part of the text", async () => {
  const tokenizer = await openTokenizer(FIXTURE);
  const end = "<|im_end|>", text = ` #### 72${end}\nSo 99`;
  const cases: [stop: string, shown: string, tokensUntil: string | undefined][] = [
    // transformers 5.24, StopStringCriteria, and lm_eval 0.4.13 stop at the same tokens.
    [end, " #### 72", ` #### 72${end}`],
    [`${end}\nSo`, " #### 72", ` #### 72${end}\nSo`],
    [`2${end}`, " #### 7", ` #### 72${end}`],
    ["im_end", " #### 72", ` #### 72${end}`],
    ["So 9", " #### 72\n", ` #### 72${end}\nSo 9`],
    ["2\nSo", " #### 72\nSo 99", undefined],
  ];
  for (const [stop, shown, until] of cases) {
    const stream = new CompletionStream(tokenizer, ["</s>", stop]);
    const tokens = tokenizer.encode(text, { frame: false });
    const at = tokens.findIndex((token) => stream.shouldStop(token));
    const expected = until === undefined
      ? -1
      : tokenizer.encode(until, { frame: false }).length - 1;
    assertEquals(at, expected, stop);
    stream.take({ kind: "done", index: 0, reason: at < 0 ? "length" : "stop" } as never);
    assertEquals(stream.text, shown, stop);
    assertEquals(decodeCompletion(tokenizer, tokens, "stop", ["</s>", stop]), shown);
  }
});
