/**
 * Opens a page of 100,000 tokens in a headless Chromium; the budget is 2 s.
 *
 *     deno run -A tests/bench/visualize.ts [TOKENS]
 *
 * Prints one JSON line: size of the file, time to write it, times from asking for the page to its
 * first paint after loading, and from pointing at a token to its numbers. Without Chromium it only
 * writes.
 */
import { drawPage } from "../../cli/commands/visualize/html.ts";
import { studyTexts } from "../../cli/commands/visualize/show.ts";
import { labelsOf } from "../../core/analysis/stream_look.ts";
import { RandomStream } from "../../core/base/random.ts";
import { BrowserPage, CHROMIUM } from "../cli/visualize_browser.ts";

const COUNT = Number(Deno.args[0] ?? 100_000);
const STREAMS = 8;
const OPENINGS = 5;
const WORDS = ["The", " cat", " sat", " on", " a", " very", " comfortable", " mat", ".", "\n"];

/** A long text whose winners change at random. */
function randomText(count: number) {
  const random = new RandomStream(0, "visualize");
  const tokens = Array.from({ length: count }, () => random.integer(WORDS.length));
  const weights = tokens.map(() => {
    const row = Float32Array.from({ length: STREAMS }, () => 1 + random.integer(1000));
    const sum = row.reduce((a, b) => a + b, 0);
    return row.map((x) => x / sum);
  });
  return {
    id: 0,
    tokens,
    pieces: tokens.map((id) => WORDS[id]!),
    weights,
    logprobs: new Float32Array(count - 1).fill(-2),
    streamLogprobs: undefined,
  };
}

const study = studyTexts("random", labelsOf(STREAMS), [randomText(COUNT)]);
const start = performance.now();
const html = drawPage(study);
const result: Record<string, unknown> = {
  tokens: COUNT,
  streams: STREAMS,
  bytes: new TextEncoder().encode(html).length,
  write_ms: Math.round(performance.now() - start),
};
const path = await Deno.makeTempFile({ suffix: ".html" });
try {
  await Deno.writeTextFile(path, html);
  if (CHROMIUM) {
    await using page = await BrowserPage.open();
    const opened: number[] = [];
    for (let i = 0; i < OPENINGS; i++) opened.push(Math.round(await page.navigate(path)));
    result.open_ms = opened;
    result.hover_ms = Math.round(
      await page.evaluate(`(() => {
        const token = document.querySelector(".tokens > div:last-child > span");
        const start = performance.now();
        token.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
        return performance.now() - start;
      })()`),
    );
  } else result.open_ms = null;
} finally {
  await Deno.remove(path);
}
console.log(JSON.stringify(result));
