/** A real model against transformers: ids, log-probabilities, logits, greedy tokens. */
import { assert, assertEquals } from "@std/assert";
import { openModel } from "../../mod.ts";
import { jsonLines, rowsOf, succeed } from "../cli/models.ts";
import { withScratch } from "../scratch.ts";
import { realTest, type Reference, REFERENCES } from "./model.ts";

/** Both compute in f32, in another order. */
const LOGPROB_TOLERANCE = 2e-4, MEAN_TOLERANCE = 2e-5, LOGIT_TOLERANCE = 2e-4;

/** Of the mean log-probability with codes; measured: -0.003. */
const ROUNDED_TOLERANCE = 0.02;

/** New tokens of a reference that no end token stops. */
const NEW_TOKENS = 32;

function assertLogprobs({ name, token_logprobs }: Reference, found: ArrayLike<number>): void {
  const [, ...expected] = token_logprobs;
  assertEquals(found.length, expected.length, name);
  const differences = expected.map((value, i) => found[i]! - value);
  const worst = Math.max(...differences.map(Math.abs));
  const mean = differences.reduce((sum, difference) => sum + difference, 0) / expected.length;
  const measured = `${name}: log-probabilities differ by ${worst}, their mean by ${mean}`;
  assert(worst <= LOGPROB_TOLERANCE && Math.abs(mean) <= MEAN_TOLERANCE, measured);
}

realTest(
  "a GGUF model gives the ids, logits and greedy tokens of transformers",
  async (path, t) => {
    using model = await openModel(path, { device: "cpu", quantize: "none" });
    for (const reference of REFERENCES) {
      const { name, text, ids, last_top8, greedy } = reference;
      await t.step(name, async () => {
        assertEquals(await model.encode(text), ids);
        const { tokenLogprobs } = await model.score(ids.slice(0, 1), ids.slice(1));
        assertLogprobs(reference, tokenLogprobs);
        using cache = model.engine.createCache(1, ids.length);
        const input = { ids: [ids], start: [0], select: [ids.length - 1] };
        const logits = (await model.engine.forward(cache, input)).get("logits")!;
        const order = Array.from(logits.keys()).sort((a, b) => logits[b]! - logits[a]!);
        assertEquals(order.slice(0, 8), last_top8.map(([id]) => id));
        const worst = Math.max(...last_top8.map(([id, logit]) => Math.abs(logits[id]! - logit)));
        assert(worst <= LOGIT_TOLERANCE, `logits differ by ${worst}`);
        const { tokens } = await model.complete(ids, { maxTokens: NEW_TOKENS });
        assertEquals(tokens, greedy);
      });
    }
  },
);

realTest(
  "generate and score give the tokens and log-probabilities of transformers",
  async (path) => {
    const [reference] = REFERENCES;
    const { text, ids, greedy } = reference!, model = ["--model", path, "--quantize", "none"];
    const [generated] = await rowsOf(
      ["generate", ...model, "--prompt", text, "--max-tokens", `${NEW_TOKENS}`],
    );
    assertEquals(generated.tokens, greedy);
    const stdin = jsonLines({ tokens: ids });
    const [scored] = await rowsOf(["score", ...model], { stdin });
    assertLogprobs(reference!, scored.token_logprobs);
    // Products with the codes of the file round activations to 8 bits.
    const [rounded] = await rowsOf(["score", "--model", path], { stdin });
    const mean = (rounded.loglikelihood - scored.loglikelihood) / (ids.length - 1);
    assert(Math.abs(mean) < ROUNDED_TOLERANCE, `log-probabilities differ by ${mean}`);
  },
);

realTest(
  "a folder made of a GGUF file gives the greedy tokens of the file",
  (path) =>
    withScratch(async (cwd) => {
      await succeed(["convert", "--model", path, "--dtype", "f32", "--out", "folder", "-q"], {
        cwd,
      });
      const args = ["generate", "--model", "folder", "--max-tokens", `${NEW_TOKENS}`];
      const stdin = jsonLines(...REFERENCES.map(({ text }) => ({ prompt: text })));
      const rows = await rowsOf(args, { cwd, stdin });
      assertEquals(rows.map(({ tokens }) => tokens), REFERENCES.map(({ greedy }) => greedy));
    }),
);
