/** Protects which tokens a document becomes and which of them are trained. */
import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { toDocument } from "../../../core/data/document.ts";
import { countTargets, encodeDocument, idOf } from "../../../core/data/encode.ts";
import { EncodePool } from "../../../core/data/encode_pool.ts";
import { parseExactJson } from "../../../core/base/exact_json.ts";
import { DataError } from "../../../core/base/errors.ts";
import { openTokenizer, type Tokenizer } from "../../../core/tokenizer/tokenizer.ts";
import { withScratch } from "../../scratch.ts";
import { TOKENIZER } from "./testing.ts";

const tokenizer = await openTokenizer(TOKENIZER);
const END = tokenizer.idOf("<|endoftext|>")!;

const documentOf = (row: unknown) => toDocument(row, "a.jsonl", 1);
const encode = (row: unknown, options = {}, used: Tokenizer | undefined = tokenizer) =>
  encodeDocument(used, documentOf(row), options);

/** Runs of trained and untrained tokens as text: `+` before what is trained, `-` before what is not. */
function runs(ids: Int32Array): string[] {
  const found: { mark: string; ids: number[] }[] = [];
  for (const id of ids) {
    const mark = id < 0 ? "-" : "+";
    if (found.at(-1)?.mark !== mark) found.push({ mark, ids: [] });
    found.at(-1)!.ids.push(idOf(id));
  }
  return found.map(({ mark, ids }) => mark + tokenizer.decode(ids));
}

/** A tokenizer with another chat template. */
const withTemplate = (chatTemplate: string): Tokenizer =>
  Object.assign(Object.create(tokenizer), {
    encode: (text: string) => tokenizer.encode(text),
    decode: (...given: Parameters<Tokenizer["decode"]>) => tokenizer.decode(...given),
    chatTemplate,
  });

Deno.test("of a text all is trained, the end token too", async () => {
  const text = "Hello, world!";
  assertEquals([...await encode({ text })], tokenizer.encode(text));
  assertEquals(runs(await encode({ text }, { endToken: END })), [`+${text}<|endoftext|>`]);
  assertEquals([...await encode({ text: "" }, { endToken: END })], [END]);
  assertEquals(
    countTargets(await encode({ text }, { endToken: END })),
    tokenizer.encode(text).length,
  );
  assertEquals(countTargets(new Int32Array(0)), 0);
});

Deno.test("rows of tokens are taken as they are and need no tokenizer", async () => {
  const row = { tokens: [5, 0, 7], labels: [-100, -100, 7] };
  const masked = await encodeDocument(undefined, documentOf(row), { endToken: END });
  assertEquals([...masked], [~5, ~0, 7]);
  assertEquals([...await encodeDocument(undefined, documentOf({ tokens: [5] }))], [5]);
});

Deno.test("of a completion the prompt is not trained, and a blank between belongs to the answer", async () => {
  const row = { prompt: "Question: 2+2?\nAnswer:", completion: " four" };
  assertEquals(runs(await encode(row, { endToken: END })), [
    "-Question: 2+2?\nAnswer:",
    "+ four<|endoftext|>",
  ]);
  const blank = { prompt: "Question: 2+2?\nAnswer: ", completion: "four" };
  assertEquals(await encode(blank), await encode(row));
  // A word that tokens would join with the prompt is learned, as generation will see the border.
  for (const completion of ["cess it", "cess"]) {
    const found = runs(await encode({ prompt: " pro", completion }, { endToken: END }));
    assertEquals(found, ["- pro", `+${completion}<|endoftext|>`]);
  }
  // An empty prompt needs something to predict the first token from.
  assertEquals(runs(await encode({ prompt: "", completion: "four" }, { endToken: END })), [
    "-<|endoftext|>",
    "+four<|endoftext|>",
  ]);
  const unstarted = () => encode({ prompt: "", completion: "four" }, { at: "row 7" });
  await assertRejects(unstarted, DataError, "cannot tokenize row 7: cannot score");
});

Deno.test("of a conversation the answers are trained to their end markers", async () => {
  const messages = [
    { role: "system", content: "Be brief." },
    { role: "user", content: "Hi" },
    { role: "assistant", content: "Hello!" },
    { role: "user", content: "Bye" },
    { role: "assistant", content: "See you.\n\nSoon." },
    { role: "user", content: "never answered, so of no use" },
  ];
  const found = runs(await encode({ messages }, { endToken: END }));
  assertEquals(found, [
    "-<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "+Hello!<|im_end|>",
    "-\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "+See you.\n\nSoon.<|im_end|>",
    "-\n",
  ]);
  // What generation sees before the answer is what stands before it here.
  const question = tokenizer.encode(found[0]!.slice(1));
  assertEquals([...await encode({ messages })].slice(0, question.length).map(idOf), question);
});

Deno.test("an answer's end is found where the content has special tokens or the template rewrites it", async () => {
  const trained = async (content: unknown, used?: Tokenizer) => {
    const messages = [{ role: "user", content: "Hi" }, { role: "assistant", content }];
    return runs(await encode({ messages }, {}, used)).slice(1);
  };
  assertEquals(await trained("a<|im_end|>b <|im_start|>c"), [
    "+a<|im_end|>b <|im_start|>c<|im_end|>",
    "-\n",
  ]);
  assertEquals(await trained(""), ["+<|im_end|>", "-\n"]);
  const start = "{% for m in messages %}<|im_start|>{{ m.role }}\n";
  const end =
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const trimming = withTemplate(`${start}{{ m.content | trim }}${end}`);
  assertEquals(await trained("  spaced \n", trimming), ["+spaced<|im_end|>", "-\n"]);
  const thinking = withTemplate(`${start}<think></think>{{ m.content | upper }}${end}`);
  const prompt = "<|im_start|>user\n<think></think>HI<|im_end|>\n<|im_start|>assistant\n";
  assertEquals(await trained("shout", thinking), ["+<think></think>SHOUT<|im_end|>", "-\n"]);
  const counting = withTemplate(`${start}{{ m.content | length }}${end}`);
  const long = "a".repeat(40);
  assertEquals(await trained(long, counting), ["+40<|im_end|>", "-\n"]);
  const messages = [{ role: "user", content: "Hi" }, { role: "assistant", content: "a" }];
  assertEquals(runs(await encode({ messages }, {}, thinking))[0], `-${prompt}`);
  // No special token at all: everything is the answer.
  const bare = withTemplate(
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
  );
  assertEquals(await trained("yes", bare), ["+yes\n"]);
});

Deno.test("an answer of weight 0 is context, and what comes after the last trained one is left out", async () => {
  const turn = (role: string, content: string, weight?: number | null) => ({
    role,
    content,
    weight,
  });
  const trained = async (...weights: (number | null)[]) => {
    const messages = weights.flatMap((weight, i) => [
      turn("user", `q${i}`),
      turn("assistant", `a${i}`, weight),
    ]);
    const ids = await encode({ messages });
    return runs(ids).filter((run) => run.startsWith("+")).concat(`${runs(ids).join("")}`);
  };
  const all = await trained(1, 1);
  assertEquals(all.slice(0, -1), ["+a0<|im_end|>", "+a1<|im_end|>"]);
  const second = await trained(0, 1);
  assertEquals(second.slice(0, -1), ["+a1<|im_end|>"]);
  // The same tokens, of which fewer are trained.
  assertEquals(second.at(-1)!.replaceAll(/[+-]/g, ""), all.at(-1)!.replaceAll(/[+-]/g, ""));
  assertEquals((await trained(1, 0, 0)).at(-1), (await trained(1)).at(-1));
  assertEquals(await trained(null, 0), await trained(1));
});

Deno.test("tools reach the template", async () => {
  const used = withTemplate(
    "{% if tools %}{{ tools[0].name }}{% endif %}{% for m in messages %}{{ m.content }};{% endfor %}",
  );
  const messages = [{ role: "user", content: "Hi" }, { role: "assistant", content: "Ho" }];
  const ids = await encode({ messages, tools: [{ name: "clock" }] }, {}, used);
  assertEquals(runs(ids), ["-clockHi;", "+Ho;"]);
});

Deno.test("conversations that cannot be trained are refused with their place", async () => {
  const at = 'row 3 of "a.jsonl"';
  const told = (messages: unknown, used?: Tokenizer) =>
    assertRejects(() => encode({ messages }, { at }, used), DataError, `cannot tokenize ${at}: `);
  const user = { role: "user", content: "Hi" }, assistant = { role: "assistant", content: "Ho" };
  await told([assistant]);
  await told([{ role: "user", content: 1 }, assistant]);
  // Keeps only the last answer, as templates do that drop earlier thoughts.
  const forgetful = withTemplate(
    "{% for m in messages %}{% if m.role == 'user' or loop.last %}<|im_start|>{{ m.content }}<|im_end|>{% endif %}{% endfor %}",
  );
  const { message, hints } = await told([user, assistant, user, assistant], forgetful);
  const words = "the chat template changes earlier messages when it renders message 4";
  assertStringIncludes(message, words);
  assertEquals(hints.length, 1);
  await told([user, assistant], Object.assign(withTemplate(""), { chatTemplate: undefined }));
});

Deno.test("threads get conversations with the numbers and keys that they were written with", async () => {
  const tool = '{"type": "function", "z": 0.0, "1": 9007199254740993}';
  const row =
    '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], ' +
    `"tools": [${tool}]}`;
  const template =
    "{{ tools|tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}" +
    "{% if add_generation_prompt %}<assistant>{% endif %}{{ mood }}";
  await withScratch(async (folder) => {
    for (const name of ["config.json", "tokenizer.json", "tokenizer_config.json"]) {
      await Deno.copyFile(`${TOKENIZER}/${name}`, `${folder}/${name}`);
    }
    await Deno.writeTextFile(`${folder}/chat_template.jinja`, template.replace("{{ mood }}", ""));
    const document = toDocument(parseExactJson(row), "a.jsonl", 1);
    using pool = new EncodePool({ tokenizerFolder: folder }, 2);
    const inline = await pool.encode([document], "a.jsonl");
    pool.start();
    assertEquals(await pool.encode([document], "a.jsonl"), inline);
    const tokenizer = await openTokenizer(folder);
    const text = tokenizer.decode(Array.from(inline.ids, (id) => id < 0 ? ~id : id));
    assertEquals(text, `[${tool}]<user>a<assistant>b`);

    await Deno.writeTextFile(
      `${folder}/chat_template.jinja`,
      `{{ mood }}${template.replace("{{ mood }}", "")}`,
    );
    const templateVariables = '{"mood": 1.0}';
    using moody = new EncodePool({ tokenizerFolder: folder, templateVariables }, 2);
    const own = await moody.encode([document], "a.jsonl");
    moody.start();
    assertEquals(await moody.encode([document], "a.jsonl"), own);
    const begin = tokenizer.decode(Array.from(own.ids.slice(0, 3), (id) => ~id));
    assertEquals(begin, "1.0");
  });
});
