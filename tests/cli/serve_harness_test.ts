/**
 * Requests that lm-evaluation-harness sent, replayed: responses obey its rules, and scores are its own.
 */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { jsonLines, MODEL, rowsOf } from "./models.ts";
import { TestServer } from "./serve_testing.ts";
import { readFixture } from "../fixtures.ts";

interface Recorded {
  readonly pairs: readonly {
    readonly context: string;
    readonly continuation: string;
    readonly loglikelihood: number;
    readonly is_greedy: boolean;
  }[];
  readonly requests: readonly {
    readonly method: string;
    readonly path: string;
    // deno-lint-ignore no-explicit-any -- any field
    readonly body?: any;
  }[];
}

const RECORDED: Recorded = readFixture("serve/harness.json");

interface Logprobs {
  readonly tokens: string[];
  readonly token_logprobs: (number | null)[];
  readonly top_logprobs: (Record<string, number> | null)[];
}

/** As the harness reads a choice: the sum of the continuation, and whether all were the best. */
function harnessScore({ token_logprobs, top_logprobs }: Logprobs, context: number) {
  const own = token_logprobs.slice(context, -1) as number[];
  const best = top_logprobs.slice(context, -1).map((top) => Math.max(...Object.values(top!)));
  return {
    loglikelihood: own.reduce((sum, x) => sum + x, 0),
    isGreedy: own.every((x, i) => x === best[i]),
  };
}

Deno.test("recorded requests of lm-evaluation-harness get its scores, and those of score", async () => {
  await using server = await TestServer.start(`--model ${MODEL}`);
  const scored = new Map<string, Logprobs>();
  for (const { method, path, body } of RECORDED.requests) {
    // The harness sends "Bearer " without a key.
    const response = method === "GET" ? await server.get(path) : await server.post(path, body, {
      headers: { "content-type": "application/json", authorization: "Bearer " },
    });
    assertEquals(response.status, 200, path);
    const answer = await response.json();
    if (!body?.echo) continue;
    answer.choices.forEach(({ index, logprobs }: { index: number; logprobs: Logprobs }) => {
      const tokens = body.prompt[index];
      assertEquals(logprobs.token_logprobs.length, tokens.length + 1);
      assert(logprobs.token_logprobs.slice(1).every(Number.isFinite));
      scored.set(tokens.join(), logprobs);
    });
  }

  const rows = [...scored.keys()].map((key) => ({ tokens: key.split(",").map(Number) }));
  const expected = await rowsOf(`score --model ${MODEL}`, { stdin: jsonLines(...rows) });
  for (const { token_logprobs, tokens } of expected) {
    const own = scored.get(tokens.join())!.token_logprobs;
    token_logprobs.forEach((x: number, i: number) => assertAlmostEquals(own[i + 1]!, x, 1e-5));
  }

  const encode = async (prompt: string): Promise<number[]> =>
    (await server.json("/tokenize", { prompt, add_special_tokens: false })).tokens;
  for (const { context, continuation, loglikelihood, is_greedy } of RECORDED.pairs) {
    // The harness puts the end token before a continuation without context.
    const before = context === "" ? await encode("<|endoftext|>") : await encode(context);
    const whole = context === ""
      ? [...before, ...await encode(continuation)]
      : await encode(context + continuation);
    const score = harnessScore(scored.get(whole.join())!, before.length);
    assertAlmostEquals(score.loglikelihood, loglikelihood, 1e-5);
    assertEquals(score.isGreedy, is_greedy);
  }
});
