/** Warnings of a run that goes wrong. */
import { assertEquals } from "@std/assert";
import type { PreparedRun } from "../../../cli/commands/train/prepare.ts";
import { RunWatch } from "../../../cli/commands/train/show.ts";
import type { Io } from "../../../cli/output/io.ts";
import type { StepReport } from "../../../core/train/loop.ts";

Deno.test("a high loss of several steps is warned of, by tokens", () => {
  const warnings: string[] = [];
  const io = { warn: (message: string) => warnings.push(message) } as unknown as Io;
  const source = { params: "all", config: { streams: 1 } };
  const loop = { rates: { backbone: 1, prefix: 1, aggregator: 1 } };
  const watch = new RunWatch(io, { source, loop } as unknown as PreparedRun);
  const look = (step: number, loss: number, used: number) =>
    watch.look({ step, loss, firstLoss: 2, tokensPerSecond: used / 2, seconds: 2 } as StepReport);
  for (let step = 1; step <= 20; step++) {
    look(step, step % 4 === 0 ? 9 : 2, step % 4 === 0 ? 20 : 256);
  }
  assertEquals(warnings, [], "short rows, the most of which are hard");
  for (let step = 21; step <= 25; step++) look(step, 4, 256);
  assertEquals(warnings, [
    "the mean loss of the last 5 steps is 3.1149 at step 22, where the run began with 2.0000",
  ]);
});
