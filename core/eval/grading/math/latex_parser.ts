/**
 * Reads a formula in LaTeX, as far as final answers need it.
 *
 * It follows the grammar of SymPy's reader, which the reference uses, with its surprises: `2^3^2` is
 * 64, `x(y)` is a function x of y, `e`, `i` and `\pi` are letters like others, `3:5` is a division, and
 * `2x3` without letters around is 6. Unlike that reader it accepts no text whose end it cannot read,
 * but for the base of a number.
 */
import { FUNCTIONS } from "./complex.ts";
import { call, type Formula, type Operation, symbolsOf } from "./formula.ts";
import { type Token, tokenize, UnreadableFormula } from "./latex_tokens.ts";
import { fromDecimal, ONE } from "./rational.ts";

/** Formulas that are longer or deeper than any answer are not read. */
const LONGEST_TEXT = 500, DEEPEST = 60;

/** Signs of a product. */
const MULTIPLY = new Set(["*", "\\times", "\\cdot"]);
/** Signs of a quotient. */
const DIVIDE = new Set(["/", "\\div", ":"]);
/** Commands of a fraction. */
const FRACTIONS = new Set(["\\frac", "\\dfrac", "\\tfrac"]);
/** Commands of a binomial coefficient. */
const BINOMIALS = new Set(["\\binom", "\\dbinom", "\\tbinom"]);
/** Parentheses and what closes them. */
const GROUPS: Readonly<Record<string, string>> = {
  "(": ")",
  "[": "]",
  "{": "}",
  "\\{": "\\}",
};
/** Brackets that round, what closes them, and how they do. */
const ROUNDED: Readonly<Record<string, readonly [string, Operation]>> = {
  "\\lfloor": ["\\rfloor", "floor"],
  "\\lceil": ["\\rceil", "ceil"],
};

/** Functions with commands of their own. */
const NAMED: ReadonlySet<string> = new Set(Object.keys(FUNCTIONS).map((name) => `\\${name}`));
/** Those that may have a base. */
const LOGARITHMS = new Set(["\\log", "\\ln", "\\lg"]);
/** Functions whose power −1 is the inverse. */
const INVERTIBLE = /^(?:sin|cos|tan|csc|sec|cot|sinh|cosh|tanh)$/;

/** Commands of the grammar other than symbols, and closing ones, which begin nothing. */
const NO_SYMBOLS = new Set([
  ...["\\infty", "\\int", "\\sum", "\\prod", "\\lim", "\\langle", "\\rangle", "\\mathit"],
  ...["\\to", "\\rightarrow", "\\Rightarrow", "\\longrightarrow", "\\Longrightarrow", "\\neq"],
  ...["\\leq", "\\le", "\\leqq", "\\leqslant", "\\geq", "\\ge", "\\geqq", "\\geqslant"],
  ...["\\rfloor", "\\rceil", "\\times", "\\cdot", "\\div"],
]);

const MINUS_ONE: Formula = { kind: "number", value: { over: -1n, under: 1n } };

/**
 * Reads a formula, or several with commas between them.
 * @throws {UnreadableFormula} for anything else
 */
export function parseLatex(text: string): Formula[] {
  if (text.length > LONGEST_TEXT) throw new UnreadableFormula();
  return new Parser(tokenize(text)).list();
}

class Parser {
  #at = 0;
  #depth = 0;
  /** True if a bar closes an absolute value. */
  #inBars = false;

  constructor(readonly tokens: readonly Token[]) {}

  /** All items up to the end. */
  list(): Formula[] {
    const items = [this.#expression()];
    while (this.#take(",")) items.push(this.#expression());
    if (this.#next !== undefined && !this.#isAtBase) throw new UnreadableFormula();
    return items;
  }

  get #next(): string | undefined {
    return this.tokens[this.#at]?.text;
  }

  /** True if the base of a number comes next, `_8` in `7_8`: there SymPy's reader stops. */
  get #isAtBase(): boolean {
    return this.#next === "_" && this.tokens[this.#at - 1]?.kind === "digit";
  }

  #take(text: string): boolean {
    if (this.#next !== text) return false;
    this.#at++;
    return true;
  }

  #require(text: string): void {
    if (!this.#take(text)) throw new UnreadableFormula();
  }

  /** Reads something inside something else. */
  #inside(inBars: boolean, close: string): Formula {
    const outer = this.#inBars;
    this.#inBars = inBars;
    const inner = this.#expression();
    this.#inBars = outer;
    this.#require(close);
    return inner;
  }

  #expression(): Formula {
    if (++this.#depth > DEEPEST) throw new UnreadableFormula();
    let sum = this.#product();
    for (;;) {
      if (this.#take("+")) sum = call("add", sum, this.#product());
      else if (this.#take("-")) sum = call("add", sum, call("negate", this.#product()));
      else break;
    }
    this.#depth--;
    return sum;
  }

  /** Factors with signs between them. In the argument of a function another function ends it. */
  #product(isArgument = false): Formula {
    let product = this.#signed(isArgument);
    for (let sign = this.#next; sign !== undefined; sign = this.#next) {
      if (!MULTIPLY.has(sign) && !DIVIDE.has(sign)) break;
      this.#at++;
      const factor = this.#signed(isArgument);
      product = call("multiply", product, DIVIDE.has(sign) ? reciprocal(factor) : factor);
    }
    return product;
  }

  #signed(isArgument: boolean): Formula {
    let negative = false;
    for (;;) {
      if (this.#take("-")) negative = !negative;
      else if (!this.#take("+")) break;
    }
    const factors = [this.#factor(true)];
    while (this.#beginsFactor(!isArgument)) factors.push(this.#factor(!isArgument));
    const product = withoutCrosses(factors).reduce((a, b) => call("multiply", a, b));
    return negative ? call("negate", product) : product;
  }

  #beginsFactor(functionsToo: boolean): boolean {
    const token = this.tokens[this.#at];
    if (token === undefined) return false;
    if (token.kind === "digit" || token.kind === "letter") return true;
    if (token.text === "|") return !this.#inBars;
    if (token.kind === "mark") return GROUPS[token.text] !== undefined;
    if (NAMED.has(token.text) || LOGARITHMS.has(token.text) || token.text === "\\sqrt") {
      return functionsToo;
    }
    return token.text !== "\\}" && !NO_SYMBOLS.has(token.text);
  }

  /** One thing with its powers and factorials. */
  #factor(functionsToo: boolean): Formula {
    let factor = this.#base(functionsToo);
    while (this.#take("^")) {
      factor = call("power", factor, this.#script());
      if (this.#next === "_") throw new UnreadableFormula(); // an index belongs before the power
    }
    while (this.#take("!")) factor = call("factorial", factor);
    return factor;
  }

  #base(functionsToo: boolean): Formula {
    const token = this.tokens[this.#at];
    if (token === undefined) throw new UnreadableFormula();
    const { kind, text } = token;
    if (kind === "digit") return this.#number();
    this.#at++;
    if (kind === "letter") return this.#symbol(text, functionsToo);
    const close = GROUPS[text];
    if (close !== undefined) return this.#inside(false, close);
    if (text === "|") return call("abs", this.#inside(true, "|"));
    if (kind === "mark") throw new UnreadableFormula();
    const rounded = ROUNDED[text];
    if (rounded !== undefined) return call(rounded[1], this.#inside(false, rounded[0]));
    if (FRACTIONS.has(text)) {
      const upper = this.#part();
      return call("multiply", upper, reciprocal(this.#part()));
    }
    if (BINOMIALS.has(text)) {
      const upper = this.#braced();
      return call("binomial", upper, this.#braced());
    }
    if (text === "\\sqrt") return this.#root();
    if (text === "\\overline") return call("conjugate", this.#braced());
    if (LOGARITHMS.has(text) || NAMED.has(text)) return this.#function(text.slice(1));
    if (NO_SYMBOLS.has(text) || !/^\\[a-zA-Z]+$/.test(text)) throw new UnreadableFormula();
    return this.#symbol(text.slice(1), functionsToo);
  }

  #braced(): Formula {
    this.#require("{");
    return this.#inside(false, "}");
  }

  /** Numerator or denominator: a digit alone may go without braces. */
  #part(): Formula {
    const token = this.tokens[this.#at];
    if (token?.kind !== "digit") return this.#braced();
    this.#at++;
    return number(token.text);
  }

  /** An exponent or index: in braces, or one symbol or number. */
  #script(): Formula {
    if (this.#next === "{") return this.#braced();
    const token = this.tokens[this.#at];
    const isAtom = token?.kind === "digit" || token?.kind === "letter" ||
      (token?.kind === "command" && token.text !== "\\{" && token.text !== "\\sqrt" &&
        token.text !== "\\overline" && !NAMED.has(token.text) && !LOGARITHMS.has(token.text) &&
        ROUNDED[token.text] === undefined);
    if (!isAtom) throw new UnreadableFormula();
    return this.#base(false);
  }

  #root(): Formula {
    const degree = this.#take("[") ? this.#inside(false, "]") : number("2");
    return call("power", this.#braced(), reciprocal(degree));
  }

  /** Digits, commas between groups of three, decimals. */
  #number(): Formula {
    let text = this.#digits();
    while (this.#next === "," && this.#isGroupOfThree(this.#at + 1)) {
      this.#at++;
      text += this.#digits();
    }
    if (this.#next === "." && this.tokens[this.#at + 1]?.kind === "digit") {
      this.#at++;
      text += `.${this.#digits()}`;
    }
    return number(text);
  }

  #digits(): string {
    let text = "";
    while (this.tokens[this.#at]?.kind === "digit") text += this.tokens[this.#at++]!.text;
    return text;
  }

  #isGroupOfThree(at: number): boolean {
    const areDigits = (from: number, to: number) =>
      this.tokens.slice(from, to).every(({ kind }) => kind === "digit");
    return at + 3 <= this.tokens.length && areDigits(at, at + 3) &&
      this.tokens[at + 3]?.kind !== "digit";
  }

  /** An index as text, primes included; empty where there is none. */
  #index(): string {
    let index = "", primes = "";
    const takePrimes = () => {
      while (this.#take("'")) primes += "'";
    };
    takePrimes();
    if (this.#take("_")) {
      const from = this.#at;
      this.#script();
      const tokens = this.tokens.slice(from, this.#at).map(({ text }) => text);
      index = `_{${(tokens[0] === "{" ? tokens.slice(1, -1) : tokens).join(" ")}}`;
      if (primes === "") takePrimes();
    }
    return index + primes;
  }

  /** A letter, or a function of that name when a parenthesis follows. */
  #symbol(name: string, functionsToo: boolean): Formula {
    const full = name + this.#index();
    if (!functionsToo || !this.#take("(")) return { kind: "symbol", name: full };
    const outer = this.#inBars;
    this.#inBars = false;
    const args = [this.#expression()];
    while (this.#take(",")) args.push(this.#expression());
    this.#inBars = outer;
    this.#require(")");
    return { kind: "unknown", name: full, args };
  }

  /** A function with a name of its own, after that name. */
  #function(name: string): Formula {
    let base: Formula | undefined, exponent: Formula | undefined;
    for (let i = 0; i < 2; i++) {
      if (base === undefined && this.#take("_")) base = this.#script();
      else if (exponent === undefined && this.#take("^")) exponent = this.#script();
    }
    const argument = this.#take("(") ? this.#inside(false, ")") : this.#product(true);
    if (name === "lg") base ??= number("10");
    if (LOGARITHMS.has(`\\${name}`)) {
      const logarithm = call("ln", argument);
      const value = base === undefined
        ? logarithm
        : call("multiply", logarithm, reciprocal(call("ln", base)));
      return exponent === undefined ? value : call("power", value, exponent);
    }
    if (exponent === undefined) return call(name as Operation, argument);
    if (isMinusOne(exponent) && INVERTIBLE.test(name)) {
      return call((name.endsWith("h") ? `ar${name}` : `arc${name}`) as Operation, argument);
    }
    return call("power", call(name as Operation, argument), exponent);
  }
}

function number(text: string): Formula {
  const value = fromDecimal(text);
  if (value === undefined) throw new UnreadableFormula();
  return { kind: "number", value };
}

function reciprocal(formula: Formula): Formula {
  return call("power", formula, MINUS_ONE);
}

function isMinusOne(formula: Formula): boolean {
  if (formula.kind !== "call" || formula.name !== "negate") return false;
  const [one] = formula.args;
  return one?.kind === "number" && one.value.over === ONE.over && one.value.under === ONE.under;
}

/** Drops every x between factors without letters, where it stands for a cross. */
function withoutCrosses(factors: readonly Formula[]): readonly Formula[] {
  const isPlain = (factor: Formula | undefined) =>
    factor !== undefined && symbolsOf(factor).size === 0;
  return factors.filter((factor, i) =>
    !(factor.kind === "symbol" && factor.name === "x" && isPlain(factors[i - 1]) &&
      isPlain(factors[i + 1]))
  );
}
