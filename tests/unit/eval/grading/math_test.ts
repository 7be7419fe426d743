/** GSM8K and Minerva MATH: extraction, normalisation and equality of answers. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { DataError } from "../../../../core/base/errors.ts";
import { isEquivalent } from "../../../../core/eval/grading/math/equivalence.ts";
import {
  exactMatch,
  flexibleExtract,
  strictMatch,
} from "../../../../core/eval/grading/math/gsm8k.ts";
import {
  boxedAnswer,
  extractAnswer,
  normalizeAnswer,
} from "../../../../core/eval/grading/math/minerva.ts";
import { fixtureRows, readFixture } from "../../../fixtures.ts";
import { HANG_MS } from "../../../hang.ts";

function cases(name: string, count: number) {
  const rows = fixtureRows(`golden/eval/cases_${name}.jsonl`);
  assertEquals(rows.length, count, name);
  return rows;
}

for (const [task, count] of [["gsm8k", 37], ["gsm8k_cot", 30]] as const) {
  Deno.test(`every golden answer of ${task}`, () => {
    for (const { response, target, filters } of cases(task, count)) {
      const extracted = {
        "strict-match": strictMatch(response, task),
        "flexible-extract": flexibleExtract(response),
      };
      for (const [filter, text] of Object.entries(extracted)) {
        assertEquals(text, filters[filter].extracted, response);
        assertEquals(Number(exactMatch(text, target)), filters[filter].exact_match, response);
      }
    }
  });
}

Deno.test("every golden box", () => {
  for (const { input, removed, error } of cases("minerva_boxed", 7)) {
    if (error === null) assertEquals(boxedAnswer(input), normalizeAnswer(removed), input);
    else assertThrows(() => boxedAnswer(input), DataError, "complete \\boxed{...}", input);
  }
});

Deno.test("every golden extraction and normalisation", () => {
  for (const { input, extracted, normalized } of cases("minerva_extract", 8)) {
    assertEquals(extractAnswer(input), extracted, input);
    assertEquals(normalizeAnswer(extracted), normalized, input);
  }
  for (const { input, normalized } of cases("minerva_normalize", 101)) {
    assertEquals(normalizeAnswer(input), normalized, input);
  }
});

Deno.test("every golden equality", () => {
  for (const { a, b, equivalent } of cases("minerva_equiv", 31)) {
    assertEquals(isEquivalent(a, b), equivalent, `${a} and ${b}`);
    assertEquals(isEquivalent(b, a), equivalent, `${b} and ${a}`);
  }
});

Deno.test("every golden row from end to end", () => {
  for (const { solution, answer, response, exact_match } of cases("minerva_end_to_end", 20)) {
    const gold = boxedAnswer(solution);
    assertEquals(gold, answer);
    const prediction = normalizeAnswer(extractAnswer(response));
    assertEquals(Number(isEquivalent(prediction, gold)), exact_match, `${prediction} and ${gold}`);
  }
});

Deno.test("answers of GSM8K agree but for commas, dollars, case and a final period", () => {
  assert(exactMatch("$1,000.", "so\n#### 1000"));
  assert(exactMatch("5.\n", "5\n"), "the period before a last line feed goes too");
  assert(!exactMatch("5..", "5"));
  assert(!exactMatch("160.00", "160"));
  assertEquals(flexibleExtract("a -$5 b - c"), "-$5");
  assertEquals(flexibleExtract("none"), "[invalid]");
  assertEquals(strictMatch("#### $5", "gsm8k"), "[invalid]");
  assertEquals(strictMatch("The answer is 7\n", "gsm8k_cot"), "[invalid]", "no character follows");
});

Deno.test("a solution without a usable box names what was found", () => {
  const message = (solution: string) =>
    assertThrows(() => boxedAnswer(solution), DataError).message;
  assertEquals(message("no box"), "no complete \\boxed{...}");
  assert(message("\\boxed{1").includes("no complete \\boxed"));
  assert(message("\\boxed5 and {6}").includes("is not a complete"));
  assert(message("$\\fbox{9}$").includes('"\\\\fbox{9}"'));
  assertEquals(boxedAnswer("\\boxed{1} and \\boxed 2$ then \\boxed{3}"), "2");
});

Deno.test("dollars and commands survive normalisation as TeX means them", () => {
  assertEquals(normalizeAnswer("the sum is $a$b$c$"), "a");
  assertEquals(normalizeAnswer("\\sqrt{$1}$&"), "1}");
  assertEquals(normalizeAnswer("\\left(1\\right)"), "\\left(1\\right)", "no feet in \\left");
  assertEquals(normalizeAnswer("\\frac12"), "\\frac{1}{2}");
  assertEquals(normalizeAnswer("1,00"), "1,00");
  assertEquals(normalizeAnswer("5 ft\nft"), "5\n");
});

Deno.test("formulas that say the same are equal", () => {
  const pairs = [
    ["\\sqrt{8}-2\\sqrt{2}", "0"],
    ["\\sqrt[3]{8}", "2"],
    ["\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt{3}}"],
    ["5!", "120"],
    ["(n+1)!", "(n+1)n!"],
    ["\\binom{5}{2}", "10"],
    ["\\log_2{8}", "3"],
    ["\\sin^2x+\\cos^2x", "1"],
    ["\\sin2x", "2\\cos x\\sin x"],
    ["\\lfloor-2.5\\rfloor", "-3"],
    ["2x3", "6"],
    ["3:4", "0.75"],
    ["2^3^2", "64"],
    ["1,000", "1000"],
    ["10\\!000", "10^4"],
    ["x^{2010}-1", "-1+x^{2010}"],
    ["2^{2010}", "4^{1005}"],
    ["f(x)+1", "1+f(x)"],
    ["x_{10}", "x_10"],
    ["27i-11", "-11+27i"],
    // The reference stops reading at the base of a number.
    ["12_5", "12_{5}"],
    ["7_8", "7"],
    ["12_5", "12_7"],
    ["0.5,\\frac34", "\\frac{1}{2},0.75"],
    ["||x|+1|", "|x|+1"],
    ["a^{\\frac{1}{2}}", "\\sqrt{a}"],
  ] as const;
  for (const [a, b] of pairs) assert(isEquivalent(a, b), `${a} and ${b}`);
});

Deno.test("formulas that differ, or are none, are unequal", () => {
  const pairs = [
    ["\\sqrt{x^2}", "x"],
    ["|x|^2", "x^2"],
    ["\\sqrt[3]{-8}", "-2"],
    ["0.333333333333333", "\\frac{1}{3}"],
    ["10^{30}+1", "10^{30}"],
    ["x(x+1)", "x^2+x"],
    ["e^{i\\pi}", "-1"],
    ["f(x)", "f(y)"],
    ["7_8", "8"],
    ["\\frac{7_8}{2}", "\\frac{7}{2}"],
    ["1,2", "1,3"],
    ["1,2", "1"],
    ["1,2", "2,1"],
    ["(1,2)", "(1,2.0)"],
    ["[0,1)", "[0,1.0)"],
    ["x=5", "5=x"],
    ["\\frac{1}{0}", "\\frac{2}{0}"],
    ["\\infty", "2\\infty"],
    ["5\\%", "5.0\\%"],
    ["x^2_1", "x^2_2"],
    ["\\text{A}", "A"],
    ["5%", "5.0%"],
    ["", "0"],
    ["é", "e"],
    ["\ud800", "\udc00"],
  ] as const;
  for (const [a, b] of pairs) assert(!isEquivalent(a, b), `${a} and ${b}`);
  assert(isEquivalent("(1,2)", "(1,2)") && !isEquivalent("", ""));
});

Deno.test("logarithms and lists are equal where the reference says so", () => {
  const all: [string, string][] = readFixture("golden/eval/cases_minerva_latex.json");
  const golden = all.filter(([a]) => !/\\(sum|prod|int|lim|frac\{d\})/.test(a));
  const equal = [
    ["\\log_216", "\\frac{\\ln 6}{\\ln 21}"],
    ["\\log_28", "3"],
    ["\\log_28x", "\\frac{\\ln x}{\\ln 28}"],
    ["2\\log_3 9", "4"],
    ["\\log_{2}8", "3"],
    ["\\log_2{8}", "3"],
    ["\\log_2(8)", "3"],
    ["\\log_{10}100", "2"],
    ["\\log_10 5", "\\log_{10}5"],
    ["\\log_2^2 8", "9"],
    ["\\log_2 8^2", "6"],
    ["\\log_3 \\frac{1}{9}", "-2"],
    ["\\log_5 \\sqrt{5}", "\\frac12"],
    ["\\log_12 x", "\\log_{12}x"],
    ["\\log_2 -x", "\\log_{2}(-x)"],
    ["5,", "5"],
    ["x+1,", "1+x"],
    ["1,2,", "1,2"],
    ["\\frac{1}{2004!}", "\\frac{1}{2004!}+0"],
    ["\\sqrt{2},", "2^{\\frac12}"],
    ["3,,", "3"],
  ] as const;
  const unequal = [
    ["\\log_2 16", "3"],
    ["\\log_2 8+1", "4"],
    // Formulas that no final answer has are not computed.
    ["\\sum_{k=1}^{4} k^2+1", "31"],
    ["\\int_0^1 x^2 dx", "\\frac13"],
    ["\\frac{d}{dx} x^2", "2x"],
    ["\\lim_{x\\rightarrow 2} x", "2"],
    ["5.", "5"],
    ["5;", "5"],
    [",5", "5"],
    ["x,", "y"],
  ] as const;
  for (const [a, b] of [...golden, ...equal]) {
    assert(isEquivalent(a, b) && isEquivalent(b, a), `${a} and ${b}`);
  }
  for (const [a, b] of unequal) {
    assert(!isEquivalent(a, b) && !isEquivalent(b, a), `${a} and ${b}`);
  }
});

Deno.test("no answer takes long", { timeout: HANG_MS }, () => {
  const endless = [
    ...["9^{9^{9^{9}}}", "10^{1000000000000}", "2!!!!!!", "1000000!", "\\binom{10^{50}}{5000}"],
    ...["(".repeat(400), "|".repeat(400), "{".repeat(400), "-".repeat(490), "\\sin".repeat(120)],
    ...["\\frac".repeat(90), "x_".repeat(200), "9".repeat(480), "f(".repeat(40), "x^{".repeat(150)],
    `${"(x+\\frac{1}{7})^{400}+".repeat(20)}x`,
    `${"2^{3999}+".repeat(50)}1`,
    `${"\\sqrt{".repeat(50)}2${"}".repeat(50)}`,
    `${"\\log_11111111".repeat(40)}`,
    "\\sum_{k=1}^{9}".repeat(40),
    "x".repeat(1_000_000),
  ];
  for (const text of endless) isEquivalent(text, `${text}+0`);
  for (const piece of ["$x", "\\text{", "\\boxed{", "sqrt[", "frac", "{}", "\\ldots"]) {
    normalizeAnswer(piece.repeat(100_000));
    extractAnswer(`Final Answer: The final answer is${piece.repeat(100_000)}`);
  }
  extractAnswer("Final Answer: The final answer is".repeat(20_000));
  flexibleExtract("-1".repeat(100_000));
});
