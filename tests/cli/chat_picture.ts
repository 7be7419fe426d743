/**
 * The README's picture: the chat page with a model that was trained for a minute to use four streams.
 *
 *   deno run -A tests/cli/chat_picture.ts [docs/images/chat.png]
 */
import { copyFolder } from "./models.ts";
import { runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { TestServer, until } from "./serve_testing.ts";
import { BrowserPage } from "./visualize_browser.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const MODEL = `${ROOT}fixtures/models/word-problems`;
/** The form of the model's training data, which has single questions. */
const TEMPLATE = "Question: {{ messages[-1].content }}\nAnswer:";
const QUESTIONS = [
  "Soojin buys 2 boxes of 6 apples. Sylvie has 5 fewer than Soojin. How many apples do Soojin and " +
  "Sylvie have in total?",
  "Lwazi works 4 hours for 2 dollars an hour. Lwazi spends 5 dollars on a gift. How many dollars " +
  "does Lwazi have?",
];

async function run(cwd: string, line: string): Promise<void> {
  const { code, stderr } = await runParscale(line.split(" "), { cwd });
  if (code !== 0) throw new Error(stderr);
}

await withScratch(async (folder) => {
  const write = [`${ROOT}fixtures/word_problems/write.ts`, "problems", "--rows", "30000"];
  const args = ["run", "-A", ...write];
  const { success } = await new Deno.Command(Deno.execPath(), { args, cwd: folder }).output();
  if (!success) throw new Error("the data could not be written");
  await copyFolder(MODEL, `${folder}/word-problems`, { "chat_template.jinja": TEMPLATE });
  await run(folder, `convert --model word-problems --streams 4 --prefix-tokens 16 --out wp4`);
  await run(
    folder,
    "train --model wp4 --train-params introduced --data problems/shifted.jsonl --seq-len 192 " +
      "--steps 60 --lr 0.01 --lr-prefix 1 --out run",
  );
  const models = ["--model", "word-problems", "--adapter", "p4=run"];
  await using server = await TestServer.start(models, {}, { cwd: folder });
  await using page = await BrowserPage.open({ width: 900, height: 780 });
  await page.navigate(`${server.url}/`);
  const isListed = `document.querySelectorAll("#model option").length === 2`;
  await until(async () => Boolean(await page.evaluate(isListed)), "the models are listed");
  for (const [i, question] of QUESTIONS.entries()) {
    await page.evaluate(`{
      document.getElementById("model").value = "p4";
      document.getElementById("model").dispatchEvent(new Event("change"));
      document.getElementById("tokens").value = 110;
      document.getElementById("input").value = ${JSON.stringify(question)};
      document.getElementById("form").requestSubmit();
    }`);
    await until(
      async () =>
        await page.evaluate(`document.querySelectorAll(".assistant").length === ${i + 1} &&
        document.getElementById("stop").disabled`),
      "an answer",
    );
  }
  await page.hover(".tokens span:nth-of-type(9)");
  await Deno.writeFile(Deno.args[0] ?? `${ROOT}docs/images/chat.png`, await page.screenshot());
});
