/** Commands and marks of LaTeX by what they mean in a formula, as in the grammar of SymPy's reader. */
import { FUNCTIONS } from "./complex.ts";
import type { Operation } from "./formula.ts";

/** Signs of a product. */
export const MULTIPLY = new Set(["*", "\\times", "\\cdot"]);
/** Signs of a quotient. */
export const DIVIDE = new Set(["/", "\\div", ":"]);
/** Commands of a fraction. */
export const FRACTIONS = new Set(["\\frac", "\\dfrac", "\\tfrac"]);
/** Commands of a binomial coefficient. */
export const BINOMIALS = new Set(["\\binom", "\\dbinom", "\\tbinom"]);
/** Parentheses and what closes them. */
export const GROUPS: Readonly<Record<string, string>> = {
  "(": ")",
  "[": "]",
  "{": "}",
  "\\{": "\\}",
};
/** Brackets that round, what closes them, and how they do. */
export const ROUNDED: Readonly<Record<string, readonly [string, Operation]>> = {
  "\\lfloor": ["\\rfloor", "floor"],
  "\\lceil": ["\\rceil", "ceil"],
};

/** Functions with commands of their own. */
export const NAMED: ReadonlySet<string> = new Set(
  Object.keys(FUNCTIONS).map((name) => `\\${name}`),
);
/** Those that may have a base. */
export const LOGARITHMS = new Set(["\\log", "\\ln", "\\lg"]);
/** Functions whose power −1 is the inverse. */
export const INVERTIBLE = /^(?:sin|cos|tan|csc|sec|cot|sinh|cosh|tanh)$/;

/** Commands of the grammar other than symbols, and closing ones, which begin nothing. */
export const NO_SYMBOLS = new Set([
  ...["\\infty", "\\int", "\\sum", "\\prod", "\\lim", "\\langle", "\\rangle", "\\mathit"],
  ...["\\to", "\\rightarrow", "\\Rightarrow", "\\longrightarrow", "\\Longrightarrow", "\\neq"],
  ...["\\leq", "\\le", "\\leqq", "\\leqslant", "\\geq", "\\ge", "\\geqq", "\\geqslant"],
  ...["\\rfloor", "\\rceil", "\\times", "\\cdot", "\\div"],
]);
