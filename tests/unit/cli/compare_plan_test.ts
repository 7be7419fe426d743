/** The evaluations that `parscale compare` runs get the flags that they share. */
import { assertEquals } from "@std/assert";
import { command } from "../../../cli/commands/compare/flags.ts";
import { planComparison, sharedArguments } from "../../../cli/commands/compare/plan.ts";
import { flagsOf, type ValuesOf } from "../../../cli/framework/command.ts";
import { parse } from "../../../cli/framework/parse.ts";
import { resolve } from "../../../cli/framework/resolve.ts";
import { captureIo, INVOCATION } from "./capture_io.ts";

Deno.test("compare hands --unverified and flags of quantization to its evaluations", async () => {
  const table = flagsOf(command);
  const shared = async (...more: string[]) => {
    const args = ["--model", "owner/name", "--tasks", "gsm8k", ...more];
    const { values } = await resolve(
      parse(args, table),
      table,
      { name: "compare", ...command },
      () => undefined,
    );
    const planned = await planComparison(
      values as unknown as ValuesOf<typeof command>,
      captureIo().io,
      INVOCATION,
    );
    const flags = sharedArguments(planned.values);
    const wanted = ["--unverified", "--quantize", "--no-weight-cache", "--cache-limit"];
    return wanted.filter((flag) => flags.includes(flag)).map((flag) =>
      flag === "--quantize" ? `${flag} ${flags[flags.indexOf(flag) + 1]}` : flag
    );
  };
  assertEquals(await shared(), ["--cache-limit"]);
  assertEquals(await shared("--quantize", "none"), ["--quantize none", "--cache-limit"]);
  assertEquals(await shared("--device", "cuda", "--unverified"), ["--unverified", "--cache-limit"]);
  assertEquals(
    await shared("--quantize", "q8", "--no-weight-cache"),
    ["--quantize q8", "--no-weight-cache", "--cache-limit"],
  );
});
