/**
 * Colour, decided per stream. Meaning never rests on it: what is coloured is also named in text.
 *
 * A palette without colour returns its text unchanged, so callers never ask whether colour is on.
 */

/** Value of `--color`. */
export type ColorMode = "auto" | "always" | "never";

/** Paints text by meaning. */
export interface Palette {
  readonly success: (text: string) => string;
  readonly error: (text: string) => string;
  readonly warning: (text: string) => string;
  /** Hints and paths. */
  readonly hint: (text: string) => string;
  readonly bold: (text: string) => string;
}

function style(open: number, close: number): (text: string) => string {
  return (text) => `\x1b[${open}m${text}\x1b[${close}m`;
}

const COLORED: Palette = {
  success: style(32, 39),
  error: style(31, 39),
  warning: style(33, 39),
  hint: style(36, 39),
  bold: style(1, 22),
};

const same = (text: string) => text;
/** For files, pipes and terminals that want none. */
export const PLAIN: Palette = { success: same, error: same, warning: same, hint: same, bold: same };

/** Flag before environment before terminal; an empty NO_COLOR does not count. */
export function wantsColor(
  mode: ColorMode,
  isTerminal: boolean,
  env: (name: string) => string | undefined,
): boolean {
  if (mode !== "auto") return mode === "always";
  if (env("NO_COLOR") || env("TERM") === "dumb") return false;
  const forced = env("FORCE_COLOR");
  return (forced !== undefined && forced !== "" && forced !== "0") || isTerminal;
}

/** The palette of a stream. */
export function palette(colored: boolean): Palette {
  return colored ? COLORED : PLAIN;
}
