/**
 * The README's picture: the chat page with the model of its tour.
 *
 *   deno run -A tests/cli/chat_picture.ts MODEL coder-streams [docs/images/chat.png]
 */
import { TestServer, until } from "./serve_testing.ts";
import { BrowserPage } from "./visualize_browser.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const QUESTION = "Write a Python function that reverses a string. Answer with the code alone.";

const [model, run, out = `${ROOT}docs/images/chat.png`] = Deno.args;
if (!model || !run) throw new Error("usage: chat_picture.ts MODEL RUN [PNG]");
await using server = await TestServer.start(["--model", model, "--adapter", `p4=${run}`]);
await using page = await BrowserPage.open({ width: 900, height: 640 });
await page.navigate(`${server.url}/`);
const isListed = `document.querySelectorAll("#model option").length === 2`;
await until(async () => Boolean(await page.evaluate(isListed)), "the models are listed");
await page.evaluate(`{
  document.getElementById("model").value = "p4";
  document.getElementById("model").dispatchEvent(new Event("change"));
  document.getElementById("tokens").value = 120;
  document.getElementById("input").value = ${JSON.stringify(QUESTION)};
  document.getElementById("form").requestSubmit();
}`);
const isAnswered = `document.querySelectorAll(".assistant").length === 1 &&
  document.getElementById("stop").disabled`;
await until(async () => Boolean(await page.evaluate(isAnswered)), "an answer");
await Deno.writeFile(out, await page.screenshot());
