/**
 * The trained fixture shows what streams do: with the backbone frozen, on problems it cannot solve,
 * two streams reach a lower loss than one with a prefix. Only this order is held, with a margin: no
 * law in P follows from a minute of training, and exact match does not follow within it.
 */
import { assert } from "@std/assert";
import { ARMS, trainArguments } from "../../docs/studies/word-problems/study.ts";
import { writeWordProblems } from "../../fixtures/word_problems/write.ts";
import { runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { FIXTURES } from "../fixtures.ts";

const STEPS = 20;

Deno.test("two streams learn more than one with a prefix", () =>
  withScratch(async (scratch) => {
    const data = `${scratch}/data`;
    await writeWordProblems(data, 20_000);
    const rows = Deno.readTextFileSync(`${data}/validation.jsonl`).trim().split("\n");
    const known = rows.filter((row) => !JSON.parse(row).held_out_name).slice(0, 60);
    const held = `${scratch}/held.jsonl`;
    Deno.writeTextFileSync(held, known.join("\n"));
    const options = {
      model: `${FIXTURES}models/word-problems`,
      data,
      runs: scratch,
      steps: STEPS,
      held,
    };
    const lossOf = async (label: string) => {
      const arm = ARMS.find((one) => one.label === label)!;
      const { code, stdout, stderr } = await runParscale(
        [...trainArguments(arm, 0, options), "--json", "-q"],
        { env: { PARSCALE_CACHE: `${scratch}/cache` } },
      );
      assert(code === 0, stderr);
      return (JSON.parse(stdout) as { results: { eval_loss: number } }).results.eval_loss;
    };
    const before = await lossOf("as it is");
    const one = await lossOf("P=1, prefix only");
    const two = await lossOf("P=2");
    assert(one < 0.6 * before, `one stream: ${one} of ${before}`);
    assert(two < 0.97 * one, `two streams: ${two}, one stream: ${one}`);
  }));
