/** `--speculate` of `generate`, `chat` and `serve`: results are those without, and counts say what it did. */
import { assertEquals, assertGreater } from "@std/assert";
import { jsonLines, rowsOf, succeed } from "./models.ts";
import { CHAT_MODEL, TestServer } from "./serve_testing.ts";

/** A token that a bias forces all the time, so that answers repeat. */
const SAME = 300;

Deno.test("generate: rows are equal with drafts and without, and --timings has tokens a step", async () => {
  const stdin = jsonLines({ prompt: "once upon a time" }, { tokens: [5, 6, 7, 5, 6] });
  const line = `generate --model ${CHAT_MODEL} --max-tokens 60 --ignore-eos --batch 1 --timings`;
  const repeats = `--logit-bias ${SAME}=100`,
    sampled = "--temperature 0.5 --repetition-penalty 1.1";
  for (const how of ["", repeats, `--quantize q4 ${repeats}`, sampled]) {
    const all = [0, 3, 31].map((count) => rowsOf(`${line} ${how} --speculate ${count}`, { stdin }));
    const [plain, ...speculated] = await Promise.all(all);
    for (const rows of speculated) {
      const bare = (row: typeof rows[number]) => ({ ...row, stats: null });
      assertEquals(rows.map(bare), plain!.map(bare), how);
    }
    for (const { stats } of plain!) assertEquals(stats.tokens_per_step, 1);
    if (!how.includes("bias")) continue;
    assertGreater(speculated[1]![0].stats.tokens_per_step, 1.5);
  }
});

Deno.test("chat: answers are equal with drafts and without", async () => {
  const line = `chat --model ${CHAT_MODEL} --temperature 0 --max-tokens 60 --speculate`;
  const [plain, speculated] = await Promise.all(
    [0, 7].map((count) => succeed(`${line} ${count}`, { stdin: "Hello\nAnd you?\n" })),
  );
  assertEquals(speculated, plain);
});

Deno.test("serve: answers are equal with drafts and without; usage and metrics count these", async () => {
  const asked = { prompt: "once upon", max_tokens: 60, ignore_eos: true };
  const body = { ...asked, temperature: 0, logprobs: 2 };
  const bias = { [SAME]: 100 };
  const answers = async (flags: string) => {
    await using server = await TestServer.start(`--model ${CHAT_MODEL} ${flags}`);
    const all = [body, { ...body, logit_bias: bias }, { ...body, n: 3, temperature: 1, seed: 5 }];
    const documents = await Promise.all(all.map((one) => server.complete(one)));
    const last = await server.complete({ ...body, logit_bias: bias });
    return { documents: [...documents, last], metrics: await server.metrics() };
  };
  const [plain, speculated] = await Promise.all([answers("--speculate 0"), answers("")]);
  assertEquals(
    speculated.documents.map(({ choices }) => choices),
    plain.documents.map(({ choices }) => choices),
  );
  const { completion_tokens_details: details, completion_tokens } = speculated.documents[3].usage;
  assertEquals(completion_tokens, 60);
  assertEquals(plain.documents[3].usage.completion_tokens_details, undefined);
  assertGreater(details.accepted_prediction_tokens, 20);
  const counted = (of: typeof plain, what: string) =>
    of.metrics.get(`parscale_spec_decode_num_${what}_tokens_total{model="tiny-qwen2"}`)!;
  assertGreater(counted(speculated, "accepted"), 20);
  assertGreater(counted(speculated, "draft"), counted(speculated, "accepted") - 1);
  assertEquals(counted(plain, "draft"), 0);
});
