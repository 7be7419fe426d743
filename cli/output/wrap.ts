/** Width of text on a terminal, and wrapping. */

/** Columns a text takes on screen: wide East Asian characters and emoji count twice. */
export function displayWidth(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length; // most text by far
  let width = 0;
  for (const character of text) {
    if (/\p{Mark}/u.test(character)) continue;
    const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]/
      .test(character) || /\p{Emoji_Presentation}/u.test(character);
    width += wide ? 2 : 1;
  }
  return width;
}

/** The longest prefix of a text that takes at most so many columns. */
export function cutToWidth(text: string, columns: number): string {
  let cut = "";
  for (const character of text) {
    if (displayWidth(cut + character) > columns) break;
    cut += character;
  }
  return cut;
}

/** A text of at most so many columns; a wider one is cut, with `…` at its end. */
export function shorten(text: string, columns: number): string {
  return displayWidth(text) <= columns ? text : `${cutToWidth(text, columns - 1)}…`;
}

/** Wraps text at spaces; all lines are indented alike. A word that is too long stays whole. */
export function wrap(text: string, width: number, indent = ""): string {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/\s+/)) {
    if (line !== "" && indent.length + displayWidth(line) + 1 + displayWidth(word) > width) {
      lines.push(indent + line);
      line = word;
    } else line += (line === "" ? "" : " ") + word;
  }
  lines.push(indent + line);
  return lines.join("\n");
}
