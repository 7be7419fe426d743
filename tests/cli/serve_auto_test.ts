/** `parscale serve` chooses the number of streams: requests, responses, streams, metrics. */
import { assert, assertEquals } from "@std/assert";
import { withScratch } from "../scratch.ts";
import { CHAT_MODEL, makeAdapter, TestServer } from "./serve_testing.ts";

const NAME = "tiny-qwen2";

/** Targets that a tiny model always keeps, and that nothing keeps. */
const EASY = "--target-tpot 1h --target-ttft 1h", HARD = "--target-tpot 1e-9s";

const greedy = { prompt: "The red fox", max_tokens: 8, temperature: 0, ignore_eos: true };

Deno.test("streams by load", (t) =>
  withScratch(async (folder) => {
    const [two, four, other] = await Promise.all([
      makeAdapter(CHAT_MODEL, 2, `${folder}/two`),
      makeAdapter(CHAT_MODEL, 4, `${folder}/four`),
      makeAdapter(CHAT_MODEL, 4, `${folder}/other`),
    ]);
    const serve = (flags: string) =>
      TestServer.start(`--model ${CHAT_MODEL} --adapter p2=${two} ${flags}`);
    const p4 = `--adapter p4=${four}`;

    await t.step(
      "--streams auto: all that keep the targets, in the response and its log",
      async () => {
        await using server = await serve(`${p4} --streams auto ${EASY}`);
        const asked = [{}, { model: "p4" }, { model: NAME }, { model: "p2" }]
          .concat({ model: "p2", ...{ parscale: { streams: 1 } } });
        const answers = [];
        for (const fields of asked) answers.push(await server.complete({ ...greedy, ...fields }));
        assertEquals(answers.map(({ model }) => model), ["p4", "p4", "p4", "p2", NAME]);
        assertEquals(answers.map(({ parscale }) => parscale.streams), [4, 4, 4, 2, 1]);
        assertEquals(answers[1].choices, answers[0].choices);
        const { data } = await server.json("/v1/models");
        const defaults = data.map((model: { parscale: { default_streams: unknown } }) =>
          model.parscale.default_streams
        );
        assertEquals(defaults, ["auto", 2, 4]);
        await server.stop();
        const logged = server.log.filter(({ model }) => model).map(({ streams }) => streams);
        assertEquals(logged, [4, 4, 4, 2, 1]);
      },
    );

    await t.step("a stream names the streams where it ends, and so does its usage", async () => {
      await using server = await serve(`${p4} ${EASY}`);
      const body = { ...greedy, parscale: { streams: "auto" } };
      const frames = await server.frames("/v1/completions", {
        ...body,
        stream_options: { include_usage: true },
      });
      const [usage, last] = [frames.pop(), frames.pop()];
      assertEquals([usage.parscale, usage.choices], [{ streams: 4 }, []]);
      assertEquals([last.parscale, last.choices[0].finish_reason], [{ streams: 4 }, "length"]);
      assert(frames.length > 0 && frames.every(({ parscale }) => parscale === undefined));
      const messages = [{ role: "user", content: "x" }];
      const { prompt: _, ...others } = body;
      const chat = await server.frames("/v1/chat/completions", { ...others, messages });
      assertEquals(chat.at(-1).parscale, { streams: 4 });
      const weights = { streams: "auto", weights: true };
      const { choices: [choice] } = await server.complete({ ...body, parscale: weights });
      assertEquals(choice.parscale.tokens[0].weights.length, 4);
    });

    await t.step("a target that nothing keeps gives one stream; metrics count both", async () => {
      await using server = await serve(`${p4} --streams auto ${HARD}`);
      const answer = await server.complete({ ...greedy, n: 3 });
      assertEquals([answer.model, answer.parscale.streams], [NAME, 1]);
      await server.complete({ ...greedy, model: "p4", n: 2 });
      const metrics = await server.metrics();
      const counted = [1, 2, 4].map((streams) =>
        metrics.get(`parscale_streams_total{streams="${streams}"}`)
      );
      assertEquals(counted, [3, undefined, 2]);
      assertEquals(metrics.get("parscale_auto_streams{}"), 1);
    });

    await t.step("a request may ask for auto of a server that has measured nothing", async () => {
      await using server = await serve(`${p4} ${HARD}`);
      const streams = [];
      for (let i = 0; i < 3; i++) {
        const answer = await server.complete({ ...greedy, parscale: { streams: "auto" } });
        streams.push(answer.parscale.streams);
      }
      assertEquals(streams, [4, 1, 1]);
      assertEquals((await server.complete(greedy)).parscale.streams, 1, "the backbone's");
    });

    await t.step(
      "of several adapters with as many streams only a named one is chosen",
      async () => {
        await using server = await serve(`${p4} --adapter other=${other} ${EASY}`);
        const modelOf = async (model: string) =>
          (await server.complete({ ...greedy, model, parscale: { streams: "auto" } })).model;
        assertEquals([await modelOf(NAME), await modelOf("other")], ["p2", "other"]);
      },
    );

    await t.step("--streams with a number is a default like auto", async () => {
      await using server = await serve("--streams 2");
      assertEquals((await server.complete(greedy)).parscale.streams, 2);
      const one = await server.complete({ ...greedy, parscale: { streams: 1 } });
      assertEquals(one.parscale.streams, 1);
      for (const streams of ["all", "4", 0, -1, 1.5, 3, true, [2], {}]) {
        const { error } = await server.complete({ ...greedy, parscale: { streams } });
        assertEquals([error.type, error.param], ["invalid_request_error", "parscale.streams"]);
      }
    });
  }));
