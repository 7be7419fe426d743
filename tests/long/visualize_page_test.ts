/**
 * The page of `parscale visualize` in a real browser: it renders, hover works, nothing is fetched.
 */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { MODEL, rowsOf } from "../cli/models.ts";
import { runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { BrowserPage, CHROMIUM } from "../cli/visualize_browser.ts";

const MODEL4 = MODEL.replace("qwen2-p2-tied-f32", "qwen2-p4-untied-f32");
const TEXTS = [
  `The <b>cat</b> & "dog" 日本 😀\tsat </script><script>alert(1)</script>.\nNext line. `.repeat(12),
  "A second text.\n\nIts end",
];
const ARGS = ["visualize", "--model", MODEL4, ...TEXTS.flatMap((text) => ["--text", text])];

/** Shown where no browser is found, so that a skipped check is seen. */
const REASON = CHROMIUM ? "" : " (skipped: no chromium found, set CHROMIUM to its path)";

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

Deno.test({
  name: `the page renders, shows weights under pointer and keys, and fetches nothing${REASON}`,
  ignore: CHROMIUM === undefined,
  fn: () =>
    withScratch(async (cwd) => {
      const made = await runParscale([...ARGS, "--html", "p.html", "--diversity"], { cwd });
      assertEquals(made.code, 0, made.stderr);
      const rows = await rowsOf(ARGS);
      const second = rows.findIndex(({ text_id }) => text_id === 1);
      await using page = await BrowserPage.open();
      await page.navigate(`${cwd}/p.html`);

      // It renders: every token is there, coloured, with its letter, and the text reads as it was.
      const spans = await page.evaluate(
        `[...document.querySelectorAll(".tokens span")].map((span) => [span.className,
          getComputedStyle(span, "::before").content, span.textContent])`,
      );
      assertEquals(spans.length, rows.length);
      rows.forEach(({ stream, winner, text }, i) => {
        const [classes, letter] = spans[i];
        // A token that only completes a character of others has the class `part`, too.
        assertEquals([classes.split(" ")[0], letter], [`s${stream}`, `"${winner}"`]);
        if (/^[ -~]+$/.test(text)) assertEquals(spans[i][2], text);
      });
      const colors = await page.evaluate(
        `["s0", "s1", "s2", "s3"].map((name) =>
          getComputedStyle(document.querySelector(".legend ." + name)).backgroundColor)`,
      );
      assertEquals(new Set(colors).size, 4);
      const headings = await page.evaluate(
        `[...document.querySelectorAll("h2")].map((heading) => heading.textContent)`,
      );
      assertEquals(headings.slice(0, 4), [...["Text 0", "Text 1"], ...["Streams", "Texts"]]);
      assert(headings[4].startsWith("Diversity: rho "));
      const light = await page.screenshot();
      assert(light.length > 5000, "the picture is not empty");

      // The pointer: numbers of the token, from any text.
      const tip = (what: string) =>
        page.evaluate(`[...document.querySelectorAll("#tip ${what}")].map((x) => x.textContent)`);
      const shown = async () => {
        const { values, text } = { values: await tip(".value"), text: (await tip("div")).join() };
        const [, position] = /position (\d+), id (\d+)/.exec(text)!;
        return { values: values.map(Number), text, position: Number(position) };
      };
      const assertShows = async (at: number) => {
        const { values, text, position } = await shown();
        const row = rows[at];
        assertEquals(position, row.position);
        values.forEach((x: number, p: number) => assertAlmostEquals(x, row.weights[p], 1e-4));
        for (const part of [`id ${row.token}`, `stream ${row.winner} wins`]) {
          assert(text.includes(part), text);
        }
        const [, entropy] = /entropy ([\d.]+) nats/.exec(text)!;
        assertAlmostEquals(Number(entropy), row.entropy, 2e-4);
        const [, chance] = /probability ([\d.e-]+)/.exec(text) ?? [];
        if (row.logprob === null) assert(text.includes("first token"));
        else assertAlmostEquals(Math.log(Number(chance)), row.logprob, 0.01);
      };
      assertEquals(await page.evaluate(`document.getElementById("tip").hidden`), true);
      await page.hover(".tokens > div > span:nth-child(4)");
      await assertShows(3);
      const widths = await page.evaluate(
        `[...document.querySelectorAll("#tip .bar i")].map((bar) => parseFloat(bar.style.width))`,
      );
      widths.forEach((x: number, p: number) =>
        assertAlmostEquals(x / 100, rows[3].weights[p], 1e-4)
      );
      const inside = await page.evaluate(`(() => {
        const { left, top, right, bottom } = document.getElementById("tip").getBoundingClientRect();
        return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
      })()`);
      assert(inside, "the panel lies in the window");
      assert(!sameBytes(await page.screenshot(), light), "the panel is seen");
      await page.hover("h2:nth-of-type(2) ~ .tokens > div > span");
      await assertShows(second);
      await page.hover("h1");
      assertEquals(await page.evaluate(`document.getElementById("tip").hidden`), true);

      // The keyboard: tab to a text, walk, leave.
      await page.evaluate(`document.querySelector(".tokens").focus()`);
      await page.press("ArrowRight");
      await assertShows(0);
      for (let i = 0; i < 3; i++) await page.press("ArrowRight");
      await page.press("ArrowLeft");
      await assertShows(2);
      await page.press("End");
      await assertShows(second - 1);
      await page.press("Escape");
      assertEquals(await page.evaluate(`document.getElementById("tip").hidden`), true);

      // Dark and light differ; nothing was fetched, nothing complained, no script of the text ran.
      const features = [{ name: "prefers-color-scheme", value: "dark" }];
      const ink = `getComputedStyle(document.body).color`;
      const bright = await page.evaluate(ink);
      await page.send("Emulation.setEmulatedMedia", { features });
      assert(await page.evaluate(ink) !== bright);
      assert(!sameBytes(await page.screenshot(), light), "darkness is seen");
      const asked = page.requests.filter((url) => !url.startsWith("data:"));
      assertEquals([asked, page.complaints], [[`file://${cwd}/p.html`], []]);
    }),
});
