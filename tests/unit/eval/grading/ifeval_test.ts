/** IFEval: every checker, the two tokenizers, the language detector and the four means. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { DataError } from "../../../../core/base/errors.ts";
import {
  CHECKERS,
  checkResponse,
  loadLanguageTools,
  requireInstructions,
  UNDEFINED_KEYS,
} from "../../../../core/eval/grading/ifeval/mod.ts";
import { type DocumentScore, summarize } from "../../../../core/eval/harness/results.ts";
import { Row } from "../../../../core/eval/harness/row.ts";
import { ifeval } from "../../../../core/eval/tasks/ifeval.ts";
import { gramsOf } from "../../../../core/eval/grading/ifeval/grams.ts";
import {
  detectLanguage,
  languageProbabilities,
} from "../../../../core/eval/grading/ifeval/language.ts";
import { splitSentences } from "../../../../core/eval/grading/ifeval/punkt.ts";
import { isPythonJson } from "../../../../core/eval/grading/ifeval/format.ts";
import { splitWords } from "../../../../core/eval/grading/ifeval/treebank.ts";
import { fixtureRows, readFixture } from "../../../fixtures.ts";
import { HANG_MS } from "../../../hang.ts";

const ROWS = fixtureRows("eval/data/ifeval/input_data.jsonl");
const tools = await loadLanguageTools();

/** Results of one instruction: strict, loose. */
function gradeOf(response: string, id: string, kwargs: Record<string, unknown> = {}) {
  const instructions = requireInstructions([id], [kwargs], "a test");
  const { strict, loose } = checkResponse(response, instructions, tools);
  return [strict[0], loose[0]];
}

Deno.test("every golden result of a checker", () => {
  const cases = fixtureRows("golden/eval/cases_ifeval_checkers.jsonl");
  assertEquals(cases.length, 82);
  for (const { instruction_id, kwargs, response, strict, loose } of cases) {
    const place = `${instruction_id} ${JSON.stringify(kwargs)} ${JSON.stringify(response)}`;
    assertEquals(gradeOf(response, instruction_id, kwargs), [strict, loose], place);
  }
});

Deno.test("every golden document and the four means", async () => {
  const data = new Map(ROWS.map((row) => [row.key, row]));
  assertEquals(data.size, 541);
  const cases = fixtureRows("golden/eval/cases_ifeval_documents.jsonl");
  const score = await ifeval.openScorer({
    grader: () => Promise.reject(new Error("no code")),
    sanitize: true,
  });
  const scores: DocumentScore[] = [];
  for (const [doc_id, golden] of cases.entries()) {
    const row = data.get(golden.key)!;
    const instructions = requireInstructions(row.instruction_id_list, row.kwargs, "a row");
    const result = checkResponse(golden.response, instructions, tools, row.prompt);
    assertEquals(result.strict, golden.inst_level_strict_acc, `${golden.key} strict`);
    assertEquals(result.loose, golden.inst_level_loose_acc, `${golden.key} loose`);
    const question = ifeval.read(new Row(row, "a row"));
    const metrics = await score(question, [{ text: golden.response }]);
    scores.push({ task: "ifeval", doc_id, group: "", request: "", samples: "", metrics });
  }
  const { n, ...means } = readFixture("golden/eval/cases_ifeval_documents.aggregate.json");
  assertEquals(scores.length, n);
  const names = "average_of_four prompt_level_strict_acc inst_level_strict_acc " +
    "prompt_level_loose_acc inst_level_loose_acc";
  const found = summarize(ifeval, scores).means.map(({ value }) => value);
  assertEquals(found, names.split(" ").map((name) => means[name]));
});

Deno.test("every golden sentence and word", () => {
  const cases = fixtureRows("golden/eval/cases_ifeval_tokenizers.jsonl");
  assertEquals(cases.length, 20);
  for (const { text, sentences, num_sentences, num_words, word_tokenize } of cases) {
    const split = splitSentences(text, tools.punkt);
    assertEquals(split, sentences);
    assertEquals(split.length, num_sentences);
    assertEquals(split.flatMap(splitWords), word_tokenize);
    const words = { num_words, relation: "at least" };
    assertEquals(gradeOf(text, "length_constraints:number_words", words), [true, true]);
    words.num_words++;
    assertEquals(gradeOf(text, "length_constraints:number_words", words), [false, false]);
  }
});

Deno.test("every golden language", () => {
  const cases = fixtureRows("golden/eval/cases_ifeval_langdetect.jsonl");
  assertEquals(cases.length, 13);
  for (const { text, language, top_probability_seed0 } of cases) {
    assertEquals(detectLanguage(text, tools.profiles), language);
    const top = Math.max(...languageProbabilities(text, tools.profiles)!);
    assert(Math.abs(top - top_probability_seed0) < 1e-3, `${language} ${top}`);
  }
});

Deno.test("all instructions of the data set are known and complete", () => {
  const seen = new Set<string>();
  for (const { key, instruction_id_list, kwargs } of ROWS) {
    // The other published form of the data has every argument in every row, most of them null.
    const padded = kwargs.map((each: object) => ({ num_words: null, keyword: "", ...each }));
    for (const each of [kwargs, padded]) {
      const instructions = requireInstructions(instruction_id_list, each, `row ${key}`);
      instructions.forEach(({ id }) => seen.add(id));
    }
  }
  assertEquals([...seen].sort(), [...CHECKERS.keys()].sort());
  assertEquals(seen.size, 25);
});

Deno.test("a blank response follows nothing, whatever its blanks", () => {
  for (const blank of ["", " \n", "\x85\x1c", "\u2003"]) {
    assertEquals(gradeOf(blank, "punctuation:no_comma"), [false, false]);
  }
  assertEquals(gradeOf("\ufeff", "punctuation:no_comma"), [true, true], "no white space to Python");
  assertEquals(gradeOf("***", "punctuation:no_comma"), [true, true]);
});

Deno.test("loose forgives the first line, the last line and asterisks", () => {
  const ends = (response: string) =>
    gradeOf(response, "startend:end_checker", { end_phrase: "Bye." });
  assertEquals(ends("Bye."), [true, true]);
  assertEquals(ends("Bye.\nHope this helps!"), [false, true]);
  assertEquals(ends("*Bye.*"), [false, true]);
  assertEquals(ends("Sure:\n**Bye.**\nHope this helps!"), [false, true]);
  assertEquals(ends("Bye.\nHope this\nhelps!"), [false, false]);
});

Deno.test("keywords are regular expressions, and words only where forbidden", () => {
  const has = (keyword: string, response: string) =>
    gradeOf(response, "keywords:existence", { keywords: [keyword] })[0];
  assert(has("it\\'s", "IT'S") && has("a.c", "xABCx") && !has("a\\.c", "abc"));
  assert(has("é", "É") && !has("e\\b", "e\u0301x".normalize("NFC")));
  const forbidden = { forbidden_words: ["cat"] };
  assertEquals(gradeOf("concatenate", "keywords:forbidden_words", forbidden)[0], true);
  assertEquals(gradeOf("a Cat.", "keywords:forbidden_words", forbidden)[0], false);
});

Deno.test("characters special to replacements and patterns stay what they are", () => {
  const repeated = { prompt_to_repeat: "Pay $& or $1 (now)?" };
  const response = "pay $& or $1 (NOW)? Fine.";
  assertEquals(gradeOf(response, "combination:repeat_prompt", repeated), [true, true]);
  assertEquals(splitWords("It cost $$1 and $& more."), [
    ...["It", "cost", "$", "$", "1", "and", "$", "&", "more", "."],
  ]);
});

Deno.test("a prompt is repeated whole where no part of it is named", () => {
  const instructions = requireInstructions(["combination:repeat_prompt"], [{}], "a test");
  const { strict } = checkResponse("Say hello. Hello!", instructions, tools, "Say hello.");
  assertEquals(strict, [true]);
});

Deno.test("the two rows that count no letter are counted by their character", () => {
  assertEquals(UNDEFINED_KEYS, [1122, 1129]);
  const hashes = { letter: "#", let_frequency: 2, let_relation: "at least" };
  assertEquals(gradeOf("#a #b", "keywords:letter_frequency", hashes), [true, true]);
  assertEquals(gradeOf("#a", "keywords:letter_frequency", hashes), [false, false]);
});

Deno.test("JSON is what Python accepts", () => {
  for (const text of ["NaN", "[-Infinity, 1]", '"\\ud800"', '{"NaN": "a\\"NaN"}', " [1e5]\n"]) {
    assert(isPythonJson(text), text);
  }
  const broken = ["", "-NaN", "1NaN", "[1,]", "'a'", '"\n"', "\ufeff1", "{NaN: 1}", "01", "+1"];
  for (const text of [...broken, "1".repeat(4301), `[-${"1".repeat(4301)}]`]) {
    assert(!isPythonJson(text), text);
  }
  assert(isPythonJson("1".repeat(4300)) && isPythonJson("1.".padEnd(5000, "0")));
});

Deno.test("bullets and placeholders are counted in odd responses", { timeout: HANG_MS }, () => {
  const bullets = (response: string) =>
    gradeOf(response, "detectable_format:number_bullet_lists", { num_bullets: 2 })[0];
  assertEquals(bullets(`* a${"\n \n".repeat(500_000)}- b`), true);
  assertEquals([bullets("*\n\n\n\n* b"), bullets("*\n* b")], [true, false]);
  const placeholders = (response: string) =>
    gradeOf(response, "detectable_content:number_placeholders", { num_placeholders: 1 })[0];
  const open = "[".repeat(1_000_000);
  assertEquals([open, `${open}]`, "[a\n]"].map(placeholders), [false, true, false]);
});

Deno.test("grams leave out addresses, foreign Latin and all but the first of capitals", () => {
  const { kanji } = tools.profiles;
  const grams = (text: string) => [...gramsOf(text, kanji)];
  assertEquals(grams("ab https://x.org/y me@x.org"), ["a", " a", "b", "ab", " ab", "b ", "ab "]);
  assertEquals(grams("NA"), ["N", " N"]);
  assertEquals(grams("Nab")[2], "a");
  assertEquals(grams("привет ab").includes("a"), false);
  assertEquals(grams("한글"), ["가", " 가", "가", "가가", " 가가"]);
  const [[member, representative]] = [...kanji].filter(([a, b]) => a !== b) as [[string, string]];
  assertEquals(grams(member), [representative, ` ${representative}`]);
  assertEquals(grams("a\u0300"), ["à", " à"]);
  assertEquals(grams("1 ¼ «»").join(""), "¼ ¼¼  ¼ ");
});

Deno.test("a text without letters has no language, and others the same every time", () => {
  assertEquals(detectLanguage("123 !?", tools.profiles), undefined);
  const probabilities = () => languageProbabilities("Hotel taxi bar radio.", tools.profiles);
  assertEquals(probabilities(), probabilities());
});

Deno.test("all 55 languages are there, and one letter stands for all of Hangul", () => {
  assertEquals(tools.profiles.languages.length, 55);
  assertEquals(tools.profiles.grams.has("한"), false);
});

Deno.test("bad rows are refused by name", () => {
  const words = "length_constraints:number_words", keywords = "keywords:existence";
  const comma = "punctuation:no_comma";
  const refused: [ids: unknown, kwargs: unknown, message?: string, hint?: string][] = [
    [
      ["keyword:existence"],
      [{}],
      'row 7 of a.jsonl has the unknown instruction "keyword:existence"',
      "did you mean keywords:existence?",
    ],
    [["nothing"], [{}], "", "known instructions: keywords:existence"],
    [
      [words],
      [{ num_words: 0, relation: "at least" }],
      `"num_words" of ${words} in row 7 of a.jsonl is missing, expected a positive integer`,
    ],
    [[words], [{ num_words: 3, relation: "more than" }]],
    [[keywords], [{ keywords: ["("] }]],
    [[keywords], [{ keywords: [] }]],
    [[comma], []],
    [[comma], [null]],
    [comma, [{}]],
  ];
  for (const [ids, kwargs, message, hint = ""] of refused) {
    const read = () => requireInstructions(ids, kwargs, "row 7 of a.jsonl");
    const { hints } = assertThrows(read, DataError, message);
    assert((hints[0] ?? "").startsWith(hint), hint);
  }
});

Deno.test("half a million `<<` are graded, and titles are those of the pattern", {
  timeout: HANG_MS,
}, () => {
  for (const end of ["", "\n", ">", "> >", ">>"]) {
    assertEquals(gradeOf("<<".repeat(500_000) + end, "detectable_format:title"), [false, false]);
  }
  // What `<<[^\n]+>>` matches, in short texts of these marks.
  const marks = ["<", ">", "a", "\n"];
  for (let code = 0; code < 4 ** 7; code++) {
    const text = Array.from({ length: 7 }, (_, i) => marks[code >> (2 * i) & 3]).join("");
    const matches = text.match(/<<[^\n]+>>/g) ?? [];
    const expected = matches.some((match) => match.replace(/^<+/, "").replace(/>+$/, "") !== "");
    assertEquals(gradeOf(text, "detectable_format:title")[0], expected, JSON.stringify(text));
  }
});
