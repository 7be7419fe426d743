/**
 * Sentences by the method of Kiss and Strunk ("Unsupervised multilingual sentence boundary
 * detection", 2006), known as Punkt.
 *
 * A period, question or exclamation mark is a candidate; whether it ends a sentence depends on its word
 * (abbreviation, initial, number) and on how the next one was written in the texts the parameters come
 * from. A candidate is decided on without the rest of the text, from its own word and the next one
 * only.
 */
import { isLower, isUpper, rstrip, SPACE } from "../../python/text.ts";

/** Parameters learned for a language. */
export interface PunktParameters {
  /** Words that end in a period of their own, without it, in lower case. */
  readonly abbreviations: ReadonlySet<string>;
  /** Pairs `first second` between which a period ends nothing. */
  readonly collocations: ReadonlySet<string>;
  /** Words that often begin a sentence. */
  readonly starters: ReadonlySet<string>;
  /** Contexts in which a word was seen: a sum of the flags below. */
  readonly writing: ReadonlyMap<string, number>;
}

/** A word in upper case at the start of a sentence, inside one, or unknown. */
const UPPER_BEGIN = 2, UPPER_MIDDLE = 4, UPPER_UNKNOWN = 8;
/** The same in lower case. */
const LOWER_BEGIN = 16, LOWER_MIDDLE = 32, LOWER_UNKNOWN = 64;
const UPPER = UPPER_BEGIN | UPPER_MIDDLE | UPPER_UNKNOWN;
const LOWER = LOWER_BEGIN | LOWER_MIDDLE | LOWER_UNKNOWN;

const NUMBER = "##number##";

/** Characters no word continues with. */
const CLOSING = `[\\)";\\}\\]*:@'\\(\\{\\[?!]`;
/** Dashes and ellipses, spaced ones too. */
const RUN = `(?:-{2,}|\\.{2,}|(?:\\.[${SPACE}]){2,}\\.)`;

const CANDIDATE = new RegExp(
  `[.?!](?=(?<after>${CLOSING}|[${SPACE}]+(?<next>[^${SPACE}]+)))`,
  "gv",
);
const TOKEN = new RegExp(
  `${RUN}|(?=[^\\("\`\\{\\[:;&#*@\\)\\}\\]\\-,])[^${SPACE}]+?` +
    `(?=[${SPACE}]|$|${CLOSING}|${RUN}|,(?:$|[${SPACE}]|${CLOSING}|${RUN}))|[^${SPACE}]`,
  "gv",
);
/** Quotes and brackets that close the sentence before. */
const LEFTOVER = new RegExp(`^["'\\)\\]\\}]+?(?:[${SPACE}]+|(?=--)|(?![^\\n]))`, "v");

const NUMERIC = /^-?[.,]?\p{Nd}[\p{Nd},.\-]*\.?$/v;
const INITIAL = /^[[\p{L}\p{N}_]--\p{Nd}]\.$/v;

/** The sentences of a text, without the white space between them. */
export function splitSentences(text: string, parameters: PunktParameters): string[] {
  const sentences: string[] = [];
  const slices = [...slicesOf(text, parameters)];
  let skipped = 0;
  for (const [i, slice] of slices.entries()) {
    const from = slice[0] + skipped;
    const next = slices[i + 1];
    const leftover = next === undefined ? null : LEFTOVER.exec(text.slice(...next));
    skipped = leftover === null ? 0 : leftover[0].length;
    const to = leftover === null ? slice[1] : next![0] + rstrip(leftover[0]).length;
    if (from < to) sentences.push(text.slice(from, to));
  }
  return sentences;
}

/** Stretches of text between the marks that end a sentence. */
function* slicesOf(text: string, parameters: PunktParameters): Generator<[number, number]> {
  let from = 0;
  for (const { mark, context, next } of candidatesOf(text)) {
    if (!endsSentence(context, parameters)) continue;
    yield [from, mark + 1];
    from = next ?? mark + 1;
  }
  yield [from, rstrip(text).length];
}

/** A mark that may end a sentence. */
interface Candidate {
  readonly mark: number;
  /** Its word, itself and what follows. */
  readonly context: string;
  /** Start of the next word, if blanks come first. */
  readonly next: number | undefined;
}

/** All candidates, of several in one word the last. */
function* candidatesOf(text: string): Generator<Candidate> {
  let before: { candidate: Candidate; word: [number, number] } | undefined;
  for (const match of text.matchAll(CANDIDATE)) {
    const { after = "", next } = match.groups!;
    const mark = match.index;
    const last = before?.word ?? [0, 0];
    const blank = lastBlank(text.slice(last[1], mark));
    const word: [number, number] = [blank === 0 ? last[0] : last[1] + blank + 1, mark];
    if (before !== undefined && last[1] <= word[0]) yield before.candidate;
    const candidate = {
      mark,
      context: text.slice(...word) + match[0] + after,
      next: next === undefined ? undefined : mark + 1 + after.length - next.length,
    };
    before = { candidate, word };
  }
  if (before !== undefined) yield before.candidate;
}

/** The place of the last blank; 0 where there is none, or only at the start. */
function lastBlank(text: string): number {
  for (let i = text.length - 1; i > 0; i--) if (" \t\n\r\v\f".includes(text[i]!)) return i;
  return 0;
}

/** A word or mark with what is found out about it. */
interface Token {
  readonly text: string;
  /** Type of the token: lower-cased, or the sign for numbers. */
  readonly type: string;
  isAbbreviation: boolean;
  isEllipsis: boolean;
  endsSentence: boolean;
}

function endsSentence(context: string, parameters: PunktParameters): boolean {
  const tokens = context.split("\n").flatMap((line) => line.match(TOKEN) ?? [])
    .map((text) => tokenOf(text, parameters));
  tokens.forEach((token, i) => decide(token, tokens[i + 1], parameters));
  // The last token ends the context, not a sentence.
  return tokens.slice(0, -1).some((token) => token.endsSentence);
}

/** Classifies a token by itself. */
function tokenOf(text: string, { abbreviations }: PunktParameters): Token {
  const lower = text.toLowerCase();
  const token: Token = {
    text,
    type: NUMERIC.test(lower) ? NUMBER : lower,
    isAbbreviation: false,
    isEllipsis: false,
    endsSentence: false,
  };
  if (text === "." || text === "?" || text === "!") token.endsSentence = true;
  else if (/^\.\.+$/.test(text)) token.isEllipsis = true;
  else if (text.endsWith(".") && !text.endsWith("..")) {
    const word = lower.slice(0, -1);
    token.isAbbreviation = abbreviations.has(word) ||
      abbreviations.has(word.slice(word.lastIndexOf("-") + 1));
    token.endsSentence = !token.isAbbreviation;
  }
  return token;
}

/** Revises a token by the next one. */
function decide(token: Token, next: Token | undefined, parameters: PunktParameters): void {
  if (next === undefined || !token.text.endsWith(".")) return;
  const { collocations, starters, writing } = parameters;
  const type = withoutPeriod(token.type);
  const nextType = next.endsSentence ? withoutPeriod(next.type) : next.type;
  const nextIsUpper = isUpper(firstCharacter(next.text));
  const isInitial = INITIAL.test(token.text);
  const joins = () => {
    token.endsSentence = false;
    token.isAbbreviation = true;
  };

  if (collocations.has(`${type} ${nextType}`)) return joins();
  if ((token.isAbbreviation || token.isEllipsis) && !isInitial) {
    if (begins(next, nextType, parameters) || (nextIsUpper && starters.has(nextType))) {
      token.endsSentence = true;
      return;
    }
  }
  if (isInitial || type === NUMBER) {
    const decision = begins(next, nextType, parameters);
    const isName = isInitial && nextIsUpper && ((writing.get(nextType) ?? 0) & LOWER) === 0;
    if (decision === false || (decision === undefined && isName)) joins();
  }
}

/**
 * Returns whether a word begins a sentence, going by its first letter; undefined when that does not tell.
 */
function begins(token: Token, type: string, { writing }: PunktParameters): boolean | undefined {
  if (token.text.length === 1 && ";:,.!?".includes(token.text)) return false;
  const seen = writing.get(type) ?? 0;
  const first = firstCharacter(token.text);
  if (isUpper(first) && (seen & LOWER) !== 0 && (seen & UPPER_MIDDLE) === 0) return true;
  if (isLower(first) && ((seen & UPPER) !== 0 || (seen & LOWER_BEGIN) === 0)) return false;
  return undefined;
}

function withoutPeriod(type: string): string {
  return type.length > 1 && type.endsWith(".") ? type.slice(0, -1) : type;
}

function firstCharacter(text: string): string {
  return String.fromCodePoint(text.codePointAt(0)!);
}
