/** Colours of streams on a terminal. */
import { colorOf } from "../../core/base/stream_look.ts";

/** A text on the colour of a stream, for terminals. */
export function paintStream(text: string, stream: number): string {
  const { terminal, ink } = colorOf(stream);
  return `\x1b[48;5;${terminal}m\x1b[38;5;${ink === "#000000" ? 16 : 231}m${text}\x1b[39m\x1b[49m`;
}
