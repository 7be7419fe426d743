/**
 * Reads a formula in LaTeX, as far as final answers need it.
 *
 * It follows the grammar of SymPy's reader, which the reference uses, with its surprises: `2^3^2` is
 * 64, `x(y)` is a function x of y, `e`, `i` and `\pi` are letters like others, `3:5` is a division,
 * `2x3` without letters around is 6, and `\log_216` has the base 21. Unlike that reader it accepts no text
 * whose end it cannot read, but for the base of a number and a last comma.
 */
import {
  call,
  type Formula,
  isMinusOne,
  type Operation,
  reciprocal,
  withoutCrosses,
} from "./formula.ts";
import {
  BINOMIALS,
  DIVIDE,
  FRACTIONS,
  GROUPS,
  INVERTIBLE,
  LOGARITHMS,
  MULTIPLY,
  NAMED,
  NO_SYMBOLS,
  ROUNDED,
} from "./latex_commands.ts";
import { number, numberEnd, type Token, tokenize, UnreadableFormula } from "./latex_tokens.ts";

/** Scripts of digits that are read again, over a formula. */
const MOST_RETRIES = 20;

/** Formulas that are longer or deeper than any answer are not read. */
const LONGEST_TEXT = 500, DEEPEST = 60;

/**
 * Reads a formula, or several with commas between them.
 * @throws {UnreadableFormula} for anything else
 */
export function parseLatex(text: string): Formula[] {
  if (text.length > LONGEST_TEXT) throw new UnreadableFormula();
  const tokens = tokenize(text);
  const last = tokens.findLastIndex(({ text }) => text !== ",");
  return new Parser(tokens.slice(0, last + 1)).list();
}

class Parser {
  #at = 0;
  #depth = 0;
  /** True if a bar closes an absolute value. */
  #inBars = false;
  /** Scripts of digits that were read again. */
  #retries = 0;

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
    const product = this.#factors(!isArgument);
    return negative ? call("negate", product) : product;
  }

  /** Factors without signs between them. */
  #factors(functionsToo: boolean): Formula {
    const factors = [this.#factor(true)];
    while (this.#beginsFactor(functionsToo)) factors.push(this.#factor(functionsToo));
    return withoutCrosses(factors).reduce((a, b) => call("multiply", a, b));
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
      if (this.#isDerivative) throw new UnreadableFormula();
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

  /** True at `{d}{dx}` */
  get #isDerivative(): boolean {
    const text = this.tokens.slice(this.#at, this.#at + 6).map(({ text }) => text).join(" ");
    return /^\{ d \} \{ d\S+ \}$/.test(text);
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

  #number(to = numberEnd(this.tokens, this.#at)): Formula {
    const digits = this.tokens.slice(this.#at, to).map(({ text }) => text);
    this.#at = to;
    return number(digits.join("").replaceAll(",", ""));
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

  /** A function with a name of its own, after that name and the scripts that were read. */
  #function(name: string, base?: Formula, exponent?: Formula): Formula {
    if (base === undefined && this.#take("_")) {
      return this.#afterScript((base) => this.#function(name, base, exponent));
    }
    if (exponent === undefined && this.#take("^")) {
      return this.#afterScript((exponent) => this.#function(name, base, exponent));
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

  /** Reads on after a script: of digits as many belong to it as leave the function an argument. */
  #afterScript(read: (script: Formula) => Formula): Formula {
    const from = this.#at;
    if (this.tokens[from]?.kind !== "digit") return read(this.#script());
    const [depth, inBars] = [this.#depth, this.#inBars];
    for (let to = numberEnd(this.tokens, from); to > from; to--) {
      if (this.tokens[to - 1]!.kind !== "digit" || this.tokens[to]?.text === ".") continue;
      try {
        this.#at = from;
        return read(this.#number(to));
      } catch (error) {
        if (!(error instanceof UnreadableFormula) || ++this.#retries > MOST_RETRIES) throw error;
        [this.#depth, this.#inBars] = [depth, inBars];
      }
    }
    throw new UnreadableFormula();
  }
}
