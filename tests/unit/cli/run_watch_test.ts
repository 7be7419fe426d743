/** Warnings of a run that goes wrong. */
import { assertEquals } from "@std/assert";
import type { PreparedRun } from "../../../cli/commands/train/prepare.ts";
import { RunWatch } from "../../../cli/commands/train/show.ts";
import type { Io } from "../../../cli/output/io.ts";
import type { StepReport } from "../../../core/train/loop.ts";

Deno.test("a high loss is warned of, unless its step has few tokens", () => {
  const warnings: string[] = [];
  const io = { warn: (message: string) => warnings.push(message) } as unknown as Io;
  const source = { params: "all", config: { streams: 1 } };
  const loop = { rates: { backbone: 1, prefix: 1, aggregator: 1 } };
  const watch = new RunWatch(io, { source, loop } as unknown as PreparedRun);
  const look = (step: number, tokens: number, used: number) =>
    watch.look(
      { step, tokens, loss: 4, firstLoss: 2, tokensPerSecond: used / 2, seconds: 2 } as StepReport,
    );
  look(13, 3092, 20); // the end of an epoch
  assertEquals(warnings, []);
  look(14, 3348, 256);
  assertEquals(warnings, ["the loss of step 14 is 4.0000, where the run began with 2.0000"]);
});
