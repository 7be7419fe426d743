/** Protects the word problems: arithmetic, step counts, disjoint splits, lengths, equal bytes. */
import { assert, assertEquals } from "@std/assert";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { GIVEN_RANGE, RESULT_RANGE } from "../../fixtures/word_problems/draft.ts";
import type { Problem } from "../../fixtures/word_problems/grammar.ts";
import { NAMES } from "../../fixtures/word_problems/names.ts";
import {
  type Mix,
  MIXES,
  problems,
  promptOf,
  type Split,
  splitOf,
  textOf,
} from "../../fixtures/word_problems/split.ts";
import { END_TOKEN, VOCABULARY_SIZE } from "../../fixtures/word_problems/tokenizer.ts";
import { writeWordProblems } from "../../fixtures/word_problems/write.ts";
import { withScratch } from "../cli/run.ts";

const make = (split: Split, mix: Mix, count: number, seed = 1) => [
  ...problems({ split, mix, count, seed }),
];

/** 20,000 rows: half for training, a quarter each for validation and test. */
const TRAIN = [...make("train", "pretrain", 5000), ...make("train", "shifted", 5000)];
const VALIDATION = make("validation", "shifted", 5000);
const TEST = make("test", "shifted", 5000);
const ALL = [...TRAIN, ...VALIDATION, ...TEST];

/** Numbers that a question states, read from its text. */
function statedNumbers({ question }: Problem): number[] {
  return [...question.matchAll(/\d+|half|twice/g)].map(([word]) => Number(word) || 2);
}

function inRange(value: number, [low, high]: readonly [number, number]): boolean {
  return Number.isInteger(value) && value >= low && value <= high;
}

const CALCULATE: Readonly<Record<string, (a: number, b: number) => number>> = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
};

Deno.test("every step is right, uses known numbers and stays in range", () => {
  for (const problem of ALL) {
    const lines = problem.answer.split("\n"), last = lines.pop();
    assertEquals(lines.length, problem.steps, problem.answer);
    const known = new Set(statedNumbers(problem));
    let result = NaN;
    for (const line of lines) {
      const match = /^[^\d]+ (\d+)([-+*/])(\d+)=<<(.+)=(\d+)>>(\d+) [a-z ]+\.$/.exec(line);
      if (match === null) throw new Error(`no step: ${line}`);
      const [, a, operator, b, term, inside, outside] = match;
      assertEquals([term, inside], [`${a}${operator}${b}`, outside]);
      result = CALCULATE[operator!]!(Number(a), Number(b));
      assertEquals(result, Number(inside), line);
      assert(inRange(result, RESULT_RANGE), line);
      assert(known.has(Number(a)) && known.has(Number(b)), textOf(problem));
      known.add(result);
    }
    assertEquals(last, `#### ${result}`);
  }
});

Deno.test("the noted numbers are those the question states, all in range", () => {
  for (const problem of ALL) {
    assertEquals(problem.numbers, statedNumbers(problem), problem.question);
    assert(problem.numbers.every((value) => inRange(value, GIVEN_RANGE)), problem.question);
  }
});

Deno.test("splits share no set of numbers, and an eighth of all sets goes to each", () => {
  const keys = (rows: readonly Problem[]) =>
    new Set(rows.map((row) => statedNumbers(row).sort((a, b) => a - b).join(",")));
  const [train, validation, test] = [keys(TRAIN), keys(VALIDATION), keys(TEST)];
  assertEquals(train.intersection(validation).size, 0);
  assertEquals(train.intersection(test).size, 0);
  assertEquals(validation.intersection(test).size, 0);
  const counts = { train: 0, validation: 0, test: 0 };
  for (let a = 2; a <= 60; a++) for (let b = a; b <= 60; b++) counts[splitOf([b, a])]++;
  const total = 59 * 60 / 2;
  assert(Math.abs(counts.test / total - 1 / 8) < 0.02, `${counts.test} of ${total}`);
  assert(Math.abs(counts.validation / total - 1 / 8) < 0.02, `${counts.validation} of ${total}`);
});

Deno.test("training rows never use held-out names, half of the other rows use no other", () => {
  assertEquals([NAMES.training.length, NAMES["held-out"].length], [160, 20]);
  assertEquals(new Set([...NAMES.training, ...NAMES["held-out"]]).size, 180);
  const training = new Set(NAMES.training), heldOut = new Set(NAMES["held-out"]);
  for (const problem of ALL) {
    const words = new Set(problem.question.match(/\p{Lu}\p{L}+/gu));
    const wrong = problem.heldOutName ? training : heldOut;
    assertEquals(words.intersection(wrong).size, 0, problem.question);
  }
  const share = (rows: readonly Problem[]) => rows.filter((row) => row.heldOutName).length;
  assertEquals([share(TRAIN), share(VALIDATION), share(TEST)], [0, 2500, 2500]);
});

Deno.test("mixes come out, all families occur, more rows start with the same rows", () => {
  for (const [mix, rows] of [["pretrain", TRAIN.slice(0, 5000)], ["shifted", TEST]] as const) {
    MIXES[mix].forEach((percent, i) => {
      const found = rows.filter(({ steps }) => steps === i + 1).length / 50;
      assert(Math.abs(found - percent) < 2.5, `${mix}: ${found}% of ${i + 1} steps`);
    });
  }
  for (const word of ["half", "twice", "boxes", "worth", "together", "fewer", "hours", "younger"]) {
    const share = TEST.filter(({ question }) => question.includes(word)).length / TEST.length;
    assert(share > 0.01, `${word}: ${share}`);
  }
  assertEquals(make("test", "shifted", 20), TEST.slice(0, 20));
});

Deno.test("the tokenizer has 640 tokens, gives back all text, and rows have their length", async () => {
  await withScratch(async (folder) => {
    await writeWordProblems(folder, 1);
    const tokenizer = await openTokenizer(folder);
    assertEquals(tokenizer.kind, "byte-level-bpe");
    assertEquals(tokenizer.vocabSize, VOCABULARY_SIZE);
    assertEquals(tokenizer.idOf(END_TOKEN), VOCABULARY_SIZE - 1);
    assertEquals(tokenizer.encode("12 ").length, 3);
    const lengths = (rows: readonly Problem[]) =>
      rows.map((row) => {
        const text = textOf(row), ids = tokenizer.encode(text);
        assertEquals(tokenizer.decode(ids), text);
        return ids.length + 1; // the end token
      });
    const mean = (values: readonly number[]) =>
      values.reduce((sum, value) => sum + value, 0) / values.length;
    const short = lengths(TRAIN.slice(0, 5000)), long = lengths(TRAIN.slice(5000));
    assert(Math.abs(mean(short) - 78) < 4 && Math.max(...short) <= 130, `${mean(short)}`);
    assert(Math.abs(mean(long) - 107) < 5 && Math.max(...long) <= 170, `${mean(long)}`);
    // Names the tokenizer never saw are longer; a row of 192 must still hold every problem.
    assert(Math.max(...lengths([...VALIDATION, ...TEST])) < 192);
    // Prompt and completion meet at a word's border, so their tokens are those of the whole text.
    for (const row of TEST.slice(0, 100)) {
      const prompt = tokenizer.encode(promptOf(row));
      assertEquals(tokenizer.encode(textOf(row)).slice(0, prompt.length), prompt);
    }
  });
});

Deno.test("the files are the same bytes on every machine", async () => {
  await withScratch(async (folder) => {
    await writeWordProblems(folder, 100);
    const names = [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
    const all = names.map((name) => `${name}\n${Deno.readTextFileSync(`${folder}/${name}`)}`);
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(all.join("")));
    assertEquals(
      new Uint8Array(digest).toHex(),
      "03f0ba0c2ce27d69dfad5fc9708e7f01f8b1a70a21b0f353634c126a0df9c46d",
      "the generator's output changed: models trained on the old one no longer match",
    );
    assertEquals(names, [
      "pretrain.jsonl",
      "shifted.jsonl",
      "test.jsonl",
      "tokenizer.json",
      "tokenizer_config.json",
      "validation.jsonl",
    ]);
  });
});
