/** The chat page of `parscale serve` in a real browser: tokens, letters, weights, the switch of P, stop. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { withScratch } from "../scratch.ts";
import { CHAT_MODEL, makeAdapter, TestServer, until } from "./serve_testing.ts";
import { BrowserPage, CHROMIUM } from "./visualize_browser.ts";

/** Shown where no browser is found, so that a skipped check is seen. */
const REASON = CHROMIUM ? "" : " (skipped: no chromium found, set CHROMIUM to its path)";

Deno.test({
  name:
    `the chat page: tokens under letters, weights, the P switch, stop, no foreign request${REASON}`,
  ignore: CHROMIUM === undefined,
  fn: () =>
    withScratch(async (folder) => {
      const two = await makeAdapter(CHAT_MODEL, 2, `${folder}/two`);
      const four = await makeAdapter(CHAT_MODEL, 4, `${folder}/four`);
      await using server = await TestServer.start(
        `--model ${CHAT_MODEL} --adapter p2=${two} --adapter p4=${four} ` +
          "--target-tpot 1h --target-ttft 1h",
      );
      await using page = await BrowserPage.open({ width: 380, height: 700 });
      await page.navigate(`${server.url}/`);
      const count = (selector: string) =>
        page.evaluate(`document.querySelectorAll(${JSON.stringify(selector)}).length`);
      const isIdle = () => page.evaluate(`document.getElementById("stop").disabled`);
      const choose = (model: string) =>
        page.evaluate(`{
          document.getElementById("model").value = ${JSON.stringify(model)};
          document.getElementById("model").dispatchEvent(new Event("change"));
        }`);
      const ask = async (text: string, model: string, tokens: number, streams?: string) => {
        await choose(model);
        await page.evaluate(`{
          const streams = document.getElementById("streams");
          streams.value = ${JSON.stringify(streams)} ?? streams.value;
          document.getElementById("tokens").value = ${tokens};
          document.getElementById("input").value = ${JSON.stringify(text)};
          document.getElementById("form").requestSubmit();
        }`);
      };
      await until(async () => await count("#model option") === 3, "the models are listed");
      const legend = () => page.evaluate(`document.getElementById("weights").textContent`);
      await choose("p4");
      assertEquals(await legend(), "ABCD", "the letters are explained before any answer");
      await choose("p2");
      assertEquals(await legend(), "AB");
      const controls = await page.evaluate(
        `[...document.querySelectorAll("button, input, select, textarea")].filter((control) =>
          !["none", "textfield"].includes(getComputedStyle(control).appearance)).length`,
      );
      assertEquals(controls, 0, "no control looks as the browser has it");

      await ask("Tell <b>me</b> of the fox", "p4", 20);
      await until(async () => await count(".tokens span") > 3 && await isIdle(), "an answer");
      assertEquals(await count(".user b b"), 0, "text is never markup");
      const letters = await page.evaluate(
        `[...document.querySelectorAll(".tokens span")].map((token) =>
          [token.className, getComputedStyle(token, "::before").content])`,
      );
      for (const [name, letter] of letters) {
        assertMatch(name, new RegExp(`^s${"ABCD".indexOf(letter[1])} w\\d( narrow)?$`));
      }
      await page.hover(".tokens span");
      assertMatch(await legend(), /^A 0\.\d{4}B 0\.\d{4}C 0\.\d{4}D 0\.\d{4}$/);
      await page.evaluate(`document.querySelectorAll(".tokens span")[1].focus()`);
      assert((await legend()).startsWith("A 0."));
      const speed = await page.evaluate(`document.getElementById("speed").textContent`);
      assert(/^\d+\.\d tok\/s$/.test(speed), speed);

      // The switch keeps the conversation: the prompt of the second turn has the first in it.
      const before = (await server.metrics()).get(`parscale_prompt_tokens_total{model="p4"}`)!;
      await ask("And more", "p2", 5);
      await until(async () => await count(".assistant") === 2 && await isIdle(), "a second answer");
      const metrics = await server.metrics();
      assert(metrics.get(`parscale_prompt_tokens_total{model="p2"}`)! > before + 5);

      // The streams that an answer got stand above it.
      const names = () =>
        page.evaluate(`[...document.querySelectorAll(".assistant > b")].map((b) => b.textContent)`);
      assertEquals(await names(), ["p4, P = 4", "p2, P = 2"]);
      const options = "[...document.getElementById('streams').options].map(({ value }) => value)";
      assertEquals(await page.evaluate(options), ["1", "2", "4", "auto"]);
      await ask("As you like", "p2", 5, "auto");
      await until(async () => await count(".assistant") === 3 && await isIdle(), "a third answer");
      await ask("One", "p2", 5, "1");
      await until(async () => await count(".assistant") === 4 && await isIdle(), "a fourth answer");
      assertEquals((await names()).slice(2), ["p4, P = 4", "tiny-qwen2, P = 1"]);

      // Stop ends the answer and frees the row.
      await ask("On and on", "p2", 4000);
      await until(async () => !(await isIdle()), "it answers");
      await page.evaluate(`document.getElementById("stop").click()`);
      await until(isIdle, "it stops");
      await until(async () => {
        const name = `parscale_num_requests_running{model="p2"}`;
        return (await server.metrics()).get(name) === 0;
      }, "the row is free");

      const widths = await page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]",
      );
      assert(widths[0] <= widths[1], "nothing is cut on a narrow screen");
      const foreign = page.requests.filter((url) =>
        !url.startsWith(server.url) && !url.startsWith("data:")
      );
      assertEquals([foreign, page.complaints], [[], []]);
      const policy = (await server.get("/")).headers.get("content-security-policy")!;
      for (const part of ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"]) {
        assertStringIncludes(policy, part);
      }
      assert(!policy.includes("unsafe"));

      const color = () => page.evaluate("getComputedStyle(document.body).color");
      const light = await color();
      await page.send("Emulation.setEmulatedMedia", {
        features: [{ name: "prefers-color-scheme", value: "dark" }],
      });
      assert(await color() !== light, "the page has a dark scheme");
    }),
});

/** An answer in pieces, as the server streams it. */
const PIECES = [
  ..."Here:\n\n|```|python|\n|def f|():\n|    pass|\n|```|\n\n|Now `a`, **b** and <i>c</i>:".split(
    "|",
  ),
  "\n\n| x | y |\n|---|---|\n| 1 | [link](https://example.org) |\n\n",
  "- one\n- ![two](https://example.org/two.png)\n\n[bad](javascript:alert(1))\n\n```\n# ",
  "x".repeat(200),
  ..."\n``|`\n|End".split("|"),
];

Deno.test({
  name: `the chat page renders Markdown, and shows letters, stop reason and conversation${REASON}`,
  ignore: CHROMIUM === undefined,
  fn: async () => {
    await using server = await TestServer.start(`--model ${CHAT_MODEL}`);
    await using page = await BrowserPage.open({ width: 360, height: 700 });
    await page.navigate(`${server.url}/`);
    const read = (selector: string, what: string) =>
      page.evaluate(`[...document.querySelectorAll(${JSON.stringify(selector)})].map(${what})`);
    const isReady = async () => (await read("#model option", "(x) => x")).length === 1;
    await until(isReady, "the model");
    const frames = PIECES.map((content, i) => ({
      model: "m",
      parscale: { streams: 2 },
      choices: [{
        delta: { content },
        parscale: { tokens: [{ weights: [0.25, 0.75] }] },
        finish_reason: i === PIECES.length - 1 ? "length" : null,
      }],
    }));
    const body = frames.map((frame) => `data: ${JSON.stringify(frame)}\n\n`).join("");
    await page.evaluate(`{
      fetch = (_, { body }) => {
        sent = JSON.parse(body);
        return Promise.resolve(new Response(${JSON.stringify(body)}));
      };
      document.getElementById("system").value = "Be brief";
      document.getElementById("tokens").value = 20;
      document.getElementById("input").value = "Not **bold**,\\nplease";
      document.getElementById("form").requestSubmit();
    }`);
    const text = "(one) => one.textContent", shown = "(one) => one.checkVisibility()";
    await until(async () => (await read(".foot span", text)).at(-1) !== "", "the answer");
    assertEquals(await page.evaluate("sent.messages"), [
      { role: "system", content: "Be brief" },
      { role: "user", content: "Not **bold**,\nplease" },
    ]);

    // Letters: the text as it came, each token with its stream.
    assertEquals((await read(".tokens", text))[0], PIECES.join(""));
    const letter = `(token) => getComputedStyle(token, "::before").content`;
    assertEquals(await read(".tokens span", letter), PIECES.map(() => `"B"`));
    assertEquals(await read(".tokens, .assistant .rendered", shown), [true, false]);
    await page.evaluate(`document.getElementById("letters").click()`);
    assertEquals(await read(".tokens, .assistant .rendered", shown), [false, true]);

    const check = async () => {
      assertEquals(await read(".rendered pre", text), [
        "def f():\n    pass\n",
        `# ${"x".repeat(200)}\n`,
      ]);
      assertEquals(await read(".rendered :is(td, li, strong)", text), [
        ...["b", "1", "link", "one", "!two"],
      ]);
      assertEquals(await read(".rendered :is(i, img, script)", text), []);
      assertEquals(await read(".rendered a", "(a) => [a.href, a.target]"), [
        ["https://example.org/", "_blank"],
        ["https://example.org/two.png", "_blank"],
      ]);
      assertEquals(await read(".foot span", text), ["", "stopped at 20 tokens"]);
      assertEquals(await read(".message > b", text), ["user", "m, P = 2"]);
      assertEquals(await read(".user .rendered", text), ["Not **bold**,\nplease"]);
      assertEquals(await read(".foot button", shown), [true, true], "an answer can be copied");
      const fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";
      assert(await page.evaluate(fits), "nothing is wider than the page");
    };
    await check();
    await page.navigate(`${server.url}/?again`);
    await until(isReady, "the model again");
    await check();
    await page.evaluate(`document.getElementById("clear").click()`);
    await page.navigate(`${server.url}/`);
    await until(isReady, "the model once more");
    assertEquals(await read(".message", text), []);
    const foreign = page.requests.filter((url) => url.includes("example.org"));
    assertEquals([foreign, page.complaints], [[], []]);
  },
});
