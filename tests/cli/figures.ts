/** Checks of every SVG figure: a title, axes with units, and the colours of its reader. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";

/** Requires that a document is whole, has this title and these axes, and stands on any ground. */
export function assertFigure(svg: string, title: string, axes: readonly string[]): void {
  assertWhole(svg);
  assertMatch(svg, /^<svg[^]*<\/svg>$/);
  const ofRole = (role: string) =>
    [...svg.matchAll(new RegExp(`role-${role}"[^]*?<text[^>]*>([^<]+)<`, "g"))]
      .map(([, text]) => text!);
  assertEquals(ofRole("title-text").slice(0, 1), [title]);
  assertEquals([...new Set(ofRole("axis-title"))], axes);
  for (const axis of axes) assertMatch(axis, /\(.+\)$/, "an axis has a unit");
  assertStringIncludes(svg, "@media (prefers-color-scheme: dark)");
  assert(!/<rect[^>]*fill="(white|#fff)/.test(svg), "no fixed white ground");
  assert(!/NaN|undefined|<image|<script/.test(svg));
}

/** Every tag is closed in its order, and quotes and ampersands are escaped. */
function assertWhole(svg: string): void {
  const open: string[] = [];
  const text = svg.replace(/<(\/?)([a-zA-Z]+)((?:\s+[\w:-]+="[^"<>]*")*)\s*(\/?)>/g, (
    _,
    end: string,
    name: string,
    _attributes: string,
    alone: string,
  ) => {
    if (end) assertEquals(open.pop(), name);
    else if (!alone) open.push(name);
    return "";
  });
  assertEquals(open, []);
  assert(!/[<>]|&(?!\w+;|#\d+;)/.test(text), text.slice(0, 200));
}
