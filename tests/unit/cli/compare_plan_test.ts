/** The evaluations that `parscale compare` runs get the flags that they share. */
import { assertEquals } from "@std/assert";
import { command } from "../../../cli/commands/compare/flags.ts";
import { plan } from "../../../cli/commands/compare/plan.ts";
import { flagsOf, type ValuesOf } from "../../../cli/framework/command.ts";
import { parse } from "../../../cli/framework/parse.ts";
import { resolve } from "../../../cli/framework/resolve.ts";

Deno.test("compare hands --unverified and an explicit --quantize none to its evaluations", async () => {
  const table = flagsOf(command);
  const shared = async (...more: string[]) => {
    const args = ["--model", "m", "--tasks", "gsm8k", ...more];
    const { values } = await resolve(
      parse(args, table),
      table,
      { name: "compare", ...command },
      () => undefined,
    );
    const planned = await plan(values as unknown as ValuesOf<typeof command>);
    const flags = planned.kind === "evaluate" ? planned.shared : [];
    return ["--unverified", "--quantize"].map((flag) => {
      const at = flags.indexOf(flag);
      return at < 0 ? null : flags[at + 1];
    });
  };
  assertEquals(await shared(), [null, null]);
  assertEquals(await shared("--quantize", "none"), [null, "none"]);
  assertEquals(await shared("--device", "cuda", "--unverified"), ["--seed", null]);
});
