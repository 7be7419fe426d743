/**
 * Unicode's NFC as the Rust `tokenizers` library computes it: with the data of an older Unicode version.
 *
 * Marks that came later have no combining class there, and letters that came later no composites: they
 * stay where and as they are, and nothing moves across them. Compared with version 0.23.2 of the library
 * for every code point beside marks of several classes, and for every canonical decomposition.
 */

/** Marks and letters that a newer Unicode reorders or composes. */
export const NEWER =
  /[\u07fd\u0897-\u089f\u08ca-\u08d3\u09fe\u0c3c\u0d3b\u0d3c\u0eba\u1715\u1abf-\u1ace\u1df6-\u1dfa\ua82c\u{105d2}\u{105da}\u{10d24}-\u{10d27}\u{10d69}-\u{10d6d}\u{10eab}\u{10eac}\u{10efd}-\u{10eff}\u{10f46}-\u{10f50}\u{10f82}-\u{10f85}\u{11070}\u{11382}\u{11384}\u{1138b}\u{11390}\u{1133b}\u{113b8}\u{113bb}\u{113c2}\u{113c9}\u{113ce}-\u{113d0}\u{1145e}\u{11839}\u{1183a}\u{11930}\u{11935}\u{1193d}\u{1193e}\u{11943}\u{119e0}\u{11a34}\u{11a47}\u{11a99}\u{11d42}\u{11d44}\u{11d45}\u{11d97}\u{11f41}\u{11f42}\u{1611e}-\u{16120}\u{16129}\u{1612f}\u{16d63}\u{16d67}\u{16ff0}\u{16ff1}\u{1e08f}\u{1e130}-\u{1e136}\u{1e2ae}\u{1e2ec}-\u{1e2ef}\u{1e4ec}-\u{1e4ef}\u{1e5ee}\u{1e5ef}]/u;

/** Fast path: below U+07FD no version of Unicode differs. */
const FAR = /[\u07fd-\uffff]/;

/** Combining marks in a row from which on they are sorted here: the runtime takes quadratic time. */
const LONG_RUN = /\p{M}{256}/u;

/** The text in NFC. */
export function toNfc(text: string): string {
  if (!FAR.test(text) || !NEWER.test(text)) return normalize(text);
  let result = "", from = 0;
  for (const { 0: mark, index } of text.matchAll(new RegExp(NEWER, "gu"))) {
    if (index > from) result += normalize(text.slice(from, index));
    result += mark;
    from = index + mark.length;
  }
  return result + normalize(text.slice(from));
}

/** NFC of a text in linear time, however long its runs of combining marks are. */
function normalize(text: string): string {
  return (LONG_RUN.test(text) ? sortMarks(text) : text).normalize("NFC");
}

/** Marks with the same combining class, which keep their order. */
interface MarkClass {
  readonly example: string;
  readonly marks: string[];
}

/** All classes met so far, lowest first, and the class of each mark; undefined for a starter. */
const classes: MarkClass[] = [], classOf = new Map<string, MarkClass | undefined>();

/** The text decomposed, with the marks of every run in canonical order. */
function sortMarks(text: string): string {
  const parts: string[] = [];
  const flush = () => {
    for (const { marks } of classes) for (const mark of marks.splice(0)) parts.push(mark);
  };
  for (const character of text) {
    for (const mark of decompose(character)) {
      const known = classOf.getOrInsertComputed(mark, findClass);
      if (known) known.marks.push(mark);
      else {
        flush();
        parts.push(mark);
      }
    }
  }
  flush();
  return parts.join("");
}

function decompose(character: string): string {
  return character < "\u0300" ? character : character.normalize("NFD");
}

/** The highest class; every other mark moves before it. */
const LAST_MARK = "\u0345";

function findClass(mark: string): MarkClass | undefined {
  const moves = (first: string, second: string) =>
    (first + second).normalize("NFD") !== first + second;
  if (mark !== LAST_MARK && !moves(LAST_MARK, mark)) return undefined;
  let at = 0;
  while (at < classes.length && moves(mark, classes[at]!.example)) at++;
  const isKnown = at < classes.length && !moves(classes[at]!.example, mark);
  if (!isKnown) classes.splice(at, 0, { example: mark, marks: [] });
  return classes[at];
}
