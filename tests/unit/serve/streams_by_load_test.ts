/** The choice of streams by load, with made-up step times. */
import { assertAlmostEquals, assertEquals } from "@std/assert";
import { type Load, StreamsByLoad } from "../../../core/serve/streams_by_load.ts";

const AVAILABLE = [1, 2, 4, 8];
const ONE = { sequences: 1, promptTokens: 0 };

/** Milliseconds of a step: half of what every stream and sequence adds is shared. */
const stepMs = (streams: number, batch: number) => 10 + 5 * streams * (1 + (batch - 1) / 2);

interface World {
  readonly tpotMs?: number;
  readonly ttftMs?: number;
  readonly slowness?: number;
  readonly streams?: readonly number[];
}

/** A policy that has measured all step times, and its clock. */
function measured({ tpotMs = 60, ttftMs = Infinity, slowness = 1, streams = AVAILABLE }: World) {
  const clock = { ms: 0 };
  const targets = { tpotMs, ttftMs };
  const policy = new StreamsByLoad({ targets, maxBatch: 8, now: () => clock.ms });
  const measure = (streams: readonly number[], slowness: number) => {
    for (const one of streams) {
      for (let batch = 1; batch <= 8; batch++) {
        policy.observe(one, batch, slowness * stepMs(one, batch));
        policy.observe(one, batch, slowness * stepMs(one, batch));
      }
    }
  };
  measure(streams, slowness);
  const arrive = (times: number, load: ReadonlyMap<number, Load>, ms = 100) => {
    for (let i = 0; i < times; i++) {
      clock.ms += ms;
      policy.arrive(load);
    }
  };
  return { policy, arrive, measure };
}

/** Number of sequences by number of streams. */
function loadOf(counts: Readonly<Record<number, number>>, promptTokens = 0): Map<number, Load> {
  const entries = Object.entries(counts);
  return new Map(
    entries.map(([streams, sequences]) => [Number(streams), { sequences, promptTokens }]),
  );
}

Deno.test("a choice keeps the target wherever some number of streams does", () => {
  for (let tpotMs = 10; tpotMs < 200; tpotMs += 7) {
    const { policy } = measured({ tpotMs });
    for (let ones = 0; ones <= 8; ones++) {
      for (let fours = 0; fours <= 8; fours++) {
        const load = loadOf({ 1: ones, 4: fours });
        const round = (streams: number) => {
          const counts = { 1: ones, 4: fours, [streams]: (load.get(streams)?.sequences ?? 0) + 1 };
          const times = Object.entries(counts).map(([other, count]) =>
            count === 0 ? 0 : count > 8 ? Infinity : stepMs(Number(other), count)
          );
          return times.reduce((a, b) => a + b, 0);
        };
        const keeping = AVAILABLE.filter((streams) => round(streams) <= tpotMs);
        const chosen = policy.choose(AVAILABLE, ONE, load);
        assertEquals(chosen, Math.max(1, ...keeping), `${tpotMs} ms, ${ones} and ${fours}`);
      }
    }
  }
});

Deno.test("where no number of streams keeps the target, the fewest are taken", () => {
  const { policy } = measured({ tpotMs: 1 });
  assertEquals(policy.choose(AVAILABLE, ONE, new Map()), 1);
  assertEquals(policy.choose([2, 8], ONE, new Map()), 2);
});

Deno.test("more choices than rows do not wait with many streams", () => {
  const { policy } = measured({ tpotMs: 1000 });
  assertEquals(policy.choose(AVAILABLE, { sequences: 8, promptTokens: 0 }, new Map()), 8);
  assertEquals(policy.choose(AVAILABLE, { sequences: 1, promptTokens: 0 }, loadOf({ 8: 8 })), 4);
});

Deno.test("waiting prompts and the own one count against the time to the first token", () => {
  const { policy } = measured({ ttftMs: 500 });
  for (const streams of [1, 8]) {
    policy.observePrefill(streams, 100, 100 * streams);
    policy.observePrefill(streams, 100, 100 * streams);
  }
  assertEquals(policy.choose(AVAILABLE, { sequences: 1, promptTokens: 10 }, new Map()), 8);
  assertEquals(policy.choose(AVAILABLE, { sequences: 1, promptTokens: 250 }, new Map()), 1);
  const waiting = new Map([[1, { sequences: 0, promptTokens: 450 }]]);
  assertEquals(policy.choose(AVAILABLE, { sequences: 1, promptTokens: 10 }, waiting), 1);
});

Deno.test("a lull of a moment under load does not count, and a load that fell is forgotten", () => {
  const { policy, arrive } = measured({});
  const choose = () => policy.choose(AVAILABLE, ONE, new Map());
  arrive(40, loadOf({ 1: 2 }));
  // 2 tokens in 17.5 ms take 3.4 sequences more at the 30 ms of 4 streams, which is then 64 ms.
  assertEquals(choose(), 2);
  arrive(1, new Map());
  assertEquals(choose(), 2);
  arrive(1, new Map(), 120_000);
  assertEquals(choose(), 8);
});

Deno.test("a rate of tokens that some streams cannot keep up with is overload for them", () => {
  const { policy, arrive } = measured({ tpotMs: 75 });
  arrive(40, loadOf({ 1: 1.4 }));
  // 1.4 tokens in 16 ms are 0.0875 a millisecond; 4 streams make 0.08 at most, in a batch of eight.
  assertEquals(policy.choose([1, 4], ONE, new Map()), 1);
  assertEquals(policy.choose([1, 2], ONE, new Map()), 2);
});

Deno.test("prompts of other requests leave less time for steps", () => {
  const { policy, arrive } = measured({ tpotMs: 60 });
  for (const streams of AVAILABLE) policy.seedPrefill(streams, 1, streams);
  arrive(200, loadOf({ 1: 0.5 }));
  const choose = (promptTokens: number) =>
    policy.choose([1, 4], { sequences: 1, promptTokens }, new Map());
  assertEquals([choose(0), choose(20)], [4, 1]);
});

Deno.test("a client that sends one request after another keeps all streams", () => {
  const { policy, arrive } = measured({});
  for (let i = 0; i < 100; i++) {
    arrive(1, new Map(), 10);
    assertEquals(policy.choose(AVAILABLE, ONE, new Map()), 8);
  }
});

Deno.test("streams that are not used are predicted by the speed that others show", () => {
  const { policy, measure } = measured({ slowness: 3 });
  assertEquals(policy.choose(AVAILABLE, ONE, new Map()), 2);
  for (let i = 0; i < 30; i++) measure([1], 1);
  assertEquals(policy.choose(AVAILABLE, ONE, new Map()), 8);
  assertAlmostEquals(policy.stepMs(8, 1), stepMs(8, 1), 5);
});

Deno.test("one slow step does not change a choice", () => {
  const { policy } = measured({});
  policy.observe(8, 1, 10_000);
  assertEquals(policy.choose(AVAILABLE, ONE, new Map()), 8);
});

Deno.test("the first step of a size, which prepares its program, does not measure the next", () => {
  const policy = new StreamsByLoad({ targets: { tpotMs: 60, ttftMs: 1000 }, maxBatch: 8 });
  assertEquals(policy.choose(AVAILABLE, ONE, new Map()), 8, "nothing is known yet");
  policy.observe(8, 1, 5000);
  assertEquals(policy.choose(AVAILABLE, ONE, new Map()), 1);
  policy.observe(8, 1, 50);
  assertEquals(policy.choose(AVAILABLE, ONE, new Map()), 8);
});

Deno.test("before the first request the shortest step of a size counts", () => {
  const policy = new StreamsByLoad({ targets: { tpotMs: 60, ttftMs: 1000 }, maxBatch: 8 });
  for (const ms of [900, 50, 120]) policy.seed(8, 1, ms);
  for (const ms of [900, 400]) policy.seedPrefill(8, 10, ms);
  assertEquals(policy.stepMs(8, 1), 50);
  assertEquals(policy.choose(AVAILABLE, { sequences: 1, promptTokens: 10 }, new Map()), 8);
  assertEquals(policy.choose([1, 8], { sequences: 1, promptTokens: 25 }, new Map()), 1);
});

Deno.test("sizes that were never measured are predicted from their neighbours", () => {
  const policy = new StreamsByLoad({ targets: { tpotMs: 60, ttftMs: 1000 }, maxBatch: 8 });
  for (const [batch, ms] of [[2, 20], [2, 20], [4, 30], [4, 30]]) policy.observe(1, batch!, ms!);
  assertEquals([1, 2, 3, 4, 8].map((batch) => policy.stepMs(1, batch)), [20, 20, 25, 30, 60]);
  assertEquals(policy.stepMs(4, 2), 80, "at most in proportion to the streams");
});
